package group

import (
	"cmp"
	"fmt"
	"slices"

	"feishu-relay/internal/runes"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// stages are the steps of another bot's message, in their order. Those up to record are taken as messages come, so
// that depth and audience know them at once; the rest in the order of the chat.
var stages = []struct {
	name string
	do   func(*State, *arrival) verdict
}{
	{"source", (*State).stopForeign},
	{"record", (*State).addLine},
	{"turn", (*State).awaitTurn},
	{"settings", (*State).stopBySettings},
	{"policy", (*State).stopByPolicy},
}

// verdict is what a stage says of a message: it goes on, it waits, or it stops.
type verdict struct {
	stop relay.Reason
	wait bool
	ends bool // all is done with it
	// decision is the policy's, of a message that passes or stops.
	decision *policy.Decision
}

var goOn, wait = verdict{}, verdict{wait: true}

func stop(why relay.Reason) verdict { return verdict{stop: why} }

// arrival is a message of the lanes on its way through the stages.
type arrival struct {
	ID      relay.MessageID  `json:"id"`
	Msg     *relay.Message   `json:"msg"`
	Names   Names            `json:"names,omitzero"`
	Stage   int              `json:"stage"` // the next one
	At      relay.Millis     `json:"at"`    // when it came
	History bool             `json:"history,omitempty"`
	Shared  bool             `json:"shared,omitempty"` // a person's message: it is only recorded
	Until   relay.Millis     `json:"until,omitempty"`  // when a native one waits no longer
	Asked   relay.Millis     `json:"asked,omitempty"`  // since when the judge is asked
	Judged  *policy.Decision `json:"judged,omitempty"` // the judge's verdict
	unread  relay.Reason     // it does not wait with that
	why     string           // behind unread
}

// believed is a time that a message says, as far as it is believed: one that is missing or too far ahead is now.
func (s *State) believed(at relay.Millis) relay.Millis {
	if at <= 0 || at > s.now+relay.Millis(relay.MaxAhead.Milliseconds()) {
		return s.now
	}
	return at
}

// arrived takes another bot's message through the stages.
func (s *State) arrived(e *Event) {
	m := s.bounded(e)
	if waiting := len(s.d.Queue) + len(s.d.Todo); e.Reason == relay.Pass {
		s.d.Queue = slices.DeleteFunc(s.d.Queue, func(a *arrival) bool { return a.isNative() && a.ID == m.ID() })
		delete(s.d.Todo, fetchKey(m.ID()))
		waited := len(s.d.Queue)+len(s.d.Todo) < waiting
		defer func() { s.changed = s.changed || waited }()
	}
	if id := m.ID(); e.Own || m.SenderAgentName == s.d.Config.Agent {
		if s.changed = s.byID[id] == nil && s.isMember() && EditOf(m) == "" && e.Reason == relay.Pass; s.changed {
			s.record(s.lineOf(e), m)
		}
		s.effect(Effect{Do: Stop, ID: id, Msg: m, Reason: relay.OwnMessage})
		return
	}
	s.enter(&arrival{ID: m.ID(), Msg: m, Names: e.Names, At: s.now, History: e.History, unread: e.Reason, why: e.Body})
}

// enter takes a message through the stages as far as it goes.
func (s *State) enter(a *arrival) {
	if !s.walk(a) {
		s.d.Queue = append(s.d.Queue, a)
	}
}

func fetchKey(id relay.MessageID) string { return "native/" + string(id) }

// native has another bot's message that Feishu delivered wait for the relay's copy of it.
func (s *State) native(e *Event) {
	m := s.bounded(e)
	id, joined := m.ID(), s.setIn(Joined, s.believed(m.TS))
	if s.byID[id] != nil || s.Gone(id) || s.isNotice(id) || s.d.Todo[fetchKey(id)] != nil ||
		slices.ContainsFunc(s.d.Queue, func(a *arrival) bool { return a.ID == id }) {
		s.ignore(Effect{Do: Stop, ID: id, Msg: m, Reason: relay.Duplicate})
		s.changed = joined
		return
	}
	s.enter(&arrival{ID: id, Msg: m, Until: max(e.Until, 1)})
}

func (a *arrival) isNative() bool { return a.Until > 0 }

// pump takes messages that wait through further stages, in their order.
func (s *State) pump() {
	for i := 0; i < len(s.d.Queue); {
		if s.walk(s.d.Queue[i]) {
			s.d.Queue = slices.Delete(s.d.Queue, i, i+1)
			s.changed = true
		} else {
			i++
		}
	}
}

// judgeTime is how long the judge may take; it ends its own calls in half of it.
func (s *State) judgeTime() relay.Millis {
	return relay.Millis(2 * cmp.Or(s.d.Config.JudgeTimeout, policy.DefaultTimeout).Milliseconds())
}

func crowded(waiting []*arrival) bool {
	bytes := 0
	for _, a := range waiting {
		bytes += len(a.Msg.Content)
	}
	return len(waiting) > maxWaiting || bytes > maxWaitingBytes
}

// walk takes a through the stages. It reports whether that ended: one stopped it, or the bot is given it.
func (s *State) walk(a *arrival) (ended bool) {
	for ; a.Stage < len(stages); a.Stage++ {
		v := stages[a.Stage].do(s, a)
		switch {
		case v.wait:
			return false
		case v.ends:
			return true
		case v.stop != relay.Pass:
			s.stop(a, v)
			return true
		case v.decision != nil:
			s.pass(a, v.decision)
			return true
		}
	}
	return true
}

// stop ends a message that does not reach the bot. What is not recorded is nobody else's concern.
func (s *State) stop(a *arrival, v verdict) {
	s.effect(Effect{Do: Stop, ID: a.ID, Msg: a.Msg, Mentioned: s.mentioned(a), Reason: v.stop, Text: a.why,
		Decision: v.decision})
	if a.Stage == 0 && v.stop != relay.BadSignature {
		s.changed = false // a caller that has taken it from the queue says otherwise
		return
	}
	r := Record{Kind: KindVerdict, Of: a.ID, Sender: a.Msg.SenderAgentName, Thread: a.Msg.ThreadID,
		Verdict: &Verdict{Agent: s.d.Config.Agent, At: s.now, Stopped: v.stop, Detail: runes.Cut(a.why, maxDetail),
			Decision: v.decision}}
	if l := s.byID[a.ID]; releasable(v.stop) && l != nil {
		r.Round, r.Said = s.exchange(l).began, l.TS
		s.hold(a)
	}
	s.share(r)
}

// pass gives the bot a message.
func (s *State) pass(a *arrival, d *policy.Decision) {
	s.do(Effect{Do: Deliver, Key: "deliver/" + string(a.ID), ID: a.ID, Msg: a.Msg, Mentioned: s.mentioned(a), Decision: d})
	if l := s.byID[a.ID]; l != nil {
		l.judge(Verdict{Agent: s.d.Config.Agent, At: s.now, Decision: d})
	}
}

// delivered takes in whether the bot has a message.
func (s *State) delivered(id relay.MessageID, v Verdict) {
	l := s.byID[id]
	if s.changed = l != nil; !s.changed {
		return
	}
	v.Detail = runes.Cut(v.Detail, maxDetail)
	if v.Stopped == "" {
		v.Delivered = cmp.Or(v.Delivered, s.now)
	}
	if was := l.of(s.d.Config.Agent); was != nil {
		v.Decision = was.Decision
	}
	s.verdict(id, l.Thread, v)
}

// maxDetail is the most bytes of an error in a verdict.
const maxDetail = 200

// isNotice reports whether a message is what the group was shown.
func (s *State) isNotice(id relay.MessageID) bool {
	return slices.ContainsFunc(s.d.Shown, func(r Record) bool { return r.Kind == KindNotice && r.Message == id })
}

// stopForeign stops what is no message of this group, or is one that was here before.
func (s *State) stopForeign(a *arrival) verdict {
	full := len(s.d.Queue) > 0 && s.d.Queue[0] == a && crowded(s.d.Queue)
	switch {
	case a.unread != relay.Pass:
		return stop(a.unread)
	case a.isNative() && !full && (s.now < a.Until || !s.d.CaughtUp):
		return wait
	case a.isNative(): // the relay's copy has not come
		s.do(Effect{Do: Fetch, Key: fetchKey(a.ID), ID: a.ID, Msg: a.Msg})
		return verdict{ends: true}
	case a.Shared != (a.Msg.Role == relay.RoleUser): // it would end the count of depth
		return stop(relay.Malformed)
	case s.unsure() && !full && (s.d.Config.AsksMembership || !a.Shared):
		s.askIn()
		return wait
	case !s.isMember():
		return stop(relay.NotAMember)
	case EditOf(a.Msg) == "" && (s.byID[a.ID] != nil || s.isNotice(a.ID)): // an edit is known by its message
		return stop(relay.Duplicate)
	}
	return goOn
}

// addLine adds the message to the transcript and to the lines.
func (s *State) addLine(a *arrival) verdict {
	var l *Line
	if EditOf(a.Msg) == "" {
		l = s.lineOf(&Event{Msg: a.Msg, Names: a.Names})
	}
	s.record(l, a.Msg)
	return verdict{ends: a.Shared}
}

// awaitTurn waits for earlier messages of the chat, and after a start for what people have changed and recalled since.
func (s *State) awaitTurn(a *arrival) verdict {
	first := slices.IndexFunc(s.d.Queue, func(b *arrival) bool { return !b.isNative() })
	if first >= 0 && s.d.Queue[first] != a || !s.d.CaughtUp && !crowded(s.d.Queue) {
		return wait
	}
	if of := EditOf(a.Msg); of != "" {
		return s.edit(a, of)
	}
	return goOn
}

// edit lets the new text of a message through to a bot that has the message. One that waits gets the new text; for
// others it is only recorded.
func (s *State) edit(a *arrival, of relay.MessageID) verdict {
	l := s.byID[of]
	switch {
	case s.Gone(of):
		return stop(relay.Recalled)
	case l == nil || l.Bot != a.Msg.SenderAgentName || slices.Contains(l.Edits, a.ID):
		return stop(relay.Duplicate)
	}
	l.Edits = append(l.Edits[max(0, len(l.Edits)-maxEdits+1):], a.ID)
	s.texts(of, func(m *relay.Message) *relay.Message {
		out := *m
		out.Content = a.Msg.Content
		return &out
	})
	s.effect(Effect{Do: Retext, ID: of, Msg: a.Msg, Text: a.Msg.Content})
	if v := l.of(s.d.Config.Agent); v == nil || !v.delivered() || string(a.Msg.Metadata[MetaNotify]) == "false" {
		return stop(relay.Duplicate)
	}
	set := s.settings()
	if why := s.bySettings(l, &set); why != relay.Pass {
		return stop(why)
	}
	return verdict{decision: &policy.Decision{Allow: true, Tier: policy.TierThreshold, Depth: l.Depth,
		Reason: "an edit of a message that this bot was given"}}
}

// stopBySettings stops what the bot is not to get, whatever the message says.
func (s *State) stopBySettings(a *arrival) verdict {
	l, set := s.byID[a.ID], s.settings()
	why := s.bySettings(l, &set)
	switch {
	case a.History || l != nil && s.isOld(l.TS+l.Took, a.At):
		return stop(relay.Expired)
	case why != relay.Pass:
		return stop(why)
	case !s.isFor(s.audience(l, &set)):
		return stop(relay.NotForMe)
	case s.d.Config.GroupPolicy == "mention" && !s.mentioned(a):
		return stop(relay.NotMentioned)
	case set.Budget > 0 && s.hourly(l.TS) > min(set.Budget, maxLines-1) && !s.released(a): // it is counted itself
		return stop(relay.Budget)
	}
	return goOn
}

func (s *State) maxAge() relay.Millis { return relay.Millis(s.d.Config.MaxAge.Milliseconds()) }

// isOld reports whether it is too late for what was said at a time.
func (s *State) isOld(said, now relay.Millis) bool { return now-said > s.maxAge() }

// bySettings is why people's settings keep a bot's message from this bot.
func (s *State) bySettings(l *Line, set *Settings) relay.Reason {
	switch {
	case l == nil:
		return relay.Expired // more messages have come since than are known
	case l.Recalled:
		return relay.Recalled
	case set.Muted[s.d.Config.Agent] != nil:
		return relay.Muted
	case set.Paused != nil:
		return relay.Paused
	case s.stoppedByPerson(l):
		return relay.StoppedByPerson
	}
	return relay.Pass
}

// stoppedByPerson reports whether a person's stop holds for a message: for what was said before it, and for what bots
// say after it until a person speaks.
func (s *State) stoppedByPerson(l *Line) bool {
	at := s.personStopped()
	switch {
	case at == 0 || l.UserTS > at && l.UserTS <= l.TS:
		return false
	case l.TS <= at:
		return !s.isOld(at, s.now)
	}
	for i := s.after(l.TS) - 1; i >= 0 && s.d.Lines[i].TS > at; i-- {
		o := s.d.Lines[i]
		if o.Bot == "" || o.UserTS > at && o.UserTS <= o.TS {
			return false
		}
	}
	return true
}

// mentioned reports whether a message addresses this bot. What the sender's metadata says of that is not believed.
func (s *State) mentioned(a *arrival) bool {
	return slices.Contains(a.Names.Bots, s.d.Config.Agent) || a.Names.All && s.d.Config.MentionAll
}

// stopByPolicy goes through the tiers of the stop policy.
func (s *State) stopByPolicy(a *arrival) verdict {
	l := s.byID[a.ID]
	switch {
	case l == nil: // meanwhile more messages have come than are known
		return stop(relay.Expired)
	case s.released(a):
		return verdict{decision: letGo()}
	}
	d, set := policy.Decision{Depth: l.Depth}, s.settings()
	switch {
	case l.Depth >= set.Limit:
		d.Tier, d.Reason = policy.TierHardLimit, policy.StopMaxDepth
		d.Detail = fmt.Sprintf("depth %d >= limit %d", l.Depth, set.Limit)
	case l.Depth <= set.Threshold:
		d.Allow, d.Tier = true, policy.TierThreshold
		d.Reason = fmt.Sprintf("depth %d <= threshold %d", l.Depth, set.Threshold)
	case !set.Judge:
		d.Allow, d.Tier, d.Reason = true, policy.TierJudgeOff, "judge off"
	case a.Judged != nil:
		d = *a.Judged
		d.Depth = l.Depth
	case a.Asked == 0:
		a.Asked = s.now
		s.do(Effect{Do: Ask, Key: "ask/" + string(a.ID), ID: a.ID, Msg: a.Msg, Mentioned: s.mentioned(a), Decision: &d})
		return wait
	case s.now < a.Asked+s.judgeTime() && !crowded(s.d.Queue):
		return wait
	default: // it does not answer, or too much waits for that
		delete(s.d.Todo, "ask/"+string(a.ID))
		d.Tier, d.Reason, d.Detail = policy.TierJudge, policy.StopJudgeError, "no verdict in time"
		if d.Allow = s.d.Config.OnErrorAllow; d.Allow {
			d.Reason = "judge failed, passed as configured"
		}
	}
	if !d.Allow {
		return verdict{stop: relay.Reason(d.Reason), decision: &d}
	}
	return verdict{decision: &d}
}

// Fate is why a message that waits for the bot is withdrawn, Pass if it is not. A pause holds back what the bot was
// not given yet; a mute and a stop also what it was given and has not confirmed, which would be written again.
func (s *State) Fate(now relay.Millis, id relay.MessageID, given bool) relay.Reason {
	s.now = now
	l, set := s.byID[id], s.settings()
	for i := 0; l == nil && i < len(s.d.Lines); i++ {
		if slices.Contains(s.d.Lines[i].Edits, id) {
			l = s.d.Lines[i] // the message that it edits
		}
	}
	switch {
	case s.Gone(id):
		return relay.Recalled
	case l == nil:
		return relay.Pass
	case given || l.Bot == "":
		set.Paused = nil
	}
	return s.bySettings(l, &set)
}

// MetaEditOf names, in the metadata of a message, the message whose text it replaces, MetaPartOf the first message of
// the send of which it is a later piece.
const MetaEditOf, MetaPartOf = "edit_of", "part_of"

// MetaNotify is, in the metadata of such a message, false if a bot that has the message is not given the new text.
const MetaNotify = "edit_notify"

// EditOf returns the message that m edits; "": m is a message of its own.
func EditOf(m *relay.Message) relay.MessageID {
	if id := m.Metadata.Text(MetaEditOf); relay.CheckID(id) == nil && relay.MessageID(id) != m.ID() {
		return relay.MessageID(id)
	}
	return ""
}
