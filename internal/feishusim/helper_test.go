package feishusim

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// room is a group with a user and bots that speak through the official SDK.
type room struct {
	*Server
	t     *testing.T
	url   string
	ann   User
	apps  []App
	group Group
}

var quick = Options{
	Redeliver: []time.Duration{20 * time.Millisecond, 40 * time.Millisecond},
	PushAfter: 20 * time.Millisecond, Client: ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 0, PingInterval: 120},
}

func newRoom(t *testing.T, o Options, apps ...App) *room {
	t.Helper()
	s := New(o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &room{Server: s, t: t, url: url, ann: s.AddUser("Ann")}
	members := []string{r.ann.ID}
	for _, a := range apps {
		a = s.AddApp(a)
		r.apps = append(r.apps, a)
		members = append(members, a.ID)
	}
	r.group = s.AddGroup("Lab", members...)
	return r
}

// quiet is an SDK logger that says nothing.
type quiet struct{}

func (quiet) Debug(context.Context, ...any) {}
func (quiet) Info(context.Context, ...any)  {}
func (quiet) Warn(context.Context, ...any)  {}
func (quiet) Error(context.Context, ...any) {}

func (r *room) client(a App) *lark.Client {
	return lark.NewClient(a.ID, a.Secret, lark.WithOpenBaseUrl(r.url), lark.WithLogger(quiet{}), lark.WithLogLevel(larkcore.LogLevelError))
}

// bot is an SDK client on the long connection.
type bot struct {
	app    App
	events chan *larkim.P2MessageReceiveV1
	stop   func()

	mu     sync.Mutex
	handle func(*larkim.P2MessageReceiveV1) error
}

func (r *room) connect(a App) *bot {
	r.t.Helper()
	b := &bot{app: a, events: make(chan *larkim.P2MessageReceiveV1, 100)}
	d := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(func(_ context.Context, e *larkim.P2MessageReceiveV1) error {
		b.events <- e
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.handle != nil {
			return b.handle(e)
		}
		return nil
	}).OnP2MessageRecalledV1(func(context.Context, *larkim.P2MessageRecalledV1) error { return nil }).
		OnP2MessageReactionCreatedV1(func(context.Context, *larkim.P2MessageReactionCreatedV1) error { return nil }).
		OnP2MessageReactionDeletedV1(func(context.Context, *larkim.P2MessageReactionDeletedV1) error { return nil }).
		OnP2ChatMemberBotAddedV1(func(context.Context, *larkim.P2ChatMemberBotAddedV1) error { return nil }).
		OnP2ChatMemberBotDeletedV1(func(context.Context, *larkim.P2ChatMemberBotDeletedV1) error { return nil }).
		OnCustomizedEvent("im.chat.disbanded_v1", func(context.Context, *larkevent.EventReq) error { return nil })
	c := larkws.NewClient(a.ID, a.Secret, larkws.WithDomain(r.url), larkws.WithEventHandler(d), larkws.WithLogger(quiet{}))
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Start(ctx)
	}()
	b.stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(b.stop)
	if err := r.WaitConnected(r.soon(), a.ID, 1); err != nil {
		r.t.Fatalf("connect %s: %v", a.Name, err)
	}
	return b
}

// soon is a context that bounds a wait for what must happen.
func (r *room) soon() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *room) next(b *bot) *larkim.P2MessageReceiveV1 {
	r.t.Helper()
	select {
	case e := <-b.events:
		return e
	case <-r.soon().Done():
		r.t.Fatalf("%s got no event", b.app.Name)
		return nil
	}
}

func (r *room) say(text string, mentions ...string) string {
	r.t.Helper()
	id, err := r.Say(r.group.ID, r.ann.ID, text, mentions...)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// send sends a message with the SDK and returns its id, or the code.
func (r *room) send(c *lark.Client, chat, msgType, content string) (string, int) {
	r.t.Helper()
	resp, err := c.Im.V1.Message.Create(r.t.Context(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").
		Body(larkim.NewCreateMessageReqBodyBuilder().ReceiveId(chat).MsgType(msgType).Content(content).Build()).Build())
	if err != nil {
		r.t.Fatal(err)
	}
	if !resp.Success() {
		return "", resp.Code
	}
	return *resp.Data.MessageId, 0
}

func (r *room) mustSend(c *lark.Client, msgType, content string) string {
	r.t.Helper()
	id, code := r.send(c, r.group.ID, msgType, content)
	if code != 0 {
		r.t.Fatalf("send %s: code %d", msgType, code)
	}
	return id
}

func textOf(s string) string {
	b, _ := json.Marshal(map[string]string{"text": s})
	return string(b)
}

func (r *room) message(id string) Message {
	r.t.Helper()
	m, ok := r.Message(id)
	if !ok {
		r.t.Fatalf("no message %s", id)
	}
	return m
}
