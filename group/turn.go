package group

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// turn is something that one sidecar does, of all that know of it by the same events and records. The first in its
// order does it at once, each of the others a second later than the one before, unless it hears that it was done. What
// must not happen twice is claimed first. Who holds the claim has a few seconds; after that the next one tries, with a
// claim of its own.
type turn struct {
	Key     string            `json:"key"` // names it, at all sidecars alike, and the effect that does it
	Kind    turnKind          `json:"kind"`
	Of      relay.MessageID   `json:"of"` // the message that it is about
	Msg     *relay.Message    `json:"msg,omitempty"`
	Since   relay.Millis      `json:"since"` // when the turns began, by this sidecar's clock
	Born    relay.Millis      `json:"born"`
	Try     int               `json:"try,omitempty"`
	Taken   relay.Millis      `json:"taken,omitempty"`    // when this sidecar knew who holds the claim of this try
	Failed  bool              `json:"failed,omitempty"`   // this sidecar did
	Bots    []relay.AgentName `json:"bots,omitempty"`     // of one, in their order
	MayEdit bool              `json:"may_edit,omitempty"` // of a command: the person may change settings
	Text    string            `json:"text,omitempty"`     // of an answer
	Thread  string            `json:"thread,omitempty"`
	Stop    *stopped          `json:"stop,omitempty"`
	First   relay.AgentName   `json:"first,omitempty"` // who comes before the others: where it came up
}

type turnKind string

const (
	turnPublish turnKind = "publish" // a person's message for the other sidecars
	turnCommand turnKind = "command" // carry out a command, or the word that lets bots go on
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
	// lease is how long a sidecar has to do what it has claimed, grace how much longer the others wait.
	lease = relay.Millis(4000)
	grace = relay.Millis(1000)
)

func (t *turn) claim() string { return t.Key + "#" + strconv.Itoa(t.Try) }

func oneKey(id relay.MessageID) string { return "one/" + string(id) }

// begin begins a turn, unless it has begun, or the group was shown it already.
func (s *State) begin(t turn) {
	if s.d.Turns[t.Key] == nil && !s.seen("notice/"+t.Key) {
		t.Since, t.Born = max(t.Since, s.now), s.now
		s.d.Turns[t.Key] = &t
		prune(s.d.Turns, maxWaiting, func(t *turn) relay.Millis { return t.Born })
	}
}

// order is in whose turn something is, after another, and whether this sidecar takes part. A notice or an answer is
// shown by a sidecar that can write; where none can, write is false, and it is only recorded.
func (s *State) order(t *turn) (agents []relay.AgentName, write bool) {
	offline := func(agent relay.AgentName) bool { return agent != s.d.Config.Agent && !s.d.Online[agent] }
	if t.Kind == turnOne {
		return slices.DeleteFunc(slices.Clone(t.Bots), offline), true
	}
	var writers []relay.AgentName
	members := s.members()
	if i := slices.IndexFunc(members, func(m Peer) bool { return m.Agent == t.First }); i > 0 {
		members = append([]Peer{members[i]}, slices.Delete(slices.Clone(members), i, i+1)...)
	}
	for _, m := range members {
		if !offline(m.Agent) {
			agents = append(agents, m.Agent)
			if m.CanWrite {
				writers = append(writers, m.Agent)
			}
		}
	}
	if t.claimed() && len(writers) > 0 {
		return writers, true
	}
	return agents, false
}

// claimed reports whether a turn is claimed, shows whether the group is shown something.
func (t *turn) claimed() bool { return t.shows() || t.Kind == turnOne }
func (t *turn) shows() bool   { return t.Kind == turnAnswer || t.Kind == turnStop }

// waits reports whether this sidecar must not write yet what t shows.
func (s *State) waits(t *turn) bool { return t.shows() && s.d.Config.CanWrite && s.d.Config.NotYet }

// dueAt is when it is this sidecar's turn; 0: another event comes first.
func (s *State) dueAt(t *turn) relay.Millis {
	order, _ := s.order(t)
	place := slices.Index(order, s.d.Config.Agent)
	switch {
	case s.d.Todo[t.Key] != nil || s.d.Todo[t.claim()] != nil:
		return 0
	case t.Taken > 0:
		return t.Taken + lease + grace
	case t.shows() && place < 0, s.waits(t): // the others show it, and say so
		return t.Born + s.maxAge() + 1
	case !t.claimed():
		place = min(place, 1) // they all begin together
	case t.Failed: // whoever has not tried comes first, also one that heard later that the claim was taken
		place = maxTurn
	case t.Kind == turnOne && s.d.Away:
		place += len(order)
	}
	return t.Since + relay.Millis(min(max(place, 0), maxTurn))*turnTime
}

// take does what is due in this sidecar's turn, or claims it.
func (s *State) take(t *turn) {
	old, noticed := s.isOld(t.Born, s.now), s.d.Config.Notice
	switch {
	case t.Kind == turnPublish:
		s.do(Effect{Do: Publish, Key: t.Key, ID: t.Of, Msg: t.Msg})
	case t.Kind == turnCommand:
		s.execute(t)
	case t.Kind == turnOne && old:
		s.withhold(s.byID[t.Of], relay.Expired)
	case old, t.Kind == turnAnswer && t.Text == "": // it was recalled
	case t.Kind == turnStop && (!noticed || s.continued(t.Thread, s.now+1) > t.Stop.Said): // nobody has to let them go on
	case t.Taken > 0: // who claimed it has not done it
		t.Try, t.Taken, t.Since = t.Try+1, 0, s.now
		return
	default:
		s.do(Effect{Do: Claim, Key: t.claim(), ID: t.Of})
		return
	}
	delete(s.d.Turns, t.Key)
}

// claimed takes in whether this process holds a claim, and does what that is for.
func (s *State) claimed(e *Event) {
	t := s.d.Turns[e.Key[:max(0, strings.LastIndex(e.Key, "#"))]]
	if t == nil || t.claim() != e.Key {
		return
	}
	t.Taken = s.now
	order, write := s.order(t)
	switch until := s.now + lease; {
	case e.Failed, s.waits(t): // the next one does it, or this one again
	case t.Kind == turnOne:
		s.do(Effect{Do: Give, Key: t.Key, ID: t.Of, Msg: t.Msg, Until: until})
	case !write || !strings.HasPrefix(string(t.Of), "om_") || t.Failed && t.Try >= len(order): // nobody can
		s.showed(t, "")
	case t.Kind == turnStop && !s.d.Config.NoticeText:
		s.do(Effect{Do: React, Key: t.Key, ID: t.Of, Until: until})
	case t.Kind == turnStop:
		s.do(Effect{Do: Reply, Key: t.Key, ID: t.Of, Text: s.notice(t), Until: until})
	default:
		s.do(Effect{Do: Reply, Key: t.Key, ID: t.Of, Text: t.Text, Until: until})
	}
}

// performed takes in how it went.
func (s *State) performed(did *Effect, result *Event) {
	t := s.d.Turns[did.Key]
	switch {
	case t != nil && result.Failed:
		t.Failed = true
	case did.Do == Give && (t != nil || result.Verdict != nil):
		s.delivered(did.ID, *cmp.Or(result.Verdict, &Verdict{}))
	case t != nil:
		s.showed(t, result.ID)
	}
}

// showed tells the other sidecars that the group was shown t.
func (s *State) showed(t *turn, id relay.MessageID) {
	r := Record{Kind: KindNotice, ID: "notice/" + t.Key, Key: t.Key, Act: ActAnswer, Of: t.Of, Thread: t.Thread,
		Text: t.Text, Message: cmp.Or(id, relay.MessageID("notice:"+t.Key))}
	if st := t.Stop; st != nil {
		r.Act, r.Round, r.Said, r.Sender, r.Reason = ActStop, st.Round, st.Said, st.Sender, st.Reason
		r.Bots, r.Text = s.stoppedBots(t.Thread), s.notice(t)
	}
	s.share(r)
}

func (s *State) stoppedBots(thread string) []relay.AgentName {
	bots, muted := s.stillStopped(thread, s.now+1)
	return slices.Sorted(slices.Values(slices.Concat(bots, muted)))
}

// notice is what a stop is in words, in the language of the last person's message.
func (s *State) notice(t *turn) string {
	chinese := false
	for _, l := range slices.Backward(s.d.Lines) {
		if l.Bot == "" && l.Thread == t.Thread {
			chinese = l.Han
			break
		}
	}
	others := text2{"other bots", "其他机器人"}
	if bots := s.stoppedBots(t.Thread); len(bots) > 0 {
		shown := labels(s.members(), bots...)
		others = text2{shown.in(false), shown.in(true)}
	}
	return say("notice", labels(s.members(), t.Stop.Sender), others, means(t.Stop.Reason)).in(chinese)
}
