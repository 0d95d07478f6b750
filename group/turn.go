package group

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// turn is something that one sidecar does, of all that know of it by the same events and records. The first in its
// order does it at once, each of the others a second later than the one before, unless it hears that it was done. For
// what must not happen twice a claim decides between two that act at once.
type turn struct {
	Key     string            `json:"key"` // names it, at all sidecars alike
	Kind    turnKind          `json:"kind"`
	Of      relay.MessageID   `json:"of"`    // the message that it is about
	Since   relay.Millis      `json:"since"` // when the turns began, by this sidecar's clock
	Born    relay.Millis      `json:"born"`
	Try     int               `json:"try,omitempty"`      // how many sidecars have claimed it and failed
	Taken   relay.Millis      `json:"taken,omitempty"`    // when a sidecar claimed it; 0: none has
	Failed  bool              `json:"failed,omitempty"`   // this sidecar did
	Over    bool              `json:"over,omitempty"`     // nobody has to do it any more
	Bots    []relay.AgentName `json:"bots,omitempty"`     // of one, in their order; of a word: those that may go on
	Word    bool              `json:"word,omitempty"`     // of a command: a person's word that lets bots go on
	MayEdit bool              `json:"may_edit,omitempty"` // of a command: the person may change settings
	Text    string            `json:"text,omitempty"`     // of an answer
	Thread  string            `json:"thread,omitempty"`   // of a stop
	Round   relay.Millis      `json:"round,omitempty"`
	Said    relay.Millis      `json:"said,omitempty"`
}

type turnKind string

const (
	turnPublish turnKind = "publish" // a person's message for the other sidecars
	turnRecall  turnKind = "recall"  // tell them of a recall
	turnCommand turnKind = "command" // carry out a command
	turnOne     turnKind = "one"     // give the bot a person's message that is for exactly one. Claimed
	turnAnswer  turnKind = "answer"  // show the group the answer to a command. Claimed
	turnStop    turnKind = "stop"    // show the group that bots stopped. Claimed
)

const (
	// turnTime is how long each sidecar has to begin.
	turnTime = relay.Millis(1000)
	// maxTurn is the last place in an order; those behind it begin together.
	maxTurn = 8
	// refuseTime is how long a sidecar that would refuse a command leaves it to the others, which may know better.
	refuseTime = relay.Millis(2000)
	// joinTime is how long, in a new group, the sidecars have to say that they are there.
	joinTime = relay.Millis(500)
	// gatherTime is how long a notice waits for other bots at which its round stopped.
	gatherTime = relay.Millis(1000)
	// oneLease is how long a sidecar has to give its bot what it has claimed, oneGrace how much longer the others wait.
	oneLease = relay.Millis(4000)
	oneGrace = relay.Millis(1000)
	// showLife is how long a notice or an answer is tried: as long as Feishu knows a key.
	showLife = hour
)

func (t *turn) claim() string { return t.Key + "#" + strconv.Itoa(t.Try) }

// begin begins a turn, unless it has begun.
func (s *State) begin(t turn, m *relay.Message) {
	if s.d.Turns[t.Key] == nil {
		t.Since, t.Born = max(t.Since, s.now), s.now
		s.add(Record{Kind: kindTurn, Turn: &t, Msg: m})
	}
}

// update changes how far a turn is.
func (s *State) update(t *turn, change func(*turn)) {
	next := *t
	change(&next)
	s.add(Record{Kind: kindTurn, Turn: &next})
}

// over ends a turn.
func (s *State) over(key string) {
	if t := s.d.Turns[key]; t != nil {
		s.add(Record{Kind: kindTurn, Turn: &turn{Key: key, Over: true}})
	}
}

// foldTurn takes in how far a turn is. Beyond maxWaiting the oldest is over.
func (s *State) foldTurn(t *turn, m *relay.Message) {
	d, was := s.d, s.d.Turns[t.Key]
	switch {
	case t.Over && was != nil:
		delete(d.Turns, t.Key)
		s.drop(was.Of)
	case !t.Over:
		if d.Turns[t.Key] = new(*t); was == nil {
			s.keep(t.Of, m)
		}
		if key, over := oldest(d.Turns, maxWaiting, func(t *turn) relay.Millis { return t.Born }); over {
			s.foldTurn(&turn{Key: key, Over: true}, nil)
		}
	}
}

// dueAt is when it is this sidecar's turn; 0: another event comes first.
func (s *State) dueAt(t *turn) relay.Millis {
	place := 0
	switch t.Kind {
	case turnPublish, turnRecall, turnCommand:
		for _, m := range s.members() {
			if m.Agent < s.cfg.Agent && s.online[m.Agent] {
				place = 1 // they all begin together
			}
		}
	case turnOne:
		if t.Taken > 0 {
			return t.Taken + oneLease + oneGrace
		}
		for _, bot := range t.Bots[:max(0, slices.Index(t.Bots, s.cfg.Agent))] {
			if s.online[bot] {
				place++
			}
		}
		if s.away || t.Failed {
			place += len(t.Bots)
		}
	default:
		agents, _ := s.showers()
		self := slices.Index(agents, s.cfg.Agent)
		if self < 0 || t.Taken > 0 || s.d.Todo["show/"+t.claim()] != nil {
			return t.Born + showLife
		}
		place = ((self-t.Try)%len(agents) + len(agents)) % len(agents)
	}
	if s.d.Todo[t.claim()] != nil {
		return 0
	}
	return t.Since + relay.Millis(min(place, maxTurn))*turnTime
}

// take does what is due in this sidecar's turn, or claims it.
func (s *State) take(t *turn) {
	switch t.Kind {
	case turnPublish:
		s.do(Effect{Do: Publish, Key: t.Key, ID: t.Of}, nil)
	case turnRecall:
		s.share(Record{Kind: KindRecall, Of: t.Of})
	case turnCommand:
		s.execute(t)
	case turnOne:
		switch {
		case !slices.Contains(t.Bots, s.cfg.Agent):
			s.withhold(s.byID[t.Of], relay.NotForMe)
		case s.isOld(t.Born, s.now):
			s.withhold(s.byID[t.Of], relay.Expired)
		case t.Taken > 0: // who claimed it has not given it to its bot
			s.update(t, func(t *turn) { t.Try, t.Taken, t.Since = t.Try+1, 0, s.now })
			return
		default:
			s.do(Effect{Do: Claim, Key: t.claim(), ID: t.Of}, nil)
			return
		}
	default:
		pointless := t.Text == "" // it was recalled
		if t.Kind == turnStop {   // nobody has to let them go on any more
			pointless = !s.cfg.Notice || max(s.d.Continued[t.Thread].At, s.d.Continued[everywhere].At) > t.Said
		}
		if !pointless && s.now-t.Born < showLife {
			s.do(Effect{Do: Claim, Key: t.claim()}, nil)
			return
		}
	}
	s.over(t.Key)
}

// claimed takes in who holds a claim.
func (s *State) claimed(e Claimed) {
	if todo := s.d.Todo[e.Key]; todo == nil || todo.Do != Claim {
		return
	}
	s.done(Done{Key: e.Key})
	t := s.turnOf(e.Key)
	if t == nil {
		return
	}
	// What a sidecar had begun to show when it was killed it alone repeats, with the same key, which Feishu shows once.
	// A bot that was given a message is not given it by another process.
	mine := e.Holder == s.cfg.Agent && (e.Mine || t.Kind != turnOne)
	if t.Kind == turnOne || !mine {
		s.update(t, func(t *turn) { t.Taken = s.now })
	}
	switch {
	case mine && t.Kind == turnOne:
		s.do(Effect{Do: Give, Key: "give/" + t.claim(), ID: t.Of, Until: s.now + oneLease}, nil)
	case mine:
		s.show(t)
	}
}

// turnOf is the turn that a claim is for, nil if that is over or at another try.
func (s *State) turnOf(claim string) *turn {
	if t := s.d.Turns[claim[:max(0, strings.LastIndex(claim, "#"))]]; t != nil && t.claim() == claim {
		return t
	}
	return nil
}

// gave takes in whether the bot has a person's message. One of several bots that could not be given it leaves it to
// the next.
func (s *State) gave(id relay.MessageID, given bool) {
	switch t := s.d.Turns[oneKey(id)]; {
	case given:
		s.delivered(Delivered{ID: id})
	case t != nil:
		s.update(t, func(t *turn) { t.Failed = true })
	default:
		s.delivered(Delivered{id, Verdict{Stopped: relay.Undeliverable}})
	}
}

func oneKey(id relay.MessageID) string { return "one/" + string(id) }

// showers are the sidecars whose turn it is to show something: those that are online and can write. Where none can,
// write is false, and it is only recorded.
func (s *State) showers() (agents []relay.AgentName, write bool) {
	online := slices.DeleteFunc(slices.Clone(s.members()), func(m Member) bool {
		return m.Agent != s.cfg.Agent && !s.online[m.Agent]
	})
	writers := slices.DeleteFunc(slices.Clone(online), func(m Member) bool { return !m.CanWrite })
	if len(writers) == 0 {
		return agentsOf(online), false
	}
	return agentsOf(writers), true
}

// show shows the group a notice or an answer.
func (s *State) show(t *turn) {
	_, write := s.showers()
	e := Effect{Do: Reply, Key: "show/" + t.claim(), ID: t.Of, Text: t.Text}
	if t.Kind == turnStop {
		e.Do = React
	}
	if !write || !strings.HasPrefix(string(t.Of), "om_") || t.Try >= len(s.members()) {
		s.showed(t, "") // nobody can
		return
	}
	s.do(e, nil)
}

// didShow takes in how it went.
func (s *State) didShow(e *Effect, result Done) {
	switch t := s.turnOf(strings.TrimPrefix(e.Key, "show/")); {
	case t == nil:
	case result.Failed:
		s.share(Record{Kind: KindFailed, Key: t.Key, Try: t.Try})
	default:
		s.showed(t, result.Message)
	}
}

// foldFailed has the next sidecar try to show something.
func (s *State) foldFailed(r *Record) {
	if t := s.d.Turns[r.Key]; t != nil && r.Try >= t.Try {
		t.Try, t.Taken, t.Since = r.Try+1, 0, r.Local
		if r.Share { // this one failed: the others try first
			t.Since += turnTime
		}
	}
}

// showed tells the other sidecars that the group was shown t.
func (s *State) showed(t *turn, id relay.MessageID) {
	r := Record{Kind: KindNotice, ID: "notice/" + t.Key, Key: t.Key, Act: ActAnswer, Of: t.Of, Thread: t.Thread,
		Text: t.Text, Message: cmp.Or(id, relay.MessageID("notice:"+t.Key))}
	if st := s.d.Stops[t.Thread]; t.Kind == turnStop && st != nil {
		r.Act, r.Round, r.Said = ActStop, t.Round, t.Said
		r.Sender, r.Reason = st.Sender, st.Reason
		bots, muted := s.stillStopped(t.Thread, s.now+1, nil)
		r.Bots = slices.Sorted(slices.Values(slices.Concat(bots, muted)))
	}
	s.share(r)
}
