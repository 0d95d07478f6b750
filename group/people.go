package group

import (
	"cmp"
	"slices"
	"strconv"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// said records and publishes what this bot has sent.
func (s *State) said(e *relay.Message) {
	m := bounded(e)
	m.SenderAgentName = s.cfg.Agent
	of := editOf(m)
	switch {
	case s.isGone(m.ID()), s.isGone(of):
		s.effect(Effect{Do: Stop, ID: m.ID(), Reason: relay.Recalled})
		return
	case s.byID[m.ID()] != nil:
		s.effect(Effect{Do: Stop, ID: m.ID(), Reason: relay.Duplicate})
		return
	}
	if m.TS <= 0 { // never before what the bot may answer, whatever the clocks of the others
		m.TS = s.now
		if n := len(s.d.Lines); n > 0 {
			m.TS = max(m.TS, min(s.d.Lines[n-1].TS+1, s.believed(s.d.Lines[n-1].TS+1)))
		}
	}
	r := Record{Kind: kindLine, Msg: m, Do: []Do{Append, Publish}}
	if of == "" {
		ts := s.believed(m.TS)
		m.UserTS = s.spoke(m.ThreadID, ts)
		l := s.lineOf(m, ts)
		l.Depth, l.Round = s.depth(&l)
		r.Line = &l
	} else {
		s.effect(Effect{Do: Retext, ID: of, Text: m.Content})
	}
	s.add(r)
}

// heard decides about a person's message that this bot received.
func (s *State) heard(e *Heard) {
	m := bounded(&e.Msg)
	m.Role = relay.RoleUser
	id := m.ID()
	l := s.lineOf(m, s.believed(m.TS))
	if known := s.byID[id]; known != nil {
		l = *known
		if v := known.of(s.cfg.Agent); v != nil { // it was decided
			again := Effect{Do: Give, ID: id, Msg: m}
			if v.Stopped != relay.Pass {
				again = Effect{Do: Withhold, ID: id, Reason: v.Stopped}
			}
			s.effect(again)
			return
		}
	}
	if s.isGone(id) {
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Recalled})
		return
	}
	if e.User && s.command(m, e.MayEdit) {
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Command})
		return
	}
	bots, goOn := s.continueWord(m)
	goOn = goOn && e.User
	if s.byID[id] == nil {
		s.add(Record{Kind: kindLine, Line: &l, Msg: m, Do: []Do{Append}})
		if s.cfg.ShareMessages {
			s.plan(later{Key: "publish/" + string(id), ID: id, Do: Publish}, m)
		}
	}
	set, _ := s.settings()
	switch a := s.audience(&l, &set); {
	case goOn:
		s.plan(later{Key: "command/" + string(id), ID: id, Bots: bots, Word: true}, m)
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Continue})
	case set.Muted[s.cfg.Agent].Holds(s.now):
		s.withhold(&l, relay.Muted)
	case len(a.oneOf) > 0:
		bots := slices.DeleteFunc(a.oneOf, func(b relay.AgentName) bool { return set.Muted[b].Holds(s.now) })
		if known := s.byID[id]; known != nil && slices.ContainsFunc(known.Verdicts, func(v Verdict) bool { return v.delivered() }) {
			s.withhold(&l, relay.NotForMe) // another bot has it
		} else if s.d.Ones[id] == nil {
			s.add(Record{Kind: kindOne, Msg: m, One: &oneOf{ID: id, Bots: bots, Born: s.now, Since: s.now}})
		}
	case !s.isFor(a):
		s.withhold(&l, relay.NotForMe)
	default:
		s.do(Effect{Do: Give, Key: "give/" + string(id), ID: id}, m)
	}
}

// withhold keeps a person's message from this bot.
func (s *State) withhold(l *Line, why relay.Reason) {
	if l == nil {
		return
	}
	s.effect(Effect{Do: Withhold, ID: l.ID, Reason: why})
	s.share(Record{Kind: KindVerdict, Of: l.ID, Thread: l.Thread,
		Verdict: &Verdict{Agent: s.cfg.Agent, At: s.now, Stopped: why}})
}

// gave takes in whether the bot has a person's message. One of several bots that could not be given it leaves it to
// the next.
func (s *State) gave(id relay.MessageID, given bool) {
	switch o := s.d.Ones[id]; {
	case given:
		s.delivered(Delivered{ID: id})
	case o != nil:
		next := *o
		next.Failed = true
		s.add(Record{Kind: kindOne, One: &next})
	default:
		s.delivered(Delivered{ID: id, Stopped: relay.Undeliverable})
	}
}

// shared records a person's message that another sidecar heard.
func (s *State) shared(e *relay.Message) {
	m := bounded(e)
	id := m.ID()
	s.never("publish/" + string(id))
	why := relay.Pass
	switch {
	case m.Role != relay.RoleUser:
		why = relay.Malformed
	case !s.isMember():
		why = relay.NotAMember
	case s.byID[id] != nil:
		why = relay.Duplicate
	}
	if why != relay.Pass {
		s.effect(Effect{Do: Stop, ID: id, Reason: why})
		return
	}
	l := s.lineOf(m, s.believed(m.TS))
	s.add(Record{Kind: kindLine, Line: &l, Msg: m, Do: []Do{Append}})
}

// recalled takes in that a message was recalled, which several sidecars may hear.
func (s *State) recalled(id relay.MessageID) {
	if s.isGone(id) {
		return
	}
	s.add(Record{Kind: KindRecall, Of: id})
	s.forget(id)
	s.plan(later{Key: "recall/" + string(id), Of: id}, nil)
}

// forget takes the text of a recalled message away.
func (s *State) forget(id relay.MessageID) {
	s.do(Effect{Do: Redact, Key: "redact/" + string(id), ID: id}, nil)
	if s.d.Held[id] != nil {
		s.add(Record{Kind: kindDrop, Of: id})
	}
	if s.d.Ones[id] != nil {
		s.withhold(s.byID[id], relay.Recalled)
	}
	s.never("command/" + string(id))
	s.effect(Effect{Do: Review})
}

// edited shares the new text of a message of this bot.
func (s *State) edited(e Edited) {
	l := s.byID[e.ID]
	if l == nil || l.Bot != s.cfg.Agent || l.Recalled {
		return
	}
	r := Record{Kind: KindEdit, ID: "edit/" + string(e.ID) + "/" + nr(s.d.Nr), Of: e.ID, Thread: l.Thread,
		Agent: s.cfg.Agent, Text: runes.Cut(e.Text, maxEditText), Said: l.TS}
	s.share(r)
	s.follow(&r)
}

// appendEdit records the new text of a message. All sidecars give it the same id.
func (s *State) appendEdit(r *Record) {
	if s.isGone(r.Of) {
		return
	}
	id := relay.MessageID(r.ID)
	m := &relay.Message{RelayMsgID: id, MessageID: id, SenderAgentName: r.Agent, ThreadID: r.Thread, Content: r.Text,
		MsgType: "text", TS: r.Said, Role: relay.RoleAssistant, Metadata: relay.Metadata{metaEditOf: encode(r.Of)}}
	s.do(Effect{Do: Append, Key: "append/" + r.ID, ID: id}, m)
}

// bounded is a copy of a message from outside, without what is not for us.
func bounded(m *relay.Message) *relay.Message {
	out := *m
	out.SenderName = runes.Cut(out.SenderName, relay.MaxName)
	out.Mentions = out.Mentions[:min(len(out.Mentions), relay.MaxMentions)]
	return &out
}

// blank is a message without what it says.
func blank(m *relay.Message) *relay.Message {
	out := *m
	out.Content, out.Mentions, out.Metadata = "", nil, relay.Metadata{"chat_type": encode("group")}
	if of := editOf(m); of != "" {
		out.Metadata[metaEditOf] = encode(of)
	}
	return &out
}

func withText(m *relay.Message, text string) *relay.Message {
	out := *m
	out.Content = text
	return &out
}

func nr(n uint64) string { return strconv.FormatUint(n, 10) }

// later is something that several sidecars would do. The first does it at once; the others do it a while later, if it
// was not done.
type later struct {
	Key  string            `json:"key"`
	ID   relay.MessageID   `json:"id,omitempty"` // whose text is needed
	Of   relay.MessageID   `json:"of,omitempty"` // of a recall
	Do   Do                `json:"do,omitempty"` // Publish
	Due  relay.Millis      `json:"due"`
	Bots []relay.AgentName `json:"bots,omitempty"`
	Word bool              `json:"word,omitempty"` // a person's word that lets bots go on
	// MayEdit: as far as this sidecar knows, the person may change settings.
	MayEdit bool `json:"may_edit,omitempty"`
}

const (
	// laterTurn is how long the others wait for the first.
	laterTurn = relay.Millis(1000)
	// refuseTurn is how long a sidecar that would refuse a command leaves it to the others, which may know better.
	refuseTurn = relay.Millis(2000)
	// joinTurn is how long, in a new group, the sidecars have to say that they are there.
	joinTurn = relay.Millis(500)
)

// plan does l in this sidecar's turn. Beyond maxWaiting it is done at once.
func (s *State) plan(l later, m *relay.Message) {
	if s.d.Later[l.Key] != nil {
		return
	}
	l.Due = max(l.Due, s.now)
	if s.rank(nil) > 0 && len(s.d.Later) < maxWaiting {
		l.Due = max(l.Due, s.now+laterTurn)
	}
	s.add(Record{Kind: kindLater, Later: &l, Msg: m})
}

// never drops what another sidecar has done.
func (s *State) never(key string) {
	if s.d.Later[key] != nil {
		s.add(Record{Kind: kindNever, Key: key})
	}
}

func (s *State) doLater(l *later) {
	switch {
	case l.Do == Publish:
		s.do(Effect{Do: Publish, Key: "publish/" + string(l.ID), ID: l.ID}, nil)
	case l.Of != "":
		s.share(Record{Kind: KindRecall, Of: l.Of})
	default:
		s.execute(l)
	}
	s.never(l.Key)
}

// rank is this sidecar's place among those of the group that are online, 0 for the first. Only those that can count,
// if that is not nil.
func (s *State) rank(can func(Member) bool) (rank int) {
	for _, m := range s.members() {
		if m.Agent < s.cfg.Agent && s.online[m.Agent] && (can == nil || can(m)) {
			rank++
		}
	}
	return rank
}

// oneOf is a person's message that is for exactly one of several bots.
type oneOf struct {
	ID     relay.MessageID   `json:"id"`
	Bots   []relay.AgentName `json:"bots"`         // in the order of their turns
	Born   relay.Millis      `json:"born"`         // when it came
	Since  relay.Millis      `json:"since"`        // when the turns began
	Try    int               `json:"try"`          // how many sidecars have claimed it and not delivered it
	At     relay.Millis      `json:"at,omitempty"` // when it was claimed; 0: it is not
	Failed bool              `json:"failed,omitempty"`
}

const (
	oneTurn  = relay.Millis(1000) // how long each bot's sidecar has to claim
	oneLease = relay.Millis(4000) // how long it has to deliver
	oneGrace = relay.Millis(1000) // how much longer the others wait
)

func (s *State) foldOne(o *oneOf, m *relay.Message) {
	if s.d.Ones[o.ID] == nil {
		s.keep(o.ID, m)
	}
	s.d.Ones[o.ID] = new(*o)
}

func (o *oneOf) claim() string { return "one/" + string(o.ID) + "#" + strconv.Itoa(o.Try) }

// oneDue is when it is this sidecar's turn; 0: another event comes first.
func (s *State) oneDue(o *oneOf) relay.Millis {
	switch {
	case s.d.Todo[o.claim()] != nil:
		return 0
	case o.At > 0:
		return o.At + oneLease + oneGrace
	}
	turn := 0
	for _, bot := range o.Bots[:max(0, slices.Index(o.Bots, s.cfg.Agent))] {
		if s.online[bot] {
			turn++
		}
	}
	if s.away || o.Failed {
		turn += len(o.Bots)
	}
	return o.Since + relay.Millis(min(turn, 8))*oneTurn
}

// turnOfOne claims a person's message in this sidecar's turn.
func (s *State) turnOfOne(o *oneOf) {
	due := s.oneDue(o)
	switch {
	case due == 0 || due > s.now:
	case !slices.Contains(o.Bots, s.cfg.Agent):
		s.withhold(s.byID[o.ID], relay.NotForMe)
	case s.now-o.Born > relay.Millis(s.cfg.MaxAge.Milliseconds()):
		s.withhold(s.byID[o.ID], relay.Expired)
	case o.At > 0: // who claimed it has not delivered it
		next := *o
		next.Try, next.At, next.Since = o.Try+1, 0, s.now
		s.add(Record{Kind: kindOne, One: &next})
		s.turnOfOne(s.d.Ones[o.ID])
	default:
		s.do(Effect{Do: Claim, Key: o.claim(), ID: o.ID}, nil)
	}
}

// claimedOne takes in who has claimed a person's message.
func (s *State) claimedOne(o *oneOf, mine bool) {
	next := *o
	next.At = s.now
	s.add(Record{Kind: kindOne, One: &next})
	if mine {
		s.do(Effect{Do: Give, Key: "give/" + string(o.ID) + "#" + strconv.Itoa(o.Try), ID: o.ID, Until: s.now + oneLease}, nil)
	}
}

// claimed takes in who holds a claim.
func (s *State) claimed(e Claimed) {
	todo := s.d.Todo[e.Key]
	if todo == nil || todo.Do != Claim {
		return
	}
	id := todo.ID
	s.done(Done{Key: e.Key})
	if o := s.d.Ones[id]; o != nil && o.claim() == e.Key {
		s.claimedOne(o, e.Mine)
	}
	for _, w := range s.d.Shows {
		if w.claim() == e.Key {
			s.claimedShow(w, cmp.Or(e.Holder, s.cfg.Agent))
			return
		}
	}
}
