package sidecar

import (
	"cmp"
	"context"
	"slices"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/mention"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// audienceTail is how many lines are read at first to find whom a conversation is with; where they do
// not say, farTail are.
const audienceTail = 512

// stopSteered stops a bot's message that the group's settings keep from this bot.
func (s *steering) stopSteered(ctx context.Context, p *arrival) (relay.Reason, error) {
	s.awaitMarks(ctx)
	s.announce(p.msg.Channel, p.msg.ChatID)
	return s.steered(&p.msg, p.sent)
}

// steered is why the group's settings keep a bot's message from this bot.
func (s *steering) steered(m *relay.Message, sent time.Time) (relay.Reason, error) {
	g, now := s.records.state(m.Channel, m.ChatID), time.Now()
	switch {
	case s.chats.wasRecalled(m):
		return relay.Recalled, nil
	case g.Muted[s.cfg.Agent].Holds(now):
		return relay.Muted, nil
	case g.Paused.Holds(now):
		return relay.Paused, nil
	}
	stopped, err := s.stopped(g, m, sent)
	switch {
	case err != nil:
		return relay.Pass, err
	case stopped:
		return relay.StoppedByPerson, nil
	case editOf(m) != "":
		return relay.Pass, nil // it goes where the message went
	}
	a, err := s.audience(g, m, entryOf(m, sent))
	if err != nil {
		return relay.Pass, err // bots' messages wait
	}
	if !s.isFor(a) {
		return relay.NotForMe, nil
	}
	return relay.Pass, nil
}

// stopNotices stops what other sidecars wrote in Feishu: no bot is given that.
func (s *steering) stopNotices(_ context.Context, p *arrival) (relay.Reason, error) {
	if s.notices.Contains(p.msg.ID()) {
		return relay.Duplicate, nil
	}
	return relay.Pass, nil
}

// stopped reports whether a person's stop holds for a bot's message: for what was said before
// it, and what is said after it until a person speaks.
func (s *steering) stopped(g *groupState, m *relay.Message, sent time.Time) (bool, error) {
	at := g.record.Stopped()
	if at == 0 || at <= g.record.Continued() {
		return false, nil
	}
	if on, ok := s.chats.wentOn(m.Channel, m.ChatID, m.ThreadID); ok && on.TS > at {
		return false, nil
	}
	said := relay.MillisOf(sent)
	if said <= at {
		return time.Since(at.Time()) <= s.cfg.MaxAge, nil
	}
	entries, err := s.chats.transcript.Outline(m.Channel, string(m.ChatID), audienceTail, int64(said))
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(entries, func(e transcript.Entry) bool {
		return e.Role == relay.RoleUser && e.TS > int64(at) || e.UserTS > int64(at) && e.UserTS <= e.TS
	}) && m.UserTS <= at, nil
}

// stopBudget stops a bot's message where the bots of the group have said as much within an
// hour as they may.
func (s *steering) stopBudget(_ context.Context, p *arrival) (relay.Reason, error) {
	over, err := s.overBudget(&p.msg, p.key, p.sent)
	if err != nil || !over {
		return relay.Pass, err
	}
	s.stopSeen(p, relay.Budget)
	return relay.Budget, nil
}

// overBudget reports whether the bots of a group have said as much in the hour before m as they may.
func (s *steering) overBudget(m *relay.Message, key string, sent time.Time) (bool, error) {
	g := s.records.state(m.Channel, m.ChatID)
	if g.Budget == 0 || editOf(m) != "" {
		return false, nil
	}
	until := sent.UnixMilli()
	since := until - time.Hour.Milliseconds()
	for n := 4 * nearTail; ; n *= 4 { // not by the budget, which may be any number
		entries, err := s.chats.transcript.Outline(m.Channel, string(m.ChatID), n, until)
		said, within := 0, false
		for i, e := range entries {
			within = within || i < nearTail && e.TS > since // some of the oldest: lines may be late
			if e.Role == relay.RoleAssistant && e.TS > since && e.EditOf == "" && e.MessageID != key {
				said++
			}
		}
		if err != nil || said >= g.Budget || !within || len(entries) < n {
			return err == nil && said >= g.Budget, err
		}
	}
}

// audience is who a message is for.
func (s *steering) audience(g *groupState, m *relay.Message, e transcript.Entry) (steer.Audience, error) {
	if g.Answer == steer.All {
		return steer.Audience{Everybody: true}, nil
	}
	line := s.lineOf(&e, m.MsgType, m.Mentions)
	if m.Role != relay.RoleUser {
		line.Bot = m.SenderAgentName
	}
	var entries []transcript.Entry
	var err error
	tail := 0
	a := steer.AudienceOf(line, g.Settings, s.bots(g), func(yield func(steer.Line) bool) {
		given := 0
		for _, n := range [...]int{audienceTail, farTail} { // only where m, or what is nearer, does not tell
			if tail < n && len(entries) >= tail && err == nil {
				tail = n
				entries, err = s.chats.transcript.TailTo(m.Channel, string(m.ChatID), n, e.TS)
				inTime(entries)
			}
			for ; given < len(entries); given++ {
				before := &entries[len(entries)-1-given]
				if before.MessageID != e.MessageID && !yield(s.lineOf(before, before.MsgType, nil)) {
					return
				}
			}
		}
	})
	return a, err
}

func (s *steering) lineOf(e *transcript.Entry, msgType string, mentions []relay.Mention) steer.Line {
	l := steer.Line{ID: e.MessageID, ParentID: e.ParentID, RootID: e.RootID, ThreadID: e.ThreadID,
		Named: func() steer.Names { return s.app.namedIn(e.Content, msgType, mentions) }}
	if e.Role == relay.RoleUser {
		l.Person = e.Sender
	} else {
		l.Bot = relay.AgentName(e.Sender)
	}
	return l
}

// namedIn is who a text names, and what its sender resolved in it.
func (a *app) namedIn(content, msgType string, mentions []relay.Mention) (n steer.Names) {
	refs := refsOf(mentions)
	found := a.directory().Find(mention.Text{Content: content, MsgType: msgType, Refs: refs})
	n.All = found.All
	for _, agent := range found.Agents {
		n.Bots = append(n.Bots, relay.AgentName(agent))
	}
	n.Others = slices.ContainsFunc(mentions, func(m relay.Mention) bool { return m.AgentName == "" && m.OpenID != "" })
	return n
}

// named are the bots of a group by their names, as people know them.
func (s *steering) named(g *groupState) []steer.Bot {
	out := make([]steer.Bot, len(g.members))
	for i, m := range g.members {
		out[i] = steer.Bot{Agent: m.Agent, Name: s.botName(g, m.Agent)}
	}
	return out
}

// bots are those of a group, in order of their ids.
func (s *steering) bots(g *groupState) []steer.Bot {
	online := s.presence.online()
	out := make([]steer.Bot, len(g.members))
	for i, m := range g.members {
		out[i] = steer.Bot{Agent: m.Agent, Name: m.Name, MentionAll: m.MentionAll, CanWrite: m.CanWrite,
			Online: m.Agent == s.cfg.Agent || online[m.Agent]}
	}
	return out
}

func (s *steering) isFor(a steer.Audience) bool {
	return a.Everybody || slices.Contains(a.Bots, s.cfg.Agent)
}

// forPerson says whether a person's message is for this bot; the reason if not, and where it is
// for one of several bots, these. What cannot be read keeps no person's message from a bot.
func (s *steering) forPerson(m *relay.Message, e transcript.Entry) (relay.Reason, []relay.AgentName) {
	g := s.records.state(m.Channel, m.ChatID)
	now := time.Now()
	if g.Muted[s.cfg.Agent].Holds(now) {
		return relay.Muted, nil
	}
	a, err := s.audience(g, m, e)
	switch {
	case err != nil:
		s.problems.set("steer", err)
		return relay.Pass, nil
	case len(a.OneOf) > 0:
		return relay.NotForMe, slices.DeleteFunc(a.OneOf, func(bot relay.AgentName) bool { return g.Muted[bot].Holds(now) })
	case !s.isFor(a):
		return relay.NotForMe, nil
	}
	return relay.Pass, nil
}

// wouldStop is why a message that a question is about would not be given to this bot; w and e say
// where it is and what it is. Nothing is written.
func (s *steering) wouldStop(w where, q relay.Question, e policy.Entry) (relay.Reason, error) {
	m := &relay.Message{Channel: w.channel, ChatID: w.chat, MessageID: q.MessageID, RelayMsgID: relay.MessageID(e.MessageID),
		Role: q.Role, SenderAgentName: relay.AgentName(e.Sender), SenderName: e.SenderName, Content: e.Content,
		MsgType: q.MsgType, Mentions: q.Mentions, ParentID: relay.MessageID(e.ParentID), RootID: relay.MessageID(e.RootID),
		ThreadID: e.ThreadID, TS: relay.Millis(e.TS), UserTS: relay.Millis(e.UserTS)}
	sent := m.TS.Time()
	if q.Role == relay.RoleUser {
		m.SenderAgentName, m.SenderName, m.MsgType = "", e.Sender, cmp.Or(q.MsgType, "text")
		m.SenderID = q.SenderID
		if why := s.asksTo(m, sentBy{kind: cmp.Or(q.SenderType, feishu.SenderUser)}); why != relay.Pass {
			return why, nil
		}
		why, bots := s.forPerson(m, entryOf(m, sent))
		if bots != nil && s.wouldBeOne(m, bots) {
			return relay.Pass, nil
		}
		return why, nil
	}
	why, err := s.steered(m, sent)
	if err != nil || why != relay.Pass {
		return why, err
	}
	over, err := s.overBudget(m, e.MessageID, sent)
	if over {
		why = relay.Budget
	}
	return why, err
}
