package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// State is what one sidecar knows of one chat. It is not safe for concurrent use.
type State struct {
	cfg Config
	d   *data // what survives; fold alone changes it

	// The rest is not kept.
	clock      time.Time // of the Apply that runs; its zone is that of the readers
	now        relay.Millis
	applying   bool // false: records are read again, and their effects are not repeated
	caughtUp   bool
	online     map[relay.AgentName]bool
	away       bool // this bot is not connected
	byID       map[relay.MessageID]*Line
	gone       map[relay.MessageID]bool // the ids of data.Gone
	memberList []Member                 // nil: not computed
	records    []Record
	effects    []Effect
}

// data is the part of a State that its records make.
type data struct {
	Lines    []*Line                       `json:"lines,omitempty"` // by time
	Nr       uint64                        `json:"nr,omitempty"`    // of the newest line or effect
	In       membership                    `json:"in,omitempty"`
	Joined   relay.Millis                  `json:"joined,omitempty"` // when the bot was first known to be in the group
	Settings Changes                       `json:"settings"`
	Early    map[relay.MessageID][]Verdict `json:"early"` // of messages that have not come
	Gone     []relay.MessageID             `json:"gone"`  // recalled, whether or not they have come
	Shown    []Record                      `json:"shown"` // commands and notices, each once, as viewers see them

	Texts     map[relay.MessageID]*text `json:"texts"` // messages with which something is to be done
	Todo      map[string]*Effect        `json:"todo"`  // effects without a result, by key
	Queue     []*arrival                `json:"queue,omitempty"`
	Held      []relay.MessageID         `json:"held,omitempty"` // what stopped at this bot and can be released
	Turns     map[string]*turn          `json:"turns"`
	Stops     map[string]*stopped       `json:"stops"`     // the last round that stopped, by topic
	Continued map[string]goneOn         `json:"continued"` // the newest continue, by topic
	Budgeted  relay.Millis              `json:"budgeted,omitempty"`
}

type membership int

const (
	isUnknown membership = iota
	isIn
	isOut
)

// text is a message that somebody here still needs: an effect, the queue, or a release.
type text struct {
	Msg  *relay.Message `json:"msg"`
	Refs int            `json:"refs"`
}

const (
	// maxGone is how many recalled messages are remembered; beyond it the one first recalled is forgotten.
	maxGone = 10_000
	// maxShown is how many commands and notices are known, each of at most maxShownText bytes: 2 MiB in all. The oldest
	// are forgotten, and would be answered again.
	maxShown     = 500
	maxShownText = 4 << 10
	// maxWaiting and maxWaitingBytes bound each collection of messages that wait in the State. Beyond it the judge's
	// question at the head of the queue counts as failed, and other collections lose their oldest message.
	maxWaiting      = 1000
	maxWaitingBytes = 16 << 20
	// maxTopics is in how many topics a stop or a continue is remembered; beyond it the oldest is forgotten.
	maxTopics = 500
	// maxEditText is the most bytes of the new text of a message; a longer one is cut.
	maxEditText = 100 << 10
)

// oldest is the key of the oldest of more than most entries; of fewer there is none.
func oldest[V any](m map[string]V, most int, age func(V) relay.Millis) (key string, over bool) {
	if len(m) <= most {
		return "", false
	}
	return slices.MinFunc(slices.Collect(maps.Keys(m)), func(a, b string) int {
		return cmp.Or(cmp.Compare(age(m[a]), age(m[b])), cmp.Compare(a, b))
	}), true
}

// New returns the State of a chat of which nothing is known.
func New(cfg Config) *State {
	s := &State{cfg: cfg, online: map[relay.AgentName]bool{}, d: &data{Settings: Changes{},
		Early: map[relay.MessageID][]Verdict{}, Texts: map[relay.MessageID]*text{}, Todo: map[string]*Effect{},
		Turns: map[string]*turn{}, Stops: map[string]*stopped{}, Continued: map[string]goneOn{}}}
	s.load()
	return s
}

// Restore returns the State that records make, which are in the order in which Apply returned them.
func Restore(cfg Config, records []Record) *State {
	s := New(cfg)
	for i := range records {
		s.fold(&records[i])
	}
	return s
}

// Snapshot is one record that makes an equal State. Its State is shared with s: encode it before the next Apply.
func (s *State) Snapshot() Record { return Record{Kind: kindSnapshot, State: s.d} }

// Pending lists the effects that have no result yet, in their order.
func (s *State) Pending() []Effect {
	todo := slices.SortedFunc(maps.Values(s.d.Todo), func(a, b *Effect) int { return cmp.Compare(a.Nr, b.Nr) })
	out := make([]Effect, len(todo))
	for i, e := range todo {
		out[i] = s.filled(*e)
	}
	return append(out, Effect{Do: Review})
}

// load makes what follows from data.
func (s *State) load() {
	d := s.d
	s.memberList = nil
	s.byID, s.gone = map[relay.MessageID]*Line{}, map[relay.MessageID]bool{}
	for _, id := range d.Gone {
		s.gone[id] = true
	}
	for _, l := range d.Lines {
		s.byID[l.ID] = l
	}
}

// Apply changes s by one event. The records, applied again after a restart, make the same State; the effects are run
// once the records are in the book.
func (s *State) Apply(now time.Time, e Event) (records []Record, effects []Effect) {
	s.clock, s.now, s.applying, s.records, s.effects = now, relay.MillisOf(now), true, nil, nil
	switch e := e.(type) {
	case Configure:
		s.cfg = e.Config
	case Online:
		clear(s.online)
		s.away = e.Away
		for _, agent := range e.Agents {
			s.online[agent] = true
		}
	case CaughtUp:
		s.caughtUp = true
	case Membership:
		s.add(Record{Kind: kindIn, In: e.In})
	case Said:
		s.said(&e.Msg)
	case Arrived:
		s.arrived(&e)
	case Heard:
		s.heard(&e)
	case Shared:
		s.shared(&e.Msg)
	case Side:
		s.side(e.Record)
	case Judged:
		s.judged(e)
	case Delivered:
		s.delivered(e)
	case Recalled:
		s.recalled(e.ID)
	case Edited:
		s.edited(e)
	case Changed:
		s.changed(e)
	case LaneLost:
		s.shareAll()
	case Done:
		s.done(e)
	case Claimed:
		s.claimed(e)
	case Tick:
	default:
		panic("group: unknown event")
	}
	if s.isMember() || s.d.In == isOut {
		s.announce()
		s.pump()
	}
	if s.isMember() {
		s.due()
	}
	s.applying = false
	return s.records, s.effects
}

// Next is the time at which s wants a Tick; zero: at none. It is by this sidecar's clock.
func (s *State) Next() time.Time {
	next := relay.Millis(0)
	earlier := func(at relay.Millis) {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if len(s.d.Queue) > 0 && s.d.Queue[0].Asked > 0 {
		earlier(s.d.Queue[0].Asked + s.judgeTime())
	}
	for _, t := range s.d.Turns {
		if s.caughtUp {
			earlier(s.dueAt(t))
		}
	}
	return next.Time()
}

// due does what it is time for.
func (s *State) due() {
	if !s.caughtUp {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(s.d.Turns)) {
		t := s.d.Turns[key]
		if t == nil { // another one ended it
			continue
		}
		if at := s.dueAt(t); at > 0 && at <= s.now {
			s.take(t)
		}
	}
}

func (s *State) isMember() bool { return s.d.In == isIn || s.cfg.AnyChat && s.d.In != isOut }

// add makes a record and takes it in.
func (s *State) add(r Record) {
	r.Local = s.now
	s.records = append(s.records, r)
	s.fold(&r)
}

// share is add for a record of which the other sidecars hear.
func (s *State) share(r Record) {
	r.Agent, r.Share = s.cfg.Agent, true
	r.TS = cmp.Or(r.TS, s.now)
	s.add(r)
}

// carry shares a record, and has its effects here.
func (s *State) carry(r Record) {
	s.share(r)
	s.follow(&r)
}

// side takes in another sidecar's record.
func (s *State) side(r Record) {
	switch r.Kind {
	case KindSet, KindCommand, KindNotice:
	case KindFailed, KindEdit, KindRecall, KindVerdict:
		if r.Agent == s.cfg.Agent || r.Kind == KindVerdict && r.Verdict == nil {
			return // it came back
		}
	default:
		return
	}
	waits := s.d.Turns[oneKey(r.Of)] != nil
	r = *r.shared()
	if r.Verdict != nil {
		v := *r.Verdict
		v.Agent = r.Agent
		r.Verdict = &v
	}
	s.add(r)
	s.follow(&r)
	if waits && s.d.Turns[oneKey(r.Of)] == nil { // another bot answers it
		s.withhold(s.byID[r.Of], relay.NotForMe)
	}
}

// follow has the effects of a shared record at this bot.
func (s *State) follow(r *Record) {
	switch r.Kind {
	case KindSet:
		s.effect(Effect{Do: Review})
	case KindCommand:
		s.over(commandKey(r.Of))
		if r.Act == ActContinue {
			s.release(r)
		}
		s.effect(Effect{Do: Review})
	case KindRecall:
		s.over("recall/" + string(r.Of))
		s.forget(r.Of)
	case KindEdit:
		s.effect(Effect{Do: Retext, ID: r.Of, Text: r.Text})
		s.appendEdit(r)
	}
}

// fold takes in a record. It is all that changes what survives, and depends on the records alone.
func (s *State) fold(r *Record) {
	d := s.d
	switch r.Kind {
	case kindSnapshot:
		s.d = r.State.copy()
		s.load()
	case kindIn:
		if d.In = isOut; r.In {
			d.In, d.Joined = isIn, cmp.Or(d.Joined, r.Local)
		}
	case kindLine:
		s.foldLine(r)
	case kindQueue:
		at := slices.IndexFunc(d.Queue, func(a *arrival) bool { return a.ID == r.Wait.ID })
		if at < 0 {
			d.Queue = append(d.Queue, new(*r.Wait))
			s.keep(r.Wait.ID, r.Msg)
		} else {
			*d.Queue[at] = *r.Wait
		}
	case kindDo:
		s.todo(*r.Effect, r.Msg)
	case kindDone:
		if e := d.Todo[r.Key]; e != nil {
			delete(d.Todo, r.Key)
			s.drop(e.ID)
		}
	case kindDrop:
		if at := slices.Index(d.Held, r.Of); at >= 0 {
			d.Held = slices.Delete(d.Held, at, at+1)
			s.drop(r.Of)
		}
	case kindTurn:
		s.foldTurn(r.Turn, r.Msg)
	case KindSet:
		s.merge(r.Set)
	case KindCommand, KindNotice:
		s.foldShown(r)
	case KindFailed:
		s.foldFailed(r)
	case KindVerdict:
		s.foldVerdict(r)
	case KindRecall:
		s.foldRecall(r.Of)
	case KindEdit:
		if t := d.Texts[r.Of]; t != nil && t.Msg != nil && t.Msg.SenderAgentName == r.Agent {
			t.Msg = withText(t.Msg, r.Text)
		}
	}
	if r.Share {
		s.todo(Effect{Do: Share, Key: "share/" + nr(d.Nr+1), Record: r.shared()}, nil)
	}
}

// shared is r as other sidecars get it.
func (r *Record) shared() *Record {
	out := *r
	out.Local, out.Share, out.Msg, out.Line, out.Do = 0, false, nil, nil, nil
	out.Effect, out.Wait, out.Turn, out.State = nil, nil, nil, nil
	return &out
}

// foldLine takes in a message, and what is to be done with it.
func (s *State) foldLine(r *Record) {
	if r.Line != nil && s.byID[r.Line.ID] == nil {
		l := *r.Line
		l.Recalled = l.Recalled || s.gone[l.ID]
		s.insert(&l)
		for _, v := range s.d.Early[l.ID] {
			l.judge(v)
		}
		delete(s.d.Early, l.ID)
	}
	for _, do := range r.Do {
		s.todo(Effect{Do: do, Key: string(do) + "/" + string(r.Msg.ID()), ID: r.Msg.ID()}, r.Msg)
	}
}

// foldVerdict takes in a verdict, and where a round stopped by it, that.
func (s *State) foldVerdict(r *Record) {
	d, v := s.d, *r.Verdict
	d.Queue = slices.DeleteFunc(d.Queue, func(a *arrival) bool {
		mine := a.ID == r.Of && v.Agent == s.cfg.Agent
		if mine {
			s.drop(a.ID)
		}
		return mine
	})
	if l := s.byID[r.Of]; l != nil {
		l.judge(v)
	} else if v.Agent != s.cfg.Agent { // else it is an edit's
		if len(d.Early) >= maxEarly {
			clear(d.Early)
		}
		if len(d.Early[r.Of]) < maxVerdicts {
			d.Early[r.Of] = append(d.Early[r.Of], v)
		}
	}
	if v.delivered() || v.Agent == s.cfg.Agent && v.Stopped != "" {
		s.foldTurn(&turn{Key: oneKey(r.Of), Over: true}, nil)
	}
	if releasable(v.Stopped) && r.Msg != nil {
		s.hold(r.Of, r.Msg)
	}
	if releasable(v.Stopped) {
		s.foldStop(r)
	}
}

// foldRecall forgets a text.
func (s *State) foldRecall(id relay.MessageID) {
	d := s.d
	if !s.gone[id] {
		s.gone[id] = true
		if d.Gone = append(d.Gone, id); len(d.Gone) > maxGone {
			delete(s.gone, d.Gone[0])
			d.Gone = d.Gone[1:]
		}
	}
	if l := s.byID[id]; l != nil {
		l.Recalled = true
	}
	if t := d.Texts[id]; t != nil && t.Msg != nil {
		t.Msg = blank(t.Msg)
	}
	for i := range d.Shown {
		d.Shown[i].forget(id)
	}
	for _, e := range d.Todo {
		if e.Record != nil {
			e.Record.forget(id)
		}
		if e.ID == id {
			e.Text = ""
		}
	}
	for _, t := range d.Turns {
		if t.Of == id {
			t.Text = ""
		}
	}
}

// forget takes the text away if it is of a message.
func (r *Record) forget(id relay.MessageID) {
	if r.Of == id || r.Message == id {
		r.Text, r.Answer = "", ""
	}
}

// seen reports whether a command or a notice is known.
func (s *State) seen(id string) bool {
	return slices.ContainsFunc(s.d.Shown, func(r Record) bool { return r.ID == id })
}

// foldShown takes in a command or a notice, once.
func (s *State) foldShown(r *Record) {
	d := s.d
	if len(r.Set) > 0 {
		s.merge(r.Set)
	}
	if r.Kind == KindCommand && r.Act == ActContinue && r.TS >= d.Continued[r.Thread].At {
		d.Continued[r.Thread] = goneOn{r.TS, r.Bots}
		if key, over := oldest(d.Continued, maxTopics, func(c goneOn) relay.Millis { return c.At }); over {
			delete(d.Continued, key)
		}
	}
	if s.seen(r.ID) {
		return
	}
	shown := *r.shared()
	if s.gone[r.Of] {
		shown.forget(r.Of)
	}
	shown.Text, shown.Answer, shown.Set = runes.Cut(shown.Text, maxShownText), "", nil
	d.Shown = append(d.Shown, shown)
	d.Shown = d.Shown[max(0, len(d.Shown)-maxShown):]
	if r.Kind == KindNotice {
		s.foldNotice(r)
	} else if r.Answer != "" {
		s.foldTurn(&turn{Key: "answer/" + string(r.Of), Kind: turnAnswer, Of: r.Of, Text: runes.Cut(r.Answer, maxShownText),
			Thread: r.Thread, Since: r.Local, Born: r.Local}, nil)
	}
}

// todo begins an effect. One without a key has no result, and is not repeated.
func (s *State) todo(e Effect, m *relay.Message) {
	if s.d.Todo[e.Key] != nil {
		return
	}
	s.d.Nr++
	e.Nr = s.d.Nr
	s.d.Todo[e.Key] = &e
	s.keep(e.ID, m)
	s.effect(e)
}

// effect issues an effect.
func (s *State) effect(e Effect) {
	if s.applying {
		s.effects = append(s.effects, s.filled(e))
	}
}

// filled is an effect with its message.
func (s *State) filled(e Effect) Effect {
	if t := s.d.Texts[e.ID]; t != nil && t.Msg != nil {
		e.Msg = t.Msg
		e.Mentioned = (e.Do == Deliver || e.Do == Ask) && s.mentioned(t.Msg)
	}
	return e
}

// do is an effect with a result, for which the book has a record.
func (s *State) do(e Effect, m *relay.Message) { s.add(Record{Kind: kindDo, Effect: &e, Msg: m}) }

// keep keeps the text of a message until drop. A nil m keeps the one that is there, if there is one.
func (s *State) keep(id relay.MessageID, m *relay.Message) {
	if id == "" {
		return
	}
	t := s.d.Texts[id]
	if t == nil {
		t = &text{}
		s.d.Texts[id] = t
	}
	if t.Msg == nil && m != nil && s.gone[id] {
		m = blank(m)
	}
	t.Msg = cmp.Or(t.Msg, m)
	t.Refs++
}

func (s *State) drop(id relay.MessageID) {
	if t := s.d.Texts[id]; t != nil {
		if t.Refs--; t.Refs == 0 {
			delete(s.d.Texts, id)
		}
	}
}

// done takes in the result of an effect.
func (s *State) done(e Done) {
	todo := s.d.Todo[e.Key]
	if todo == nil {
		return
	}
	done := *todo
	s.add(Record{Kind: kindDone, Key: e.Key})
	switch done.Do {
	case Give:
		s.gave(done.ID, !e.Failed)
	case React, Reply:
		s.didShow(&done, e)
	}
}

// shareAll shares the settings again.
func (s *State) shareAll() {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(s.d.Settings)), 100) { // fits into a line
		part := Changes{}
		for _, key := range keys {
			part[key] = s.d.Settings[key]
		}
		s.share(Record{Kind: KindSet, Set: part})
	}
}

// copy is a copy that shares nothing with d.
func (d *data) copy() *data {
	out := &data{}
	if err := json.Unmarshal(encode(d), out); err != nil {
		panic(err) // it is JSON by its types
	}
	return out
}
