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
	{"record", (*State).record},
	{"turn", (*State).awaitTurn},
	{"settings", (*State).stopBySettings},
	{"policy", (*State).stopByPolicy},
}

// verdict is what a stage says of a message: it goes on, it waits, or it stops.
type verdict struct {
	stop relay.Reason
	wait bool
	// decision is the policy's, of a message that passes or stops.
	decision *policy.Decision
}

var goOn, wait = verdict{}, verdict{wait: true}

func stop(why relay.Reason) verdict { return verdict{stop: why} }

// arrival is another bot's message on its way through the stages.
type arrival struct {
	ID      relay.MessageID `json:"id"`
	Stage   int             `json:"stage"` // the next one
	At      relay.Millis    `json:"at"`    // when it came
	Final   relay.Millis    `json:"final"` // when its text was final, as far as that is believed
	History bool            `json:"history,omitempty"`
	Asked   relay.Millis    `json:"asked,omitempty"` // since when the judge is asked
	// Judged is the judge's verdict, if it has one.
	Judged *policy.Decision `json:"judged,omitempty"`

	msg    *relay.Message
	unread relay.Reason
	queued bool
}

// believed is a time that a message says, as far as it is believed: one that is missing or too far ahead is now.
func (s *State) believed(at relay.Millis) relay.Millis {
	if at <= 0 || at > s.now+relay.Millis(relay.MaxAhead.Milliseconds()) {
		return s.now
	}
	return at
}

// arrived takes another bot's message through the stages.
func (s *State) arrived(e *Arrived) {
	m := bounded(&e.Msg)
	a := &arrival{ID: m.ID(), At: s.now, Final: s.believed(m.Final()), History: e.History, msg: m, unread: e.Stop}
	s.walk(a)
}

// pump takes messages that wait through further stages, in their order.
func (s *State) pump() {
	for i := 0; i < len(s.d.Queue); {
		a, was := *s.d.Queue[i], len(s.d.Queue)
		a.msg, a.queued = s.d.Texts[a.ID].Msg, true
		if i == 0 && s.judgeFailed(&a) {
			s.done(Done{Key: "ask/" + string(a.ID)})
			a.Judged = &policy.Decision{Tier: policy.TierJudge, Reason: policy.StopJudgeError, Detail: "no verdict in time"}
			if s.cfg.OnErrorAllow {
				a.Judged.Allow, a.Judged.Reason = true, "judge failed, passed as configured"
			}
		}
		if s.walk(&a); len(s.d.Queue) == was {
			i++
		}
	}
}

// judgeTime is how long the judge may take; it ends its own calls in half of it.
func (s *State) judgeTime() relay.Millis {
	return relay.Millis(2 * cmp.Or(s.cfg.JudgeTimeout, policy.DefaultTimeout).Milliseconds())
}

// judgeFailed reports whether the judge does not answer, or too much waits for its answer.
func (s *State) judgeFailed(a *arrival) bool {
	if a.Asked == 0 || a.Judged != nil {
		return false
	}
	bytes := 0
	for _, a := range s.d.Queue {
		bytes += len(s.d.Texts[a.ID].Msg.Content)
	}
	return s.now >= a.Asked+s.judgeTime() || len(s.d.Queue) > maxWaiting || bytes > maxWaitingBytes
}

// walk takes a through the stages until one has it wait or stops it, or the bot is given it.
func (s *State) walk(a *arrival) {
	from := *a
	for ; a.Stage < len(stages); a.Stage++ {
		v := stages[a.Stage].do(s, a)
		switch {
		case v.wait:
			if !a.queued || from.Stage != a.Stage || from.Asked != a.Asked || from.Judged != a.Judged {
				s.add(Record{Kind: kindQueue, Wait: new(*a), Msg: a.msg})
			}
			return
		case v.stop != relay.Pass:
			s.stopped(a, v)
			return
		case v.decision != nil:
			s.pass(a.ID, a.msg, v.decision)
			return
		}
	}
}

// stopped ends a message that does not reach the bot.
func (s *State) stopped(a *arrival, v verdict) {
	l := s.byID[a.ID]
	untold := slices.Contains([]relay.Reason{relay.OwnMessage, relay.Duplicate, relay.Malformed, relay.NotAMember}, v.stop)
	if !untold || a.queued {
		r := Record{Kind: KindVerdict, Of: a.ID, Sender: a.msg.SenderAgentName, Thread: a.msg.ThreadID,
			Verdict: &Verdict{Agent: s.cfg.Agent, At: s.now, Stopped: v.stop, Decision: v.decision}}
		if releasable(v.stop) && l != nil {
			r.Round, r.Said, r.Msg = s.roundOf(l), l.TS, a.msg
		}
		if untold {
			s.add(r)
		} else {
			s.share(r)
		}
	}
	s.effect(Effect{Do: Stop, ID: a.ID, Reason: v.stop, Decision: v.decision})
}

// pass gives the bot a message.
func (s *State) pass(id relay.MessageID, m *relay.Message, d *policy.Decision) {
	s.do(Effect{Do: Deliver, Key: "deliver/" + string(id), ID: id, Decision: d}, m)
	s.add(Record{Kind: KindVerdict, Of: id, Verdict: &Verdict{Agent: s.cfg.Agent, At: s.now, Decision: d}})
}

// delivered takes in whether the bot has a message.
func (s *State) delivered(e Delivered) {
	l := s.byID[e.ID]
	if l == nil {
		return
	}
	v := e.Verdict
	v.Agent, v.At, v.Detail = s.cfg.Agent, s.now, runes.Cut(v.Detail, maxDetail)
	if v.Delivered = cmp.Or(v.Delivered, s.now); v.Stopped != "" {
		v.Delivered = 0
	}
	if was := l.of(s.cfg.Agent); was != nil {
		v.Decision, v.At = was.Decision, max(v.At, was.At)
	}
	s.share(Record{Kind: KindVerdict, Of: e.ID, Sender: l.Bot, Thread: l.Thread, Verdict: &v})
}

// maxDetail is the most bytes of an error in a verdict.
const maxDetail = 200

// stopForeign stops what is no message of another bot of this group, or is one that was here before.
func (s *State) stopForeign(a *arrival) verdict {
	isNotice := func(r Record) bool { return r.Message == a.ID }
	switch {
	case a.unread != relay.Pass:
		return stop(a.unread)
	case a.msg.Role == relay.RoleUser: // it would end the count of depth
		return stop(relay.Malformed)
	case a.msg.SenderAgentName == s.cfg.Agent: // its own words, under whatever name they come back
		return stop(relay.OwnMessage)
	case !s.isMember() && s.d.In == isUnknown:
		return wait
	case !s.isMember():
		return stop(relay.NotAMember)
	case editOf(a.msg) != "": // package dedup knows its id
		return goOn
	case s.byID[a.ID] != nil || slices.ContainsFunc(s.d.Shown, isNotice):
		return stop(relay.Duplicate)
	}
	return goOn
}

// record adds the message to the transcript and to the lines.
func (s *State) record(a *arrival) verdict {
	r := Record{Kind: kindLine, Msg: a.msg, Do: []Do{Append}}
	if editOf(a.msg) == "" {
		l := s.lineOf(a.msg, s.believed(a.msg.TS))
		l.Bot = cmp.Or(l.Bot, unknownBot)
		l.Depth, l.Round = s.depth(&l)
		r.Line = &l
	}
	s.add(r)
	if r.Line == nil && s.gone[editOf(a.msg)] {
		return stop(relay.Recalled)
	}
	return goOn
}

// awaitTurn waits for earlier messages of the chat.
func (s *State) awaitTurn(a *arrival) verdict {
	if len(s.d.Queue) > 0 && s.d.Queue[0].ID != a.ID {
		return wait
	}
	if of := editOf(a.msg); of != "" {
		return s.edit(a, of)
	}
	return goOn
}

// edit lets the new text of a message through to a bot that has the message. One that waits gets the new text; for
// others it is only recorded.
func (s *State) edit(a *arrival, of relay.MessageID) verdict {
	if s.d.Texts[of] != nil {
		s.add(Record{Kind: KindEdit, Of: of, Agent: a.msg.SenderAgentName, Text: a.msg.Content})
	}
	s.effect(Effect{Do: Retext, ID: of, Text: a.msg.Content})
	l := s.byID[of]
	if l == nil || l.Bot != a.msg.SenderAgentName || !s.had(l) || !l.of(s.cfg.Agent).delivered() {
		return stop(relay.Duplicate)
	}
	return verdict{decision: &policy.Decision{Allow: true, Tier: policy.TierThreshold, Depth: l.Depth,
		Reason: "an edit of a message that this bot was given"}}
}

// stopBySettings stops what the bot is not to get, whatever the message says.
func (s *State) stopBySettings(a *arrival) verdict {
	l, set := s.byID[a.ID], s.settings()
	why := s.bySettings(l, &set)
	switch {
	case a.History || s.isOld(a.Final, a.At):
		return stop(relay.Expired)
	case why != relay.Pass:
		return stop(why)
	case !s.isFor(s.audience(l, &set)):
		return stop(relay.NotForMe)
	case s.cfg.GroupPolicy == "mention" && !s.mentioned(a.msg):
		return stop(relay.NotMentioned)
	case set.Budget > 0 && s.hourly(l.TS) > min(set.Budget, maxLines-1) && !s.released(a): // it is counted itself
		return stop(relay.Budget)
	}
	return goOn
}

// isOld reports whether it is too late for what was said at a time.
func (s *State) isOld(said, now relay.Millis) bool {
	return now-said > relay.Millis(s.cfg.MaxAge.Milliseconds())
}

// bySettings is why people's settings keep a bot's message from this bot.
func (s *State) bySettings(l *Line, set *Settings) relay.Reason {
	switch {
	case l == nil:
		return relay.Expired // more messages have come since than are known
	case l.Recalled:
		return relay.Recalled
	case set.Muted[s.cfg.Agent] != nil:
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
func (s *State) mentioned(m *relay.Message) bool {
	n := s.names(m)
	return slices.Contains(n.Bots, s.cfg.Agent) || n.All && s.cfg.MentionAll
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
	default:
		if a.Asked == 0 {
			a.Asked = s.now
			s.do(Effect{Do: Ask, Key: "ask/" + string(a.ID), ID: a.ID, Decision: &d}, a.msg)
		}
		return wait
	}
	if !d.Allow {
		return verdict{stop: relay.Reason(d.Reason), decision: &d}
	}
	return verdict{decision: &d}
}

// judged takes in the judge's verdict on the message at the head of the queue.
func (s *State) judged(e Judged) {
	s.done(Done{Key: "ask/" + string(e.ID)})
	for _, a := range s.d.Queue {
		if a.ID == e.ID && a.Asked > 0 {
			next := *a
			next.Judged = &e.Decision
			s.add(Record{Kind: kindQueue, Wait: &next})
			return
		}
	}
}

// Fate is why a message that waits for the bot is withdrawn, Pass if it is not. A pause holds back what the bot was
// not given yet; a mute and a stop also what it was given and has not confirmed, which would be written again.
func (s *State) Fate(now relay.Millis, id relay.MessageID, given bool) relay.Reason {
	s.now = now
	l, set := s.byID[id], s.settings()
	switch {
	case s.gone[id]:
		return relay.Recalled
	case l == nil:
		return relay.Pass
	case given || l.Bot == "":
		set.Paused = nil
	}
	return s.bySettings(l, &set)
}

// metaEditOf names, in the metadata of a message, the message whose text it replaces.
const metaEditOf = "edit_of"

// editOf returns the message that m edits; "": m is a message of its own.
func editOf(m *relay.Message) relay.MessageID {
	if id := m.Metadata.Text(metaEditOf); relay.CheckID(id) == nil && relay.MessageID(id) != m.ID() {
		return relay.MessageID(id)
	}
	return ""
}
