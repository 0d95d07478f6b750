package sidecar

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/web"
	"feishu-relay/loop"
	"feishu-relay/mailbox"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Send relays what the bot says that it sent.
func (s *Sidecar) Send(ctx context.Context, out relay.Outbound) (relay.Sent, error) {
	sent, err := s.core.Say(ctx, out)
	if err == nil && !sent.Relayed {
		s.metrics.sent.WithLabelValues("false").Inc()
	}
	return sent, err
}

// hear takes what the bot says that it heard from a person.
func (s *Sidecar) hear(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) {
	isGroup := core.IsGroup(h.ChatType, h.Metadata)
	s.chats.noteTalk(talk{Channel: core.ChatOf(h.Channel, "").Channel, ChatID: h.ChatID, ChatType: chatType(isGroup),
		MessageID: h.MessageID, At: cmp.Or(max(h.TS, 0), relay.MillisOf(time.Now()))})
	sent, err := s.core.Hear(ctx, h, steers)
	if errors.Is(err, core.ErrSteers) {
		return sent, relay.Errorf(web.CodeAdminToken,
			"commands reported here need ADMIN_TOKEN, the token for people; API_TOKEN is the bot's")
	}
	return sent, err
}

// Decide answers POST /v1/decide: what the policy says of a message.
func (s *Sidecar) Decide(ctx context.Context, q relay.Question) (policy.Decision, error) {
	of := core.ChatOf(q.Channel, q.ChatID)
	m := &relay.Message{Channel: of.Channel, ChatID: of.ID, MessageID: q.MessageID, RelayMsgID: q.MessageID, Role: q.Role,
		SenderAgentName: q.SenderAgentName, SenderName: cmp.Or(q.SenderName, q.Sender), Content: q.Content,
		MsgType: cmp.Or(q.MsgType, "text"), Mentions: q.Mentions, SenderID: q.SenderID, ParentID: q.ParentID,
		RootID: q.RootID, ThreadID: q.ThreadID,
		TS: q.TS, UserTS: q.UserTS, Metadata: relay.Metadata{}}
	s.core.Group(of, func(g *group.State) {
		if l := g.Line(q.MessageID); l != nil && q.MessageID != "" && q.Role != relay.RoleUser { // it knows more of it
			m.TS, m.UserTS, m.ParentID, m.RootID, m.ThreadID = l.TS, l.UserTS, l.Parent, l.Root, l.Thread
			if l.PartOf != "" {
				m.Metadata[group.MetaPartOf] = quote(string(l.PartOf))
			}
		}
	})
	m.TS = cmp.Or(m.TS, relay.MillisOf(time.Now()))
	m.RelayMsgID = cmp.Or(m.RelayMsgID, "decide")
	e := group.Event{Kind: group.Arrived, At: time.Now(), Msg: m, Names: group.NamesOf(s.app.directory(), m)}
	if q.Role == relay.RoleUser {
		if m.SenderID == "" && (strings.HasPrefix(q.Sender, "ou_") || strings.HasPrefix(q.Sender, "cli_")) {
			m.SenderID = relay.OpenID(q.Sender)
		}
		_, isBot := s.app.botOf(m.SenderID)
		e.Kind, e.User = group.Heard, cmp.Or(q.SenderType, "user") == "user" && !isBot
	}
	d, why, err := s.core.Decide(ctx, e)
	if err != nil {
		return policy.Decision{}, err
	}
	if q.Role == relay.RoleUser && why == relay.Pass {
		mentioned := s.app.addressed(q.Content, q.MsgType, q.Mentions)
		question, err := s.core.Question(of, policy.Entry{Role: policy.RoleUser, Sender: cmp.Or(q.Sender, q.SenderName),
			Content: q.Content, TS: int64(m.TS)}, mentioned)
		if err != nil {
			return policy.Decision{}, err
		}
		return policy.DecideUser(ctx, s.cfg.groupPolicyFor(s.chats.group(of.ID)), mentioned, s.limits(), question,
			s.judge), nil
	}
	if why != relay.Pass && d.Tier == "" {
		return policy.Decision{Tier: policy.TierSettings, Reason: string(why), Detail: group.ReasonText(why, false),
			Depth: d.Depth}, nil
	}
	return d, nil
}

// depths are the depths of a chat's lines, 0 where they are not known.
func (s *Sidecar) depths(channel, chat string, entries []transcript.Entry) []int {
	depths := make([]int, len(entries))
	s.core.Group(core.ChatOf(channel, relay.ChatID(chat)), func(g *group.State) {
		for i, e := range entries {
			if l := g.Line(relay.MessageID(e.MessageID)); l != nil {
				depths[i] = l.Depth
			}
		}
	})
	return depths
}

// groupShown is what GET /v1/transcripts returns of a group: its name by the groups file, else by Feishu, and the
// limits that hold in it.
func (s *Sidecar) groupShown(channel string, chat relay.ChatID) httpapi.Group {
	of := core.ChatOf(channel, chat)
	base := s.groupConfig(of).Base
	limits := httpapi.GroupLimits{MaxDepth: base.Limit, Threshold: base.Threshold, Check: base.Judge}
	s.core.Group(of, func(g *group.State) {
		set := g.View(time.Now()).Settings
		limits = httpapi.GroupLimits{MaxDepth: set.Limit, Threshold: set.Threshold, Check: set.Judge}
	})
	return httpapi.Group{Name: s.chatName(of), Limits: limits}
}

func (s *Sidecar) chatName(of loop.Chat) string {
	name := s.chats.group(of.ID).Name
	if of.Channel == relay.DefaultChannel {
		name = cmp.Or(name, s.app.book.Chat(of.ID).Name)
	}
	return name
}

// apiGroups is the groups as the API shows and changes them.
type apiGroups struct{ *Sidecar }

func (a apiGroups) Groups() []group.Group {
	out := []group.Group{}
	var chats []loop.Chat
	a.core.View(func(s *loop.Core) { chats = s.Chats() })
	for _, of := range chats {
		if g, err := a.Group(of.Channel, of.ID); err == nil {
			out = append(out, g)
		}
	}
	return out
}

func (a apiGroups) Group(channel string, chat relay.ChatID) (g group.Group, err error) {
	of := core.ChatOf(channel, chat)
	err = relay.Errorf(relay.CodeUnknownGroup, "this bot is in no group %.100q that it has heard of; "+
		"GET /v1/groups lists its groups", chat)
	a.core.Group(of, func(state *group.State) {
		if state.In() {
			g, err = state.View(time.Now()), nil
		}
	})
	g.Channel, g.ChatID, g.Name = of.Channel, of.ID, a.chatName(of)
	connections := a.presence.seen.Load().bots
	for i := range g.Bots {
		bot := &g.Bots[i]
		connection := connections[bot.Agent]
		if bot.Agent == a.cfg.Agent {
			connection = a.botIs()
		}
		if bot.Online && connection != nil && !connection.Connected {
			bot.Away = relay.MillisOf(connection.Since)
		}
		bot.Name = a.botName(bot.Agent, bot.Name)
	}
	return g, err
}

// botName is how people know a bot.
func (s *Sidecar) botName(agent relay.AgentName, name string) string {
	if name == "" {
		bot, _ := s.app.book.Agent(agent, "", "")
		name = bot.Name
	}
	return cmp.Or(name, s.presence.seen.Load().names[agent], string(agent))
}

func (a apiGroups) Change(channel string, chat relay.ChatID, verb group.Verb, body []byte,
	bots []relay.AgentName) (group.Group, error) {
	g, err := a.Group(channel, chat)
	for _, bot := range bots {
		if err == nil && !slices.ContainsFunc(g.Bots, func(b group.Bot) bool { return b.Agent == bot }) {
			err = relay.Errorf(relay.CodeInvalidRequest, "bots: no bot %.100q is in this group", bot)
		}
	}
	if err != nil {
		return group.Group{}, err
	}
	err = a.core.Change(context.Background(), core.ChatOf(channel, chat), verb, body, bots)
	if errors.Is(err, loop.ErrRefused) {
		return group.Group{}, &relay.Error{Code: relay.CodeOutboxUnavailable,
			Message: "the change cannot be written down (see /v1/status); send it again later"}
	}
	if err != nil {
		return group.Group{}, err
	}
	return a.Group(channel, chat)
}

// outcomes is what became of the newest messages of a chat, the oldest first.
func (s *Sidecar) outcomes(_ context.Context, channel string, chat relay.ChatID, limit int) (list []httpapi.Outcome,
	complete bool, err error) {
	of := core.ChatOf(channel, chat)
	s.core.Group(of, func(g *group.State) {
		for id, verdicts := range g.Early() {
			for _, v := range verdicts {
				list = append(list, outcomeOf(of, id, "", "", v))
			}
		}
		for _, l := range g.Lines() {
			for _, v := range l.Verdicts {
				list = append(list, outcomeOf(of, l.ID, cmp.Or(l.Bot, v.Agent), l.Thread, v)) // a person's has its hearer's name
			}
		}
	})
	return list[max(0, len(list)-limit):], true, nil
}

func outcomeOf(of loop.Chat, id relay.MessageID, sender relay.AgentName, thread string,
	v group.Verdict) httpapi.Outcome {
	return httpapi.Outcome{Agent: v.Agent, Channel: of.Channel, ChatID: of.ID, RelayMsgID: id, Sender: sender,
		ThreadID: thread, At: v.At, Decision: v.Decision, Stopped: v.Stopped, Detail: v.Detail, Delivered: v.Delivered,
		Door: v.Door}
}

// deliveries are the deliveries, and the mail, as the local API shows them.
type deliveries struct{ *Sidecar }

func (d deliveries) InProgress() (out []httpapi.Delivery) {
	d.core.View(func(s *loop.Core) {
		for _, p := range s.Bot().InProgress() {
			of := loop.ChatOf(p.Chat)
			if isMail(p.Key) {
				of = core.ChatOf(relay.MailChannel, relay.ChatID(p.From))
			}
			out = append(out, httpapi.Delivery{RelayMsgID: p.ID, Channel: of.Channel, ChatID: of.ID, Door: p.Channel,
				Since: relay.Timestamp(p.Since.Time())})
		}
	})
	return out
}

// Settle notes what the bot says of a message that it was given, or of mail.
func (d deliveries) Settle(ctx context.Context, id relay.MessageID, state, reason string) error {
	result := deliver.Result(state)
	err := d.core.Settle(ctx, id, result, reason)
	if errors.Is(err, deliver.ErrUnknown) {
		err = d.settleMail(ctx, id, result, reason)
	}
	if conflict, ok := errors.AsType[*deliver.ConflictError](err); ok {
		return &relay.Error{Code: relay.CodeSettled, Message: conflict.Error()}
	}
	if errors.Is(err, deliver.ErrUnknown) {
		return relay.Errorf(relay.CodeUnknownMessage,
			"this bot was not given a message %.200q; GET /v1/deliveries lists what is in progress", id)
	}
	return err
}

// settleMail settles mail that waits in the inbox, or was handled before.
func (d deliveries) settleMail(ctx context.Context, id relay.MessageID, state deliver.Result, reason string) error {
	switch {
	case d.mail == nil:
	case d.mail.agent.Waits(string(id)):
		switch state {
		case deliver.Delivered:
			return d.mail.agent.Ack(ctx, string(id))
		case deliver.Refused:
			return d.mail.agent.Nack(ctx, string(id), mailbox.InvalidMessage, reason)
		}
		return nil // it waits, and is handed over again
	case d.mail.agent.Handled(string(id)):
		if state != deliver.Delivered {
			return &deliver.ConflictError{Result: deliver.Delivered}
		}
		return nil
	}
	return deliver.ErrUnknown
}
