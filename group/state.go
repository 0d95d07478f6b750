package group

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// State is what one sidecar knows of one chat: [New], or a snapshot read with encoding/json. It is not safe for
// concurrent use.
type State struct {
	d *data // what survives: the JSON of the State

	// The rest follows from d, or is of the event that is applied.
	now        relay.Millis
	clock      time.Time // now, in the zone of the readers
	changed    bool
	effects    []Effect
	byID       map[relay.MessageID]*Line
	memberList []Peer // nil: not computed
}

type data struct {
	Config   Config                   `json:"config"`
	Online   map[relay.AgentName]bool `json:"online"`
	Away     bool                     `json:"away,omitempty"` // this bot is not connected
	CaughtUp bool                     `json:"caught_up,omitempty"`
	In       EventKind                `json:"in,omitempty"`        // Joined, Left or "": not known
	InAt     relay.Millis             `json:"in_at,omitempty"`     // of when In is
	Answered relay.Millis             `json:"answered,omitempty"`  // when In became Left by an answer; 0: it did not
	JoinedAt relay.Millis             `json:"joined_at,omitempty"` // when the bot was first known to be in the group

	Lines    []*Line                       `json:"lines,omitempty"` // by time
	Nr       uint64                        `json:"nr,omitempty"`    // of the newest line or effect
	Settings Changes                       `json:"settings"`
	Early    map[relay.MessageID][]Verdict `json:"early"` // of messages that have not come
	Gone     map[relay.MessageID]uint64    `json:"gone"`  // recalled, whether or not they have come; in this order
	Shown    []Record                      `json:"shown"` // commands and notices, each once, as viewers see them

	Todo      map[string]*Effect  `json:"todo"`            // effects without a result, by key
	Queue     []*arrival          `json:"queue,omitempty"` // messages that wait for a stage
	Held      []*arrival          `json:"held,omitempty"`  // what stopped at this bot and can be released
	Turns     map[string]*turn    `json:"turns"`
	Stops     map[string]*stopped `json:"stops"`     // the last round that stopped, by topic
	Continued map[string]goneOn   `json:"continued"` // the newest continue, by topic
	Budgeted  relay.Millis        `json:"budgeted,omitempty"`
}

const (
	// maxGone is how many recalled messages are remembered; beyond it the one first recalled is forgotten.
	maxGone = 10_000
	// maxShown is how many commands and notices are known, each of at most maxShownText bytes: 2 MiB in all. The oldest
	// are forgotten, and would be answered again.
	maxShown     = 500
	maxShownText = 4 << 10
	// maxWaiting and maxWaitingBytes bound each collection of messages that wait in the State. Beyond it what the first
	// one in the queue waits for counts as failed: the judge, the answer about the membership, or the relay's copy. Other
	// collections lose their oldest message.
	maxWaiting      = 1000
	maxWaitingBytes = 16 << 20
	// maxTopics is in how many topics a stop or a continue is remembered; beyond it the oldest is forgotten.
	maxTopics = 500
)

// prune takes the oldest of more than most entries away.
func prune[K ~string, V any, A cmp.Ordered](m map[K]V, most int, age func(V) A) {
	if len(m) > most {
		delete(m, slices.MinFunc(slices.Collect(maps.Keys(m)), func(a, b K) int {
			return cmp.Or(cmp.Compare(age(m[a]), age(m[b])), cmp.Compare(a, b))
		}))
	}
}

// New returns the State of a chat of which nothing is known. Its first event is a [Start].
func New() *State {
	s := &State{}
	if err := s.UnmarshalJSON([]byte(`{}`)); err != nil {
		panic(err)
	}
	return s
}

// MarshalJSON returns a snapshot of s.
func (s *State) MarshalJSON() ([]byte, error) { return relay.Marshal(s.d) }

// UnmarshalJSON makes s what the snapshot was made of.
func (s *State) UnmarshalJSON(snapshot []byte) error {
	d := &data{Online: map[relay.AgentName]bool{}, Settings: Changes{}, Early: map[relay.MessageID][]Verdict{},
		Gone: map[relay.MessageID]uint64{}, Todo: map[string]*Effect{}, Turns: map[string]*turn{},
		Stops: map[string]*stopped{}, Continued: map[string]goneOn{}}
	if err := json.Unmarshal(snapshot, d); err != nil {
		return err
	}
	*s = State{d: d, byID: map[relay.MessageID]*Line{}}
	for _, l := range d.Lines {
		s.byID[l.ID] = l
	}
	return nil
}

// Apply changes s by one event, and returns what is to be done once the event is in the book. An event that has not
// changed s need not be there. Equal events make equal States.
func (s *State) Apply(e Event) (effects []Effect, changed bool) {
	s.clock, s.now, s.effects, s.changed = e.At, relay.MillisOf(e.At), nil, e.Kind != Tick || len(e.Did) > 0
	for _, key := range e.Did {
		delete(s.d.Todo, key)
	}
	switch e.Kind {
	case Start:
		s.start(e.Config)
	case Configure:
		s.changed = !bytes.Equal(encode(s.d.Config), encode(e.Config))
		s.d.Config = *e.Config
	case Online:
		online := map[relay.AgentName]bool{}
		for _, agent := range e.Agents {
			online[agent] = true
		}
		s.changed = s.d.Away != e.Away || !maps.Equal(s.d.Online, online)
		s.d.Online, s.d.Away = online, e.Away
	case CaughtUp:
		s.d.CaughtUp = true
	case Joined, Left:
		s.changed = s.setIn(e.Kind, cmp.Or(e.TS, s.now)) // Feishu says when
	case Said:
		s.said(&e)
	case Arrived:
		s.arrived(&e)
	case Heard:
		s.heard(&e)
	case Shared:
		s.shared(&e)
	case Native:
		s.native(&e)
	case Side:
		for _, r := range e.Records {
			s.fold(r)
		}
	case Delivered:
		s.delivered(e.ID, *e.Verdict)
	case Recalled:
		if s.changed = !s.Gone(e.ID); s.changed {
			s.share(Record{Kind: KindRecall, Of: e.ID})
		}
	case Changed:
		s.requested(&e)
	case LaneLost:
		s.shareAll()
	case Done:
		s.done(&e)
	case Tick:
	default:
		panic("group: unknown event " + e.Kind)
	}
	s.announce()
	s.pump()
	if s.active() {
		s.due()
	}
	return s.effects, s.changed
}

// start begins what has no result yet once more, in its order.
func (s *State) start(cfg *Config) {
	s.d.Config, s.d.CaughtUp, s.d.Away = *cfg, false, false
	clear(s.d.Online)
	byNr := func(a, b *Effect) int { return cmp.Compare(a.Nr, b.Nr) }
	for _, e := range slices.SortedFunc(maps.Values(s.d.Todo), byNr) {
		s.effect(*e)
	}
	s.effect(Effect{Do: Review})
}

// Next is the time at which s wants a [Tick]; zero: at none. It is by this sidecar's clock.
func (s *State) Next() time.Time {
	next := relay.Millis(0)
	earlier := func(at relay.Millis) {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	for _, a := range s.d.Queue {
		if a.Asked > 0 {
			earlier(a.Asked + s.judgeTime())
		}
		if s.d.CaughtUp {
			earlier(a.Until)
		}
	}
	for _, t := range s.d.Turns {
		if s.active() {
			earlier(s.dueAt(t))
		}
	}
	return next.Time()
}

// due does what it is time for.
func (s *State) due() {
	for _, key := range slices.Sorted(maps.Keys(s.d.Turns)) {
		if t := s.d.Turns[key]; t != nil { // else another one ended it
			if at := s.dueAt(t); at > 0 && at <= s.now {
				s.changed = true
				s.take(t)
			}
		}
	}
}

// setIn takes in whether the bot was in the chat at a time. The newest counts.
func (s *State) setIn(in EventKind, at relay.Millis) (changed bool) {
	d := s.d
	if changed = d.In == "" || at > d.InAt || at == d.InAt && d.In != in; changed {
		d.In, d.InAt, d.Answered = in, at, 0
		if in == Joined {
			d.JoinedAt = cmp.Or(d.JoinedAt, s.now)
		}
	}
	return changed
}

// unsure reports whether it is not known whether the bot is in the chat, or was asked too long ago.
func (s *State) unsure() bool {
	d := s.d
	return d.In == "" && !d.Config.AnyChat || d.Answered > 0 && s.now-d.Answered > answerTime
}

// answerTime is how long an answer that the bot is not in the chat counts.
const answerTime = 10 * minute

// askIn asks whether the bot is in the chat.
func (s *State) askIn() {
	if d := s.d; d.Config.AsksMembership && d.Todo["member"] == nil {
		d.In, d.InAt, d.Answered = "", s.now, 0
		s.do(Effect{Do: Member, Key: "member"})
	}
}

func (s *State) isMember() bool { return s.d.In == Joined || s.d.Config.AnyChat && s.d.In != Left }

// active reports whether this sidecar takes part in what only one of them does.
func (s *State) active() bool { return s.isMember() && s.d.CaughtUp }

// effect issues an effect that has no result.
func (s *State) effect(e Effect) { s.effects = append(s.effects, e) }

// do issues an effect that has a result.
func (s *State) do(e Effect) {
	if s.d.Todo[e.Key] != nil {
		return
	}
	s.d.Nr++
	e.Nr = s.d.Nr
	s.d.Todo[e.Key] = &e
	s.changed = true
	s.effect(e)
}

// Did takes in that an effect was done, and reports whether nothing follows from that: then no event need say so but
// the next one, in its Did.
func (s *State) Did(key string) bool {
	e := s.d.Todo[key]
	if e == nil || !slices.Contains([]Do{Append, Publish, Share, Redact}, e.Do) {
		return false
	}
	delete(s.d.Todo, key)
	return true
}

// done takes in the result of an effect.
func (s *State) done(e *Event) {
	todo := s.d.Todo[e.Key]
	if s.changed = todo != nil; !s.changed {
		return
	}
	delete(s.d.Todo, e.Key)
	for _, id := range e.Shows {
		if l := s.byID[id]; l != nil {
			l.ShownWith = todo.ID
		}
	}
	switch todo.Do {
	case Member:
		switch {
		case s.d.In != "": // an event has said so meanwhile
		case e.Failed:
			s.d.In, s.d.Answered = Left, s.now
		default:
			s.setIn(Joined, s.d.InAt)
		}
	case Fetch:
		s.arrived(&Event{Msg: cmp.Or(e.Msg, todo.Msg), Names: e.Names, Reason: e.Reason})
	case Ask:
		for _, a := range s.d.Queue {
			if a.ID == todo.ID {
				a.Judged = e.Decision
			}
		}
	case Claim:
		s.claimed(e)
	case Give, React, Reply:
		s.performed(todo, e)
	}
	s.changed = true
}

// share takes in a record, and has the other sidecars know it.
func (s *State) share(r Record) {
	r.Agent = s.d.Config.Agent
	r.TS = cmp.Or(r.TS, s.now)
	s.do(Effect{Do: Share, Key: "share/" + nr(s.d.Nr+1), Record: &r})
	s.fold(&r)
}

// isFirst reports whether this sidecar is the first of those online, beside another one.
func (s *State) isFirst(beside relay.AgentName) bool {
	for _, m := range s.members() {
		if m.Agent == s.d.Config.Agent {
			return m.Agent != beside
		}
		if m.Agent != beside && s.d.Online[m.Agent] {
			return false
		}
	}
	return false
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

// fold takes in a record.
func (s *State) fold(r *Record) {
	switch {
	case r.Kind == KindSet:
		_, joins := r.Set[keyIn+string(r.Agent)]
		joins = joins && !s.member(r.Agent)
		s.merge(r.Set)
		if joins && s.member(r.Agent) && s.isFirst(r.Agent) {
			s.shareAll() // the lane may no longer have all
		}
		s.effect(Effect{Do: Review})
	case r.Kind == KindCommand, r.Kind == KindNotice:
		s.foldShown(r)
	case r.Kind == KindVerdict && r.Verdict != nil:
		v := *r.Verdict
		v.Agent, v.At, v.Detail = r.Agent, s.believed(v.At), runes.Cut(v.Detail, maxDetail)
		s.foldVerdict(r, v)
	case r.Kind == KindRecall && !s.Gone(r.Of):
		s.foldRecall(r.Of)
	}
}

// foldVerdict takes in a verdict, and where a round stopped by it, that.
func (s *State) foldVerdict(r *Record, v Verdict) {
	d, mine := s.d, v.Agent == s.d.Config.Agent
	s.effect(Effect{Do: Tell, Record: &Record{Kind: r.Kind, Of: r.Of, Thread: r.Thread, Sender: r.Sender, Verdict: &v}})
	if l := s.byID[r.Of]; l != nil {
		l.judge(v)
	} else if !mine || v.Stopped == relay.BadSignature { // else it is an edit's
		if len(d.Early) >= maxEarly {
			clear(d.Early)
		}
		if len(d.Early[r.Of]) < maxVerdicts {
			d.Early[r.Of] = append(d.Early[r.Of], v)
		}
	}
	if d.Turns[oneKey(r.Of)] != nil && (v.delivered() || mine && v.Stopped != "") {
		delete(d.Turns, oneKey(r.Of))
		if !mine { // another bot answers it
			s.withhold(s.byID[r.Of], relay.NotForMe)
		}
	}
	if releasable(v.Stopped) {
		s.foldStop(r)
	}
}

// foldRecall forgets a text, also of a message that has not come.
func (s *State) foldRecall(id relay.MessageID) {
	d := s.d
	d.Nr++
	d.Gone[id] = d.Nr
	prune(d.Gone, maxGone, func(nr uint64) uint64 { return nr })
	if l := s.byID[id]; l != nil {
		l.Recalled = true
	}
	s.texts(id, func(m *relay.Message) *relay.Message { return blank(m) })
	for i := range d.Shown {
		d.Shown[i] = d.Shown[i].without(id)
	}
	for _, e := range d.Todo {
		if e.Record != nil {
			e.Record = new(e.Record.without(id))
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
	s.do(Effect{Do: Redact, Key: "redact/" + string(id), ID: id})
	d.Held = slices.DeleteFunc(d.Held, func(a *arrival) bool { return a.ID == id })
	if d.Turns[oneKey(id)] != nil {
		s.withhold(s.byID[id], relay.Recalled)
	}
	delete(d.Turns, commandKey(id))
	s.effect(Effect{Do: Review})
}

// texts changes a message, and what replaces its text, wherever it waits.
func (s *State) texts(id relay.MessageID, change func(*relay.Message) *relay.Message) {
	replace := func(m **relay.Message) {
		if *m != nil && ((*m).ID() == id || EditOf(*m) == id) {
			*m = change(*m)
		}
	}
	for _, a := range slices.Concat(s.d.Queue, s.d.Held) {
		replace(&a.Msg)
	}
	for _, e := range s.d.Todo {
		replace(&e.Msg)
	}
	for _, t := range s.d.Turns {
		replace(&t.Msg)
	}
}

// without is r without a text that is of a message.
func (r Record) without(id relay.MessageID) Record {
	if r.Of == id || r.Message == id {
		r.Text, r.Answer = "", ""
	}
	return r
}

// seen reports whether a command or a notice is known.
func (s *State) seen(id string) bool {
	return slices.ContainsFunc(s.d.Shown, func(r Record) bool { return r.ID == id })
}

// foldShown takes in a command or a notice, once.
func (s *State) foldShown(r *Record) {
	d := s.d
	s.merge(r.Set)
	if r.Kind == KindCommand {
		delete(d.Turns, commandKey(r.Of))
		if r.Act == ActContinue {
			s.release(r)
		}
		s.effect(Effect{Do: Review})
	} else {
		s.foldNotice(r)
	}
	if s.seen(r.ID) {
		return
	}
	shown := *r
	if s.Gone(r.Of) {
		shown = r.without(r.Of)
	}
	shown.TS = s.believed(shown.TS)
	answer := runes.Cut(shown.Answer, maxShownText)
	shown.Text, shown.Answer = runes.Cut(shown.Text, maxShownText), ""
	if len(shown.Set) > len(settingKeys) {
		shown.Set = nil
	}
	s.effect(Effect{Do: Tell, Record: new(shown)})
	d.Shown = append(d.Shown, shown)
	d.Shown = d.Shown[max(0, len(d.Shown)-maxShown):]
	if answer != "" {
		s.begin(turn{Key: "answer/" + string(r.Of), Kind: turnAnswer, Of: r.Of, Text: answer, Thread: r.Thread,
			First: r.Agent})
	}
}
