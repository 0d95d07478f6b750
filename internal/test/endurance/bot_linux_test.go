package endurance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/loopback"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/wait"
)

// team is the bots of one group with their sidecars, on files or on a Redis, and the Feishu that
// those behind a gateway know.
type team struct {
	t     *testing.T
	dir   string            // DATA_DIR of all
	redis *redistest.Server // nil: files
	sim   *feishusim.Server
	user  feishusim.User
	chat  string
	book  *book
	bots  []*bot
	count atomic.Int64   // of messages, for their ids
	hits  map[string]int // calls that failed, by the case of diskFiles
	asks  string         // the group of askOne; "": it is not there yet
}

// bot is a program with a sidecar: on a webhook of its own, or on the official SDK behind the gateway.
type bot struct {
	*side
	team *team
	away atomic.Bool  // its webhook refuses what comes
	late atomic.Int64 // nanoseconds that its webhook takes to answer
	asks atomic.Int64
	sdk  *sdk // nil: a webhook
}

// sdk is a bot's connection to what it takes for Feishu.
type sdk struct {
	app    feishusim.App
	client *lark.Client
	stop   func()
	base   string
}

// teamSetup is the bots of a team and the common settings of their sidecars.
type teamSetup struct {
	redis    bool
	webhooks []string // names of bots with a webhook
	gateways []string // names of bots behind a gateway
	env      map[string]string
}

// newTeam starts only the Redis and the simulated Feishu.
func newTeam(t *testing.T, o teamSetup) *team {
	t.Helper()
	logs := t.TempDir() // not in DATA_DIR, whose files may fail
	n := &team{t: t, dir: t.TempDir(), book: newBook(), hits: map[string]int{}}
	n.sim = feishusim.New(feishusim.Options{AckTimeout: patience,
		Client: feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, PingInterval: 10}})
	t.Cleanup(func() { _ = n.sim.Close() })
	base, err := n.sim.Listen("127.0.0.1:0")
	must(t, err)
	env := map[string]string{
		"DATA_DIR": n.dir, "LOG_FORMAT": "text", "MAX_BOT_REPLY_DEPTH": "1000", "BOT_REPLY_LLM_THRESHOLD": "1000",
		"MEMBERSHIP_CHECK": "off", "RELAY_MAX_AGE": "24h", "DELIVERY_TIMEOUT": "24h", "PEER_MAX_EXCHANGES": "10000",
		"HEARTBEAT_INTERVAL": "1s", "HEARTBEAT_TIMEOUT": "10s", "ACK_TIMEOUT": "5m", "MAX_CONCURRENT_TASKS": "1000",
		"GATEWAY_EDIT_SETTLE": "500ms", "GATEWAY_SETTLE": "300ms",
	}
	if o.redis {
		n.redis = redistest.Start(t)
		env["REDIS_URL"] = n.redis.URL()
	}
	maps.Copy(env, o.env)
	n.user = n.sim.AddUser("Tom")
	members := []string{n.user.ID}
	for _, name := range o.webhooks {
		b := &bot{side: newSide(t, name, logs, env), team: n}
		b.hook = b.listen()
		n.bots = append(n.bots, b)
	}
	for _, name := range o.gateways {
		app := n.sim.AddApp(feishusim.App{Name: name})
		members = append(members, app.ID)
		b := &bot{side: newSide(t, name, logs, env), team: n}
		addr, err := loopback.Addr()
		must(t, err)
		b.env["GATEWAY_ADDR"], b.env["FEISHU_BASE_URL"] = addr, base
		b.sdk = &sdk{app: app, base: "http://" + addr}
		n.bots = append(n.bots, b)
	}
	n.chat = n.sim.AddGroup("R&D", members...).ID
	for _, b := range n.bots {
		n.book.names = append(n.book.names, b.name)
	}
	return n
}

// start starts the sidecars of the bots and waits until each is ready and has its bot.
func (n *team) start(ctx context.Context, bots ...*bot) {
	n.t.Helper()
	for _, b := range bots {
		must(n.t, b.side.start())
	}
	for _, b := range bots {
		b.ready(ctx)
		if b.sdk != nil {
			b.connect(n.t)
			must(n.t, n.sim.WaitConnected(ctx, b.sdk.app.ID, 1))
		}
	}
}

func (n *team) bot(name string) *bot {
	for _, b := range n.bots {
		if b.name == name {
			return b
		}
	}
	panic("no bot " + name)
}

// id is one that no other message has.
func (n *team) id(kind, from string) string {
	return fmt.Sprintf("%s_%s_%06d", kind, from, n.count.Add(1))
}

// listen serves the bot's webhook until the test ends, and returns its URL.
func (b *bot) listen() string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Content  string
			Metadata map[string]any
		}
		life, err := strconv.Atoi(path.Base(r.URL.Path))
		if json.NewDecoder(r.Body).Decode(&in) != nil || err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b.asks.Add(1)
		if b.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = wait.Sleep(r.Context(), time.Duration(b.late.Load()))
		id, _ := in.Metadata["relay_msg_id"].(string)
		b.team.book.got(b.name, id, visit{life: life, text: in.Content})
	}))
	b.team.t.Cleanup(srv.Close)
	return srv.URL
}

// connect starts the bot's SDK, until the test or the next connect ends it.
func (b *bot) connect(t *testing.T) {
	t.Helper()
	if b.sdk.stop != nil {
		b.sdk.stop()
	}
	app := b.sdk.app
	b.sdk.client = lark.NewClient(app.ID, app.Secret, lark.WithOpenBaseUrl(b.sdk.base),
		lark.WithLogLevel(larkcore.LogLevelError))
	heard := func(_ context.Context, e *larkim.P2MessageReceiveV1) error {
		if m := e.Event.Message; *e.Event.Sender.SenderType != "user" {
			b.team.book.got(b.name, *m.MessageId, visit{life: b.lifeNow(), text: textOf(*m.Content)})
		}
		return nil
	}
	events := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(heard)
	ws := larkws.NewClient(app.ID, app.Secret, larkws.WithDomain(b.sdk.base), larkws.WithLogLevel(larkcore.LogLevelError),
		larkws.WithEventHandler(events))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil { // its first attempt is the only one that it does not repeat
			_ = ws.Start(ctx)
			_ = wait.Sleep(ctx, 100*time.Millisecond)
		}
	})
	b.sdk.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(b.sdk.stop)
}

func (s *side) lifeNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

func textOf(content string) string {
	var c struct{ Text string }
	if json.Unmarshal([]byte(content), &c) != nil || c.Text == "" {
		return content
	}
	return c.Text
}

// say sends a message to the group until it is accepted, and returns its id.
func (b *bot) say(ctx context.Context, text string) (id string, err error) {
	if b.sdk != nil {
		return b.send(ctx, text)
	}
	id = b.team.id("om", b.name)
	err = b.insist(ctx, "/v1/outbound", map[string]any{"chat_id": b.team.chat, "content": text, "message_id": id,
		"ts": time.Now().Add(time.Duration(b.ahead.Load())).UnixMilli(), "metadata": map[string]string{"chat_type": "group"}})
	if err == nil {
		b.team.book.accepted(id, message{from: b.name, text: text})
	}
	return id, err
}

// send is say of a bot on the SDK. The uuid lets Feishu know a repeat.
func (b *bot) send(ctx context.Context, text string) (id string, err error) {
	uuid := b.team.id("uuid", b.name)
	for {
		id, err := larktest.Send(ctx, b.sdk.client, b.team.chat, "text", larktest.Text(text), uuid)
		if err == nil {
			b.team.book.accepted(id, message{from: b.name, text: text})
			return id, nil
		}
		if wait.Sleep(ctx, 100*time.Millisecond) != nil {
			return "", fmt.Errorf("%s cannot send: %w", b.name, err)
		}
	}
}

// mail sends a message that has to be acknowledged, and that waits for as long as it takes.
func (b *bot) mail(ctx context.Context, to *bot, text string) (id string, err error) {
	id = b.team.id("m", b.name)
	err = b.insist(ctx, "/v1/mailbox/messages", map[string]any{"id": id, "to": to.name, "type": "question", "content": text,
		"metadata": map[string]any{"ttl": 0, "requiresAck": true}})
	if err == nil {
		b.team.book.accepted(id, message{from: b.name, to: to.name, text: text})
	}
	return id, err
}

// give gives another agent a task.
func (b *bot) give(ctx context.Context, to *bot, id, text string) {
	b.t.Helper()
	b.do(ctx, http.MethodPost, "/v1/mailbox/tasks", map[string]any{"to": to.name, "task_id": id, "text": text}, nil)
}

// report reports the state of a task that the bot was given.
func (b *bot) report(ctx context.Context, id, state, text string) {
	b.t.Helper()
	b.do(ctx, http.MethodPost, "/v1/mailbox/tasks/"+id, map[string]any{"state": state, "text": text}, nil)
}
