package sidecar

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/groups"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// How far back a chat is read for a decision: first the near tail, which the
// transcript has in memory, then eight times as much again and again while
// no person spoke within it. Beyond the far tail nothing is counted, and the
// count is by then over any limit in use.
const (
	nearTail = 32
	farTail  = 4096
)

// judgeLines is how many lines of the conversation the judge reads.
const judgeLines = 12

// tail returns the end of a chat as it was at a time, oldest first, as far back
// as a decision needs. What came later is left out by the transcript rather than
// here: for a sidecar that is behind it would be all that is read, and nothing be
// counted.
func (s *Sidecar) tail(channel string, chat relay.ChatID, at int64) ([]policy.Entry, error) {
	var entries []transcript.Entry
	for n := nearTail; n <= farTail; n *= 8 {
		var err error
		if entries, err = s.transcript.TailTo(channel, string(chat), n, at); err != nil {
			return nil, err
		}
		if len(entries) < n || anchored(entries) {
			break
		}
	}
	inTime(entries)
	out := make([]policy.Entry, len(entries))
	for i, e := range entries {
		out[i] = policyEntry(e)
	}
	return out, nil
}

// inTime orders the end of a transcript by ts. The file has the order of
// arrival, and what people say arrives by another queue than what bots say.
func inTime(entries []transcript.Entry) {
	slices.SortStableFunc(entries, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
}

// anchored reports whether every conversation in entries, the chat itself and
// each topic, reaches back to where its count ends: a person's message, or the
// time at which a bot knew of one.
func anchored(entries []transcript.Entry) bool {
	type span struct{ oldest, user int64 }
	spans := map[string]span{}
	for _, e := range entries {
		s, ok := spans[e.ThreadID]
		if !ok || e.TS < s.oldest {
			s.oldest = e.TS
		}
		s.user = max(s.user, userTime(e))
		spans[e.ThreadID] = s
	}
	for _, s := range spans {
		if s.user < s.oldest {
			return false
		}
	}
	return true
}

// decideBot says whether m, a bot's message with tail before (and around) it,
// goes to this bot.
func (s *Sidecar) decideBot(ctx context.Context, tail []policy.Entry, m policy.Entry, mentioned bool, g groups.Group) policy.Decision {
	limits := s.cfg.limitsFor(g)
	depth := policy.Depth(tail, m, limits.Count)
	return policy.Decide(ctx, limits, depth, s.question(tail, m, mentioned), s.judge)
}

func (s *Sidecar) question(tail []policy.Entry, m policy.Entry, mentioned bool) policy.Question {
	before := make([]policy.Entry, 0, judgeLines)
	for i := len(tail) - 1; i >= 0 && len(before) < judgeLines; i-- {
		e := tail[i]
		if e.MessageID != m.MessageID && e.TS <= m.TS && e.ThreadID == m.ThreadID {
			before = append(before, e)
		}
	}
	for i, j := 0, len(before)-1; i < j; i, j = i+1, j-1 {
		before[i], before[j] = before[j], before[i]
	}
	return policy.Question{Transcript: before, Message: m, AgentName: string(s.cfg.Agent),
		AgentRole: s.cfg.Role, BotName: s.cfg.BotName, Mentioned: mentioned}
}

// Decide answers POST /v1/decide: what the policy says of a message. Nothing is
// written or injected.
func (s *Sidecar) Decide(ctx context.Context, q httpapi.Question) (any, error) {
	channel := orDefault(q.Channel)
	at := int64(math.MaxInt64)
	if q.TS != 0 {
		at = int64(q.TS)
	}
	tail, err := s.tail(channel, q.ChatID, at)
	if err != nil {
		return nil, err
	}
	group := s.groups.Current().Groups[string(q.ChatID)]
	mentioned := s.addressed(q.Content, q.MsgType, q.Mentions)
	m := policy.Entry{Role: policy.RoleAssistant, Sender: string(q.SenderAgentName), SenderName: q.SenderName,
		MessageID: string(q.MessageID), ParentID: string(q.ParentID), RootID: string(q.RootID), ThreadID: q.ThreadID,
		Content: q.Content, TS: int64(q.TS), UserTS: int64(q.UserTS)}
	if m.TS == 0 { // now, and behind what others have said whose clocks are ahead
		m.TS = time.Now().UnixMilli()
		for _, e := range tail {
			m.TS = max(m.TS, e.TS)
		}
	}
	if q.Role == relay.RoleUser {
		m.Role, m.Sender = policy.RoleUser, firstOf(q.Sender, q.SenderName)
		return policy.DecideUser(ctx, s.cfg.groupPolicyFor(group), mentioned, s.cfg.limitsFor(group),
			s.question(tail, m, mentioned), s.judge), nil
	}
	if m.MessageID != "" {
		for _, e := range tail { // the transcript knows more of it than the caller
			if e.MessageID == m.MessageID {
				m = e
			}
		}
	}
	return s.decideBot(ctx, tail, m, mentioned, group), nil
}

func policyEntry(e transcript.Entry) policy.Entry {
	return policy.Entry{Role: e.Role, Sender: e.Sender, SenderName: e.SenderName, MessageID: e.MessageID,
		ParentID: e.ParentID, RootID: e.RootID, ThreadID: e.ThreadID, Content: e.Content, TS: e.TS, UserTS: e.UserTS}
}

func botEntry(m *relay.Message, sent time.Time) transcript.Entry {
	sender := string(m.SenderAgentName)
	if sender == "" {
		sender = string(m.SenderBotOpenID)
	}
	return entry(m, sent, relay.RoleAssistant, sender)
}

func userEntry(m *relay.Message, sent time.Time) transcript.Entry {
	return entry(m, sent, relay.RoleUser, firstOf(m.SenderName, string(m.SenderID), "user"))
}

func entry(m *relay.Message, sent time.Time, role, sender string) transcript.Entry {
	return transcript.Entry{Role: role, Content: m.Content, Sender: sender, MessageID: string(m.ID()), TS: sent.UnixMilli(),
		SenderName: m.SenderName, ThreadID: m.ThreadID, ParentID: string(m.ParentID), RootID: string(m.RootID),
		UserTS: int64(m.UserTS), MsgType: m.MsgType}
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func orDefault(channel string) string {
	if channel == "" {
		return relay.DefaultChannel
	}
	return channel
}
