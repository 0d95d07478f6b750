package gateway

import (
	"context"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/feishusim"
)

// lab is a whole Feishu group with two bots; the first speaks through a gateway.
type lab struct {
	*rig
	sim    *feishusim.Server
	simURL string
	a, b   feishusim.App
	ann    feishusim.User
	group  feishusim.Group
}

func newLab(t *testing.T, o func(*Options)) *lab {
	t.Helper()
	sim := feishusim.New(feishusim.Options{Client: feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, PingInterval: 120}})
	t.Cleanup(func() { _ = sim.Close() })
	simURL, err := sim.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{sim: sim, simURL: simURL}
	l.a = sim.AddApp(feishusim.App{Name: "BotA", VerificationToken: "token", Scopes: append(feishusim.DefaultScopes(), feishusim.ScopeGroupAll)})
	l.b = sim.AddApp(feishusim.App{Name: "BotB"})
	l.ann = sim.AddUser("Ann")
	l.group = sim.AddGroup("Lab", l.a.ID, l.b.ID, l.ann.ID)
	l.rig = startRig(t, t.TempDir(), simURL, l.a.ID, o)
	return l
}

// connect starts bot A on the long connection through the gateway.
func (l *lab) connect() {
	l.t.Helper()
	d := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(func(context.Context, *larkim.P2MessageReceiveV1) error {
		return nil
	}).OnP2ChatMemberBotDeletedV1(func(context.Context, *larkim.P2ChatMemberBotDeletedV1) error { return nil }).
		OnP2ChatMemberBotAddedV1(func(context.Context, *larkim.P2ChatMemberBotAddedV1) error { return nil })
	c := larkws.NewClient(l.a.ID, l.a.Secret, larkws.WithDomain(l.url), larkws.WithEventHandler(d), larkws.WithLogLevel(larkcore.LogLevelError))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Start(ctx) }()
	l.t.Cleanup(func() { cancel(); <-done })
	changed := l.Changed()
	for !l.Connected() {
		select {
		case <-changed:
			changed = l.Changed()
		case <-l.soon().Done():
			l.t.Fatal("the bot did not connect")
		}
	}
}

func (l *lab) soon() context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
	l.t.Cleanup(cancel)
	return ctx
}

func (l *lab) bot(a feishusim.App, base string) *lark.Client {
	return lark.NewClient(a.ID, a.Secret, lark.WithOpenBaseUrl(base), lark.WithLogLevel(larkcore.LogLevelError))
}

func (l *lab) create(c *lark.Client, msgType, content string) string {
	l.t.Helper()
	resp, err := c.Im.V1.Message.Create(l.t.Context(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(
		larkim.NewCreateMessageReqBodyBuilder().ReceiveId(l.group.ID).MsgType(msgType).Content(content).Build()).Build())
	if err != nil || !resp.Success() {
		l.t.Fatal(err, resp)
	}
	return *resp.Data.MessageId
}
