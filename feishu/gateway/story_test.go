package gateway

import (
	"context"
	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkcardkit "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// lab is a whole Feishu group with two bots; the first speaks through a gateway.
type lab struct {
	*rig
	sim    *feishusim.Server
	simURL string
	a, b   feishusim.App
	ann    feishusim.User
	group  feishusim.Group
	events chan *larkim.P2MessageReceiveV1 // what bot A hears
}

func newLab(t *testing.T, o func(*Options)) *lab {
	t.Helper()
	sim := feishusim.New(feishusim.Options{Client: feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, PingInterval: 120}})
	t.Cleanup(func() { _ = sim.Close() })
	simURL, err := sim.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{sim: sim, simURL: simURL, events: make(chan *larkim.P2MessageReceiveV1, 64)}
	l.a = sim.AddApp(feishusim.App{Name: "BotA", VerificationToken: "token", Scopes: append(feishusim.DefaultScopes(), feishusim.ScopeGroupAll)})
	l.b = sim.AddApp(feishusim.App{Name: "BotB"})
	l.ann = sim.AddUser("Ann")
	l.group = sim.AddGroup("Lab", l.a.ID, l.b.ID, l.ann.ID)
	r := &rig{t: t, host: &host{said: make(chan Sent, 64)}, app: l.a.ID, counts: &counts{m: map[string]int{}}}
	l.rig = r
	api := feishu.NewAPI(simURL, l.a.ID, "")
	r.book = feishu.NewDirectory(nil, api, nil)
	opts := Options{Upstream: mustURL(simURL), Book: r.book, API: api, Host: r.host, Loopback: true,
		Settle: 50 * time.Millisecond, EditSettle: 100 * time.Millisecond, Counter: r.counts.add,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if o != nil {
		o(&opts)
	}
	if r.Gateway, err = New(opts); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(r.Handler())
	r.url = front.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := r.Close(context.Background()); err != nil {
			t.Log(err)
		}
		front.CloseClientConnections()
		front.Close()
		_ = r.book.Close()
	})
	return l
}

// connect starts bot A on the long connection through the gateway.
func (l *lab) connect() {
	l.t.Helper()
	d := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(func(_ context.Context, e *larkim.P2MessageReceiveV1) error {
		l.events <- e
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

func (l *lab) hears() *larkim.P2MessageReceiveV1 {
	l.t.Helper()
	select {
	case e := <-l.events:
		return e
	case <-l.soon().Done():
		l.t.Fatal("the bot heard nothing")
	}
	panic("unreachable")
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

// A person asks, the bot answers with text and with a streamed card, another bot
// speaks, and one is injected: all of it with the official SDK, unchanged.
func TestStory(t *testing.T) {
	l := newLab(t, nil)
	heard, native := make(chan feishu.Message, 8), make(chan feishu.Message, 8)
	l.host.heard = func(m feishu.Message) error { heard <- m; return nil }
	l.host.native = func(m feishu.Message, _ bool) error { native <- m; return nil }
	l.connect()
	if l.book.Self().AppID != l.a.ID {
		t.Fatalf("the bootstrap taught %q", l.book.Self().AppID)
	}

	question, err := l.sim.Say(l.group.ID, l.ann.ID, "@BotA hello")
	if err != nil {
		t.Fatal(err)
	}
	if e := l.hears(); *e.Event.Message.MessageId != question {
		t.Errorf("the bot heard %s", *e.Event.Message.MessageId)
	}
	if m := <-heard; string(m.ID) != question || m.Text() != "@BotA hello" {
		t.Errorf("the host heard %+v", m)
	}

	a := l.bot(l.a, l.url)
	l.book.LearnBot(feishu.Bot{OpenID: relay.OpenID(l.sim.OpenID(l.a.ID, l.b.ID)), AppID: l.b.ID, Name: "BotB"})
	id := l.create(a, "text", textOf(`<at user_id="`+l.sim.OpenID(l.a.ID, l.b.ID)+`"></at> please look`))
	if m := l.said(); string(m.ID) != id || m.Text != "@BotB please look" || len(m.Mentions) != 1 || m.Mentions[0].AppID != l.b.ID {
		t.Errorf("published %+v", m)
	}
	waitFor(t, func() bool { return l.book.Self().OpenID == relay.OpenID(l.sim.OpenID(l.a.ID, l.a.ID)) })

	card, err := a.Cardkit.V1.Card.Create(t.Context(), larkcardkit.NewCreateCardReqBuilder().Body(larkcardkit.NewCreateCardReqBodyBuilder().Type("card_json").
		Data(`{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","element_id":"content","content":""}]}}`).Build()).Build())
	if err != nil || !card.Success() {
		t.Fatal(err, card)
	}
	cardMessage := l.create(a, "interactive", `{"type":"card","data":{"card_id":"`+*card.Data.CardId+`"}}`)
	for i, text := range []string{"Let", "Let me", "Let me **think**."} {
		resp, err := a.Cardkit.V1.CardElement.Content(t.Context(), larkcardkit.NewContentCardElementReqBuilder().CardId(*card.Data.CardId).ElementId("content").Body(
			larkcardkit.NewContentCardElementReqBodyBuilder().Content(text).Sequence(i+1).Build()).Build())
		if err != nil || !resp.Success() {
			t.Fatal(err, resp)
		}
	}
	l.silent()
	end, err := a.Cardkit.V1.Card.Settings(t.Context(), larkcardkit.NewSettingsCardReqBuilder().CardId(*card.Data.CardId).Body(
		larkcardkit.NewSettingsCardReqBodyBuilder().Settings(`{"config":{"streaming_mode":false}}`).Sequence(9).Build()).Build())
	if err != nil || !end.Success() {
		t.Fatal(err, end)
	}
	truth, _ := l.sim.Message(cardMessage)
	if m := l.said(); string(m.ID) != cardMessage || m.Text != "Let me **think**." || int64(m.CreateTime) != truth.CreateTime {
		t.Errorf("published %+v, in truth %+v", m, truth)
	}

	other := l.create(l.bot(l.b, l.simURL), "text", textOf("I am BotB"))
	if m := <-native; string(m.ID) != other || m.Text() != "I am BotB" {
		t.Errorf("the host got %+v", m)
	}
	if _, err := l.sim.WaitDelivery(l.soon(), func(d feishusim.Delivery) bool { return d.App == l.a.ID && d.MessageID == other && d.Acked == 200 }); err != nil {
		t.Errorf("Feishu got no acknowledgement: %v", err)
	}

	self := l.book.Self()
	in := feishu.Injected{EventID: "relay-1", AppID: l.a.ID, SenderType: feishu.SenderBot, Sender: feishu.Bot{OpenID: "ou_b", Name: "BotB"},
		Self: feishu.Bot{OpenID: self.OpenID, Name: self.Name}, MentionsSelf: true, Message: relay.MessageID(other), ChatID: relay.ChatID(l.group.ID), Text: "I am BotB"}
	event, err := in.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Inject(l.soon(), feishu.Injection{Event: event}); err != nil {
		t.Fatal(err)
	}
	e := l.hears()
	if *e.Event.Message.MessageId != other || *e.Event.Message.Content != `{"text":"@_user_1 I am BotB"}` {
		t.Errorf("the bot heard %s %s", *e.Event.Message.MessageId, *e.Event.Message.Content)
	}
	select {
	case e := <-l.events:
		t.Errorf("the bot heard more: %s", *e.Event.Message.Content)
	default:
	}

	l.sim.Leave(l.group.ID, l.a.ID)
	waitFor(t, func() bool { return l.book.Chat(relay.ChatID(l.group.ID)).In == feishu.No })
	status := js(l.Status())
	if !strings.Contains(status, l.a.ID) || !strings.Contains(status, `"connected":true`) {
		t.Errorf("status %s", status)
	}
}

// The same in webhook mode: Feishu posts to the gateway, and so do we to the bot.
func TestWebhookStory(t *testing.T) {
	bot := httptest.NewServer(dispatcherServer(t))
	defer bot.Close()
	l := newLab(t, func(o *Options) {
		o.Webhook = &webhook.Options{BotURL: bot.URL, VerificationToken: "token"}
	})
	heard := make(chan feishu.Message, 8)
	l.host.heard = func(m feishu.Message) error { heard <- m; return nil }
	var event string
	for id, h := range map[relay.MessageID]*httptest.Server{"om_q": httptest.NewServer(l.Handler()), "om_r": httptest.NewServer(l.WebhookHandler())} {
		event = strings.Replace(eventOf(l.a.ID, "user", "ou_ann", string(id), l.group.ID, "group", "hi"), `"header":{`, `"header":{"token":"token",`, 1)
		resp, err := h.Client().Post(h.URL+"/webhook/event", "application/json", strings.NewReader(event))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("Feishu got %d", resp.StatusCode)
		}
		if m := <-heard; m.ID != id {
			t.Errorf("heard %+v", m)
		}
		h.Close()
	}
	if l.book.Self().AppID != l.a.ID {
		t.Errorf("the webhook taught %q", l.book.Self().AppID)
	}
	if err := l.Inject(l.soon(), feishu.Injection{Event: []byte(event)}); err != nil {
		t.Error(err)
	}
	if !l.Connected() {
		t.Error("not connected")
	}
}

func dispatcherServer(t *testing.T) http.Handler {
	d := dispatcher.NewEventDispatcher("token", "").OnP2MessageReceiveV1(func(_ context.Context, e *larkim.P2MessageReceiveV1) error { return nil })
	return http.HandlerFunc(httpserverext.NewEventHandlerFunc(d, larkevent.WithLogLevel(larkcore.LogLevelError)))
}
