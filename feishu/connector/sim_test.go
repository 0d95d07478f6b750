package connector

import (
	"log/slog"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/send"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// TestWithTheStandIn says something to a bot on a connector, and lets it answer.
func TestWithTheStandIn(t *testing.T) {
	sim := feishusim.New(feishusim.Options{})
	base, err := sim.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	a := sim.AddApp(feishusim.App{Name: "BotA", Scopes: []string{"im:message.group_msg", "im:message"}})
	b := sim.AddApp(feishusim.App{Name: "BotB"})
	group := sim.AddGroup("G", a.ID, b.ID, sim.AddUser("Tom").ID)

	events, up := make(chan []byte, 8), make(chan struct{}, 8)
	known := feishu.NewDirectory(nil, feishu.NewAPI(base, a.ID, ""), nil)
	t.Cleanup(func() { known.Close() })
	known.LearnBot(feishu.Bot{OpenID: relay.OpenID(sim.OpenID(a.ID, b.ID)), Name: "BotB"})
	c, err := New(Options{
		BaseURL: base, AppID: a.ID, AppSecret: a.Secret, Logger: slog.New(slog.DiscardHandler),
		Tap: func(event []byte) feishu.Verdict {
			events <- event
			return feishu.Keep
		},
		Counter: func(event feishu.Counted) {
			if event == "connected" {
				up <- struct{}{}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)
	<-up
	question, err := sim.Say(group.ID, "Tom", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := feishu.ParseEvent(<-events); err != nil || e.Message == nil || string(e.Message.ID) != question {
		t.Fatalf("heard %+v, %v", e, err)
	}
	out := send.New(feishu.NewAPI(base, a.ID, a.Secret), known, func(feishu.Counted) {})
	s := send.Message{
		ChatID: relay.ChatID(group.ID), ReplyTo: relay.MessageID(question), IdempotencyKey: "k",
		Content: "**Hi** @BotB, not `@BotB`",
	}
	first, err := out.Send(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := out.Send(t.Context(), s, nil)
	if err != nil || again[0].ID != first[0].ID {
		t.Errorf("sent again as %v, %v", again, err)
	}
	m := first[0]
	if m.ChatID != s.ChatID || m.ParentID != s.ReplyTo || len(m.Mentions) != 1 || m.Mentions[0].Name != "BotB" {
		t.Errorf("got %+v", m)
	}
	_, err = out.Send(t.Context(), send.Message{ChatID: "oc_elsewhere", Content: "x"}, nil)
	if err == nil {
		t.Error("sent to a chat that is none")
	}
}
