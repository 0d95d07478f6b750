//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu/gateway"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// A bot that goes from the gateway while it is given a result is given its other
// mail where it is.
func TestResultForABotThatIsGoneHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	hook := newWorker(t, nil)
	cfg := n.withMailbox(n.config("researcher"), "")
	cfg.InjectURL = hook.hook.URL
	a := n.start(cfg)
	coder := n.homeMade("coder", "", nil)
	shown, leave := n.hangs(apps[0], a)
	n.result(a, coder, "oc_asked", "the result")
	<-shown
	leave()
	coder.call(http.MethodPost, "/v1/mailbox/messages",
		json.RawMessage(`{"to":"researcher","content":"something else"}`), nil)
	hook.hears("message", "something else")
}

// Mail that a reader of the stream does not confirm comes again, also over a restart.
func TestMailComesAgainOnTheStream(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	cfg := n.withMailbox(n.config("researcher"), "")
	cfg.Gateway = sidecar.GatewayConfig{}
	a, coder := n.start(cfg), n.homeMade("coder", "", nil)
	stream := n.reads(a, "/v1/stream", "")
	n.until("the mail is sent", func() bool {
		return coder.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(
			`{"to":"researcher","content":"one question","id":"msg_1"}`), nil) == http.StatusAccepted
	})
	for range 2 {
		n.until("it comes", func() bool { return stream.has("one question") && stream.has(`"mailbox_type":"message"`) })
		stream.leave()
		a.stop()
		a = n.start(cfg)
		stream = n.reads(a, "/v1/stream", "")
	}
	n.until("it comes again", func() bool { return stream.has("one question") })
	stream.leave()
	stream = n.reads(a, "/v1/stream", "msg_1")
	coder.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(`{"to":"researcher","content":"another"}`), nil)
	n.until("the next one comes", func() bool { return stream.has("another") })
	if stream.has("one question") {
		t.Error("what was confirmed comes again")
	}
}

// A result that the bot is shown twice is the same message both times, also when
// a person spoke in between.
func TestResultShownAgainIsTheSameMessage(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	a := n.start(n.withMailbox(n.config("researcher"), ""))
	coder := n.homeMade("coder", "", nil)
	self := newWorker(t, func(context.Context) (string, error) { return "http://" + a.Addr().String(), nil })
	says := func(id string) {
		self.call(http.MethodPost, "/v1/inbound",
			map[string]string{"chat_id": "oc_asked", "chat_type": "p2p", "sender": "Tom",
				"message_id": id, "content": "hello"}, nil)
	}
	says("om_first")
	shown, leave := n.hangs(apps[0], a)
	n.result(a, coder, "oc_asked", "the result")
	first := <-shown
	leave()
	n.until("the bot is not waited for any more", func() bool {
		st, _ := a.Status().Gateway.(gateway.Status)
		return !st.Connected
	})
	says("om_second")
	bot := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	if again := n.hears(bot, "the result"); again.ID != first {
		t.Errorf("the result came as %s and as %s", first, again.ID)
	}
}

// hangs connects a bot to a gateway that acknowledges nothing, until it leaves.
// It tells the ids of what it is shown.
func (n *tenant) hangs(app feishusim.App, a *running) (shown <-chan string, leave func()) {
	n.t.Helper()
	ids, release := make(chan string, 10), make(chan struct{})
	ctx, cancel := context.WithCancel(n.t.Context())
	d := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(func(_ context.Context,
		e *larkim.P2MessageReceiveV1) error {
		ids <- *e.Event.Message.MessageId
		<-release
		return nil
	})
	ws := larkws.NewClient(app.ID, app.Secret, larkws.WithDomain("http://"+a.Gateway().String()),
		larkws.WithLogLevel(larkcore.LogLevelError), larkws.WithEventHandler(d))
	var bot sync.WaitGroup
	bot.Go(func() { _ = ws.Start(ctx) })
	n.t.Cleanup(func() {
		cancel()
		close(release)
		bot.Wait()
	})
	n.connected(a)
	return ids, cancel
}

// result has the coder do a task that from's agent gives it in a conversation.
func (n *tenant) result(from *running, coder *worker, chat relay.ChatID, text string) {
	asker := newWorker(n.t, func(context.Context) (string, error) { return "http://" + from.Addr().String(), nil })
	var job struct {
		TaskID string `json:"task_id"`
	}
	n.until("the coder can be asked", func() bool {
		return asker.call(http.MethodPost, "/v1/mailbox/tasks", map[string]any{"to": "coder", "text": "job",
			"callback": map[string]any{"channel": "feishu", "chat_id": chat}}, &job) == http.StatusAccepted
	})
	coder.hears("task", "job")
	coder.call(http.MethodPost, "/v1/mailbox/tasks/"+job.TaskID, map[string]string{"state": "completed", "text": text},
		nil)
}

// A program at the connector is posted a result in the private chat that asked,
// and replies to it there: Feishu, which knows no such message, is given the
// person's.
func TestConnectorRepliesToAResult(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	var c *running
	program := newWorker(t, func(context.Context) (string, error) { return "http://" + c.Addr().String(), nil })
	cfg := n.withMailbox(n.config("researcher"), "")
	cfg.Gateway, cfg.Connector, cfg.InjectURL = sidecar.GatewayConfig{}, true, program.hook.URL
	cfg.AppID, cfg.AppSecret = apps[0].ID, sidecar.Secret(apps[0].Secret)
	c = n.start(cfg)
	n.until("the connector is connected", func() bool { st := c.Status(); return st.Feishu != nil && *st.Feishu })
	coder := n.homeMade("coder", "", nil)

	asked, err := n.SayPrivate(apps[0].ID, n.user.ID, "write me a sort function")
	must(t, err)
	first := <-program.heard
	n.result(c, coder, first.ChatID, "func sort")
	result := program.hears("task_update", "func sort")
	if result.ChatID != first.ChatID || result.Metadata["chat_type"] != "p2p" {
		t.Errorf("the result came as %+v, want it in the private chat %s", result, first.ChatID)
	}
	status := program.call(http.MethodPost, "/v1/send", map[string]any{"chat_id": result.ChatID, "content": "here it is",
		"reply_to": result.Metadata["message_id"]}, nil)
	if status != http.StatusOK {
		t.Fatalf("the reply was answered %d", status)
	}
	answer, err := n.Wait(limited(t), func(m feishusim.Message) bool { return m.Text == "here it is" })
	must(t, err)
	if answer.ParentID != asked || answer.ChatID != string(first.ChatID) {
		t.Errorf("the reply stands in %s under %q, want under %s", answer.ChatID, answer.ParentID, asked)
	}
}

// In a private chat where only the bot has spoken yet, a result is private, too.
func TestResultInAPrivateChatThatTheBotBegan(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	a := n.start(n.withMailbox(n.config("researcher"), ""))
	bot := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	n.connected(a)
	sent, err := bot.client.Im.Message.Create(t.Context(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("open_id").
		Body(larkim.NewCreateMessageReqBodyBuilder().ReceiveId(n.OpenID(apps[0].ID, n.user.ID)).MsgType("text").
			Content(`{"text":"good morning"}`).Build()).Build())
	if err != nil || !sent.Success() {
		t.Fatalf("%v %+v", err, sent)
	}
	n.result(a, n.homeMade("coder", "", nil), relay.ChatID(*sent.Data.ChatId), "func sort")
	if h := n.hears(bot, "func sort"); h.ChatType != "p2p" || h.Chat != *sent.Data.ChatId || len(h.Mentions) != 0 {
		t.Errorf("the result came as %+v, want it in the private chat", h)
	}
}
