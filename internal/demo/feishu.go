package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// clientConfig is what the stand-in tells long connections: Feishu's own seconds
// are 30 and 120, and the gateway makes 2 and 3 of them. A demo has less time.
var clientConfig = feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 1, PingInterval: 1}

// populate makes the stand-in for Feishu, with the user, the bots and their groups.
func (s *stage) populate() error {
	s.feishu = feishusim.New(feishusim.Options{Client: clientConfig})
	s.user = s.feishu.AddUser(s.out.user()).ID
	for _, c := range s.script.Cast {
		s.apps = append(s.apps, s.feishu.AddApp(feishusim.App{Name: c.Name})) // hears people, and no bots
	}
	var world feishusim.Scenario
	for _, g := range s.script.Groups {
		members := []string{s.user}
		for _, agent := range g.Members {
			members = append(members, s.apps[s.index(agent)].ID)
		}
		world.Groups = append(world.Groups, feishusim.Group{ID: string(g.ID), Name: g.Name, Members: members})
	}
	return s.feishu.Build(world)
}

// index is the place of an agent in the cast.
func (s *stage) index(agent string) int { return place(s.script.Cast, agent) }

// openFeishu lets Feishu answer, at base, and enters on the board what is said there until ctx ends.
func (s *stage) openFeishu(ctx context.Context) (base string) {
	base, err := s.feishu.Listen("127.0.0.1:0")
	must(wrap(err, "the stand-in for Feishu"))
	activities, unwatch, err := s.feishu.Watch()
	must(wrap(err, "the stand-in for Feishu"))
	s.listeners.Go(func() {
		defer unwatch()
		for {
			select {
			case <-ctx.Done():
				return
			case happened := <-activities:
				s.happened(happened)
			}
		}
	})
	return base
}

// happened enters what happened in a chat.
func (s *stage) happened(what feishusim.Activity) {
	switch m := what.Message; what.Kind {
	case "message":
		s.enter(m)
	case "edit":
		s.board.rewrite(relay.MessageID(m.ID), m.Text, m.Streaming)
	case "reaction":
		if n := len(m.Reactions); n > 0 {
			by := m.Reactions[n-1].By
			if c := s.owner(by); c != nil {
				by = c.Name
			}
			s.board.reacted(by, m.Reactions[n-1].Emoji, m.Text)
		}
	}
}

func (s *stage) enter(said *feishusim.Message) {
	m := &message{id: relay.MessageID(said.ID), ts: relay.Millis(said.CreateTime), chat: relay.ChatID(said.ChatID),
		name: said.SenderName, text: said.Text, streaming: said.Streaming}
	if said.CardID != "" {
		m.drafts = []string{said.Text}
	}
	g, isGroup := s.board.groups[m.chat]
	if !isGroup { // with the one bot that has any
		g.Members = []string{s.script.Cast[0].Agent}
		m.group, m.to = s.out.say("private", "私聊"), []string{}
	}
	if c := s.owner(said.Sender); c != nil {
		m.sender = c.Agent
	} else {
		m.to = g.Members
	}
	s.board.add(m)
}

// owner is whose an app is; nil: nobody's.
func (s *stage) owner(app string) *character {
	i := slices.IndexFunc(s.apps, func(a feishusim.App) bool { return a.ID == app })
	if i < 0 {
		return nil
	}
	return &s.script.Cast[i]
}

// says lets the user speak: in a group, "" is the first, or, without groups, with the first bot alone.
func (s *stage) says(ctx context.Context, chat relay.ChatID, text string) {
	said := feishusim.Utterance{User: s.user, App: s.apps[0].ID, Text: text}
	if len(s.script.Groups) > 0 {
		said.App, said.Chat = "", cmp.Or(string(chat), string(s.script.Groups[0].ID))
	}
	id, err := s.feishu.Post(said)
	must(err)
	s.said(ctx, id)
}

// said waits until a message stands on the board, and returns it; nil: it is not in Feishu, since it was said in a chat
// with an agent.
func (s *stage) said(ctx context.Context, id string) (m *message) {
	if _, known := s.feishu.Message(id); known {
		s.await(ctx, "a message that Feishu accepted", func() bool {
			m = s.board.byID[relay.MessageID(id)]
			return m != nil
		})
	}
	return m
}

// includeBots lets Feishu deliver bots' messages to bots too. So far it must not have.
func (s *stage) includeBots(context.Context, string) {
	said := s.board.ofBots(0)
	for _, d := range s.feishu.Deliveries() {
		if d.EventType == messageReceived && slices.Contains(said, d.MessageID) { // reactions to it are events, too
			must(fmt.Errorf("Feishu delivered %s to a bot, which it was not to yet", d.MessageID))
		}
	}
	for _, app := range s.apps {
		app.Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeAtIncludeBot, feishusim.ScopeGroupBots)
		_, err := s.feishu.UpdateApp(app)
		must(err)
	}
}

// deliveredByFeishu waits until the sidecars have taken all of the scene's messages of bots from Feishu.
func (s *stage) deliveredByFeishu(ctx context.Context, _ string) {
	ctx, cancel := context.WithTimeoutCause(ctx, settledWithin,
		fmt.Errorf("Feishu's own copies: not within %s", settledWithin))
	defer cancel()
	for _, id := range s.board.ofBots(s.from) {
		_, err := s.feishu.WaitDelivery(ctx, func(d feishusim.Delivery) bool {
			return d.MessageID == id && d.EventType == messageReceived && d.Acked == 200
		})
		must(err)
	}
}

// messageReceived is the type of the event that brings a bot a message.
const messageReceived = "im.message.receive_v1"
