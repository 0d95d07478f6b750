//go:build unix

package sidecar_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// tenant is a Feishu stand-in with one group in it, and the folder that the
// sidecars of its bots share.
type tenant struct {
	*feishusim.Server
	t    *testing.T
	dir  string
	url  *url.URL
	user feishusim.User
	chat string // the group
	mu   sync.Mutex
	logs []string
	runs []*running // those in this process that run; guarded by mu
}

func newTenant(t *testing.T, o feishusim.Options, apps ...feishusim.App) (*tenant, []feishusim.App) {
	t.Helper()
	o.AckTimeout = cmp.Or(o.AckTimeout, patience) // on a busy machine a bot needs longer than Feishu's 3 s
	n := &tenant{Server: feishusim.New(o), t: t, dir: t.TempDir()}
	t.Cleanup(func() { _ = n.Close() })
	base, err := n.Listen("127.0.0.1:0")
	must(t, err)
	if n.url, err = url.Parse(base); err != nil {
		t.Fatal(err)
	}
	n.user = n.AddUser("Tom")
	members := []string{n.user.ID}
	for i := range apps {
		apps[i] = n.AddApp(apps[i])
		members = append(members, apps[i].ID)
	}
	n.chat = n.AddGroup("R&D", members...).ID
	return n, apps
}

func (n *tenant) config(agent string) sidecar.Config {
	return sidecar.Config{
		Agent: relay.AgentName(agent), ListenAddr: "127.0.0.1:0", BaseURL: n.url, DataDir: n.dir,
		Gateway: sidecar.GatewayConfig{Addr: "127.0.0.1:0", Settle: 200 * time.Millisecond, EditSettle: 400 * time.Millisecond},
		Backend: "file", RelayDir: filepath.Join(n.dir, "relay"), TranscriptDir: filepath.Join(n.dir, "transcripts"),
		GroupsFile: filepath.Join(n.dir, "groups.json"), MaxAge: 10 * time.Minute, UserMessages: true, GroupPolicy: "auto", FileMax: 30 << 20,
		MembershipCheck: "auto", Limits: policy.Limits{MaxDepth: 3, Threshold: 1, Check: true},
	}
}

// running is a sidecar that reads its queues and runs until the test ends or stop is called.
type running struct {
	*sidecar.Sidecar
	stop func()
}

func (n *tenant) start(cfg sidecar.Config) *running { return n.startTraced(cfg, nil) }

func (n *tenant) startTraced(cfg sidecar.Config, trace func(step string)) *running {
	n.t.Helper()
	s, err := sidecar.New(cfg, sidecar.Options{Trace: trace, Logger: slog.New(slog.NewTextHandler(tenantLog{n}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var r *running
	r = &running{s, sync.OnceFunc(func() {
		n.mu.Lock()
		n.runs = slices.DeleteFunc(n.runs, func(other *running) bool { return other == r })
		n.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("sidecar: %v", err)
		}
	})}
	n.t.Cleanup(r.stop)
	n.mu.Lock()
	n.runs = append(n.runs, r)
	n.mu.Unlock()
	n.until("the sidecar reads the queues", func() bool { // what is said before its first look is history to it
		for _, q := range s.Status().Queues {
			if !q.Reading {
				return false
			}
		}
		return true
	})
	return r
}

// tenantLog keeps the sidecars' lines and shows them where a test failed.
type tenantLog struct{ *tenant }

func (l tenantLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.logs) == 0 {
		l.t.Cleanup(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.t.Failed() {
				l.t.Logf("sidecars:\n%s", strings.Join(l.logs, ""))
			}
		})
	}
	l.logs = append(l.logs, string(line))
	return len(line), nil
}

// sdkBot is a program on the official SDK that knows nothing of the relay.
type sdkBot struct {
	app    feishusim.App
	client *lark.Client
	heard  chan heard
	thinks atomic.Pointer[func(heard)] // inside the event handler; nil: not at all

	mu     sync.Mutex
	all    []heard  // guarded by mu
	bodies []string // of the events, as its SDK read them; guarded by mu
}

// heard is a message as the bot's SDK hands it over.
type heard struct {
	ID, Chat, ChatType, Type, Text, SenderType, SenderID string
	Mentions                                             []string // open ids
	Created                                              string   // create_time of the event and of the message
}

// bot starts one whose SDK is pointed at base, with a long connection; answer is
// what it does with a message.
func (n *tenant) bot(app feishusim.App, base string, answer func(*sdkBot, heard)) *sdkBot {
	n.t.Helper()
	b := &sdkBot{app: app, heard: make(chan heard, 1000), client: lark.NewClient(app.ID, app.Secret, lark.WithOpenBaseUrl(base),
		lark.WithLogLevel(larkcore.LogLevelError))}
	ws := larkws.NewClient(app.ID, app.Secret, larkws.WithDomain(base), larkws.WithLogLevel(larkcore.LogLevelError),
		larkws.WithEventHandler(b.dispatcher(answer)))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = ws.Start(ctx) })
	n.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return b
}

// introduce asks who the bot is, as all frameworks do at their start.
func (b *sdkBot) introduce(t *testing.T) {
	t.Helper()
	if _, err := b.client.Get(t.Context(), "/open-apis/bot/v3/info", nil, larkcore.AccessTokenTypeTenant); err != nil {
		t.Fatal(err)
	}
}

func (b *sdkBot) dispatcher(answer func(*sdkBot, heard)) *dispatcher.EventDispatcher {
	d := dispatcher.NewEventDispatcher(b.app.VerificationToken, b.app.EncryptKey)
	return d.OnP2MessageReceiveV1(func(_ context.Context, e *larkim.P2MessageReceiveV1) error {
		h := heardOf(e)
		b.received(h, b.plain(string(e.Body)))
		if think := b.thinks.Load(); think != nil {
			(*think)(h)
		}
		if answer != nil {
			go answer(b, h) // a framework thinks elsewhere
		}
		return nil
	})
}

// received notes a message that the bot was given.
func (b *sdkBot) received(h heard, bodies ...string) {
	b.mu.Lock()
	b.all, b.bodies = append(b.all, h), append(b.bodies, bodies...)
	b.mu.Unlock()
	select {
	case b.heard <- h:
	default: // nobody reads the channel; all has it
	}
}

// plain is an event as it was before Feishu encrypted it for a webhook.
func (b *sdkBot) plain(body string) string {
	var sealed struct{ Encrypt string }
	if b.app.EncryptKey == "" || json.Unmarshal([]byte(body), &sealed) != nil {
		return body
	}
	event, err := larkevent.EventDecrypt(sealed.Encrypt, b.app.EncryptKey)
	if err != nil {
		return err.Error()
	}
	return string(event)
}

// behind starts a sidecar with a gateway and a bot on the SDK behind it, and waits until that is connected.
func (n *tenant) behind(app feishusim.App, cfg sidecar.Config, answer func(*sdkBot, heard)) (*running, *sdkBot) {
	n.t.Helper()
	s := n.start(cfg)
	b := n.bot(app, "http://"+s.Gateway().String(), answer)
	n.connected(s)
	return s, b
}

// hooked is behind for a bot that Feishu's events are posted to.
func (n *tenant) hooked(app feishusim.App, cfg sidecar.Config, answer func(*sdkBot, heard)) (*running, *sdkBot) {
	n.t.Helper()
	b := &sdkBot{app: app, heard: make(chan heard, 1000)}
	listens := httptest.NewServer(http.HandlerFunc(httpserverext.NewEventHandlerFunc(b.dispatcher(answer))))
	n.t.Cleanup(listens.Close)
	cfg.BotWebhookURL, cfg.AppID, cfg.EncryptKey = listens.URL, app.ID, sidecar.Secret(app.EncryptKey)
	cfg.VerificationToken = sidecar.Secret(app.VerificationToken)
	s := n.start(cfg)
	base := "http://" + s.Gateway().String()
	b.client = lark.NewClient(app.ID, app.Secret, lark.WithOpenBaseUrl(base), lark.WithLogLevel(larkcore.LogLevelError))
	app.WebhookURL = base + "/webhook/event"
	_, err := n.UpdateApp(app)
	must(n.t, err)
	return s, b
}

// pair starts two sidecars with gateways, agent_a and agent_b, and their bots.
func (n *tenant) pair(apps []feishusim.App) (a, b *running, botA, botB *sdkBot) {
	n.t.Helper()
	a, b = n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	botA, botB = n.bots(apps, a, b)
	return a, b, botA, botB
}

// connector starts agent_c's sidecar, which holds an app's connection and posts to a program what the bot is given.
func (n *tenant) connector(app feishusim.App, change func(*sidecar.Config)) (*running, *worker) {
	n.t.Helper()
	w, cfg := newWorker(n.t, nil), n.config("agent_c")
	cfg.Gateway, cfg.Connector, cfg.InjectURL = sidecar.GatewayConfig{}, true, w.hook.URL
	cfg.AppID, cfg.AppSecret = app.ID, sidecar.Secret(app.Secret)
	change(&cfg)
	c := n.start(cfg)
	n.until("the connector is connected", func() bool {
		st := c.Status()
		return st.Feishu != nil && *st.Feishu && st.Identity.OpenID != ""
	})
	return c, w
}

// asIs changes no configuration.
func asIs(*sidecar.Config) {}

// gets waits until the program was posted a message with text in it, in whatever order.
func (w *worker) gets(text string) (got relay.Inbound) {
	w.t.Helper()
	eventually(limited(w.t), w.t, "the program is posted "+text, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.IndexFunc(w.got, func(in relay.Inbound) bool { return strings.Contains(in.Content, text) })
		if i >= 0 {
			got = w.got[i]
		}
		return i >= 0
	})
	return got
}

// bots starts the bots of two gateways and waits until they are connected.
func (n *tenant) bots(apps []feishusim.App, a, b *running) (botA, botB *sdkBot) {
	n.t.Helper()
	botA = n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	botB = n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	return botA, botB
}

// asSent checks that what the bot was given of messages is byte for byte what Feishu sent.
func (n *tenant) asSent(b *sdkBot, ids ...string) {
	n.t.Helper()
	sent := map[string]bool{}
	for _, d := range n.Deliveries() {
		if d.App == b.app.ID {
			sent[string(d.Body)] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, h := range b.all {
		if slices.Contains(ids, h.ID) && !sent[b.bodies[i]] {
			n.t.Errorf("%s was given another event than Feishu sent: %s", b.app.Name, b.bodies[i])
		}
	}
}

func heardOf(e *larkim.P2MessageReceiveV1) heard {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	m := e.Event.Message
	h := heard{ID: text(m.MessageId), Chat: text(m.ChatId), ChatType: text(m.ChatType), Type: text(m.MessageType),
		SenderType: text(e.Event.Sender.SenderType), SenderID: text(e.Event.Sender.SenderId.OpenId)}
	h.Created = e.EventV2Base.Header.CreateTime + " " + text(m.CreateTime)
	var content struct{ Text string }
	if json.Unmarshal([]byte(text(m.Content)), &content) == nil {
		h.Text = content.Text
	}
	for _, mention := range m.Mentions {
		h.Mentions = append(h.Mentions, text(mention.Id.OpenId))
	}
	return h
}

// mentioned reports whether h addresses the bot as frameworks find out: by its
// own open_id.
func (n *tenant) mentioned(b *sdkBot, h heard) bool {
	for _, id := range h.Mentions {
		if id == n.OpenID(b.app.ID, b.app.ID) {
			return true
		}
	}
	return false
}

// reply answers a message with a text; at is an app to mention first.
func (n *tenant) reply(b *sdkBot, to heard, at, text string) {
	if at != "" {
		text = fmt.Sprintf(`<at user_id="%s"></at> %s`, n.OpenID(b.app.ID, at), text)
	}
	if _, err := b.answer(to.ID, "text", quoted("text", text)); err != nil {
		n.t.Errorf("reply of %s: %v", b.app.Name, err)
	}
}

// answer replies to a message, and returns the reply's id.
func (b *sdkBot) answer(to, msgType, content string) (id string, err error) {
	return larktest.Reply(context.Background(), b.client, to, msgType, content, "")
}

// stream answers with a card that grows, as frameworks do with what a model
// writes.
func (n *tenant) stream(b *sdkBot, to heard, steps ...string) {
	ctx := context.Background()
	card, err := larktest.Card(ctx, b.client, "Thinking…")
	if err == nil {
		_, err = b.answer(to.ID, "interactive", larktest.Shown(card))
	}
	var text strings.Builder
	for i, step := range steps {
		text.WriteString(step)
		err = errors.Join(err, larktest.Grow(ctx, b.client, card, text.String(), i+1))
	}
	if err = errors.Join(err, larktest.End(ctx, b.client, card, len(steps)+1)); err != nil {
		n.t.Errorf("card of %s: %v", b.app.Name, err)
	}
}

func quoted(key, text string) string {
	data, _ := json.Marshal(map[string]string{key: text}) // of strings: cannot fail
	return string(data)
}

// hears waits for a message of the bot's that holds text.
func (n *tenant) hears(b *sdkBot, text string) heard {
	n.t.Helper()
	late := time.After(patience)
	for {
		select {
		case h := <-b.heard:
			if strings.Contains(h.Text, text) {
				return h
			}
		case <-late:
			n.t.Fatalf("%s did not hear %q", b.app.Name, text)
		}
	}
}

// says lets the user say something, and returns its id.
func (n *tenant) says(text string, mentions ...string) string {
	n.t.Helper()
	id, err := n.Say(n.chat, n.user.ID, text, mentions...)
	must(n.t, err)
	return id
}

// sees waits until a message with text stands in the group.
func (n *tenant) sees(text string) feishusim.Message {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	m, err := n.Wait(ctx, func(m feishusim.Message) bool { return m.ChatID == n.chat && strings.Contains(m.Text, text) })
	if err != nil {
		n.t.Fatalf("nobody said %q: %v", text, err)
	}
	return m
}

// until waits for a condition that no event tells of.
func (n *tenant) until(what string, is func() bool) {
	n.t.Helper()
	eventually(limited(n.t), n.t, what, is)
}

// runGuarded runs a sidecar as the program does, also where it cannot be opened
// yet.
func (n *tenant) runGuarded(cfg sidecar.Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- sidecar.Run(ctx, cfg, sidecar.Options{Logger: slog.New(slog.NewTextHandler(tenantLog{n}, nil))})
	}()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("sidecar: %v", err)
		}
	})
}

func dials(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func (b *sdkBot) count(text string) (times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.all {
		if strings.Contains(h.Text, text) {
			times++
		}
	}
	return times
}
