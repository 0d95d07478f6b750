package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

const (
	group   = "oc_group"
	private = "oc_private"
)

// seen is a request as it arrived at the stand-in.
type seen struct {
	Method, URI string
	Header      http.Header
	Body        string
}

// upstream is a small Feishu: enough state for the calls that are watched.
type upstream struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
	chats    map[string]string           // chat: chat_mode
	messages map[string]map[string]any   // om: as the REST API shows it
	special  map[string]http.HandlerFunc // "METHOD path": instead of the answers below
	n        int
}

func newState() *upstream {
	return &upstream{chats: map[string]string{group: "group", private: "p2p"}, messages: map[string]map[string]any{}, special: map[string]http.HandlerFunc{}}
}

func newUpstream(t testing.TB) *upstream {
	u := newState()
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) on(route string, h http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.special[route] = h
}

// say answers a route with a fixed status and body.
func (u *upstream) say(route string, status int, body string) {
	u.on(route, func(w http.ResponseWriter, _ *http.Request) { answer(w, status, body) })
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (u *upstream) seen() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seen(nil), u.requests...)
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	h := u.special[r.Method+" "+r.URL.Path]
	u.mu.Unlock()
	if h != nil {
		h(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.Header.Get("User-Agent") != "Go-http-client/1.1" || r.Header.Get("Accept-Encoding") == "" { // else our own question
		u.requests = append(u.requests, seen{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
	}
	w.Header().Set("X-Tt-Logid", "log-1")
	data, code := u.handle(r, body)
	status := http.StatusOK
	if code != 0 {
		status = http.StatusBadRequest
	}
	out, _ := json.Marshal(map[string]any{"code": code, "msg": "m", "data": data})
	if m, ok := data.(raw); ok {
		out = []byte(m)
	}
	answer(w, status, string(out))
}

// raw is a whole answer.
type raw string

func (u *upstream) id(prefix string) string {
	u.n++
	return prefix + strconv.Itoa(u.n)
}

func (u *upstream) handle(r *http.Request, body []byte) (any, int) {
	path := strings.TrimPrefix(feishu.SingleSlashes(r.URL.Path), "/open-apis/")
	p := strings.Split(path, "/")
	var req map[string]any
	_ = json.Unmarshal(body, &req)
	app := strings.TrimPrefix(bearer(r), "t-")
	switch {
	case strings.HasPrefix(path, "auth/v3/"):
		return raw(fmt.Sprintf(`{"code":0,"msg":"ok","tenant_access_token":"t-%s","app_access_token":"t-%[1]s","expire":7200}`, req["app_id"])), 0
	case path == "bot/v3/info":
		return raw(fmt.Sprintf(`{"code":0,"msg":"ok","bot":{"app_name":"Bot %s","open_id":"ou_self_%[1]s"}}`, app)), 0
	case path == "im/v1/messages" && r.Method == "POST":
		return u.post(app, str(req["receive_id"]), "", req), 0
	case strings.HasPrefix(path, "im/v1/messages/") && len(p) == 5 && p[4] == "reply":
		chat := group
		if m := u.messages[p[3]]; m != nil {
			chat = str(m["chat_id"])
		}
		return u.post(app, chat, p[3], req), 0
	case strings.HasPrefix(path, "im/v1/messages/") && len(p) == 4 && r.Method == "PUT":
		m := u.messages[p[3]]
		if m == nil {
			return nil, 230001
		}
		m["body"] = map[string]any{"content": req["content"]}
		return m, 0
	case strings.HasPrefix(path, "im/v1/messages/") && len(p) == 4 && r.Method == "GET":
		if m := u.messages[p[3]]; m != nil {
			return map[string]any{"items": []any{m}}, 0
		}
		return nil, 230001
	case strings.HasPrefix(path, "im/v1/chats/") && len(p) == 4:
		mode := u.chats[p[3]]
		if mode == "" {
			return nil, 99991672
		}
		return map[string]any{"chat_mode": mode, "name": "a chat"}, 0
	case strings.HasSuffix(path, "/reactions"):
		return map[string]any{"reaction_id": u.id("re_")}, 0
	case path == "cardkit/v1/cards":
		return map[string]any{"card_id": u.id("7")}, 0
	}
	return map[string]any{}, 0
}

func (u *upstream) post(app, chat, parent string, req map[string]any) map[string]any {
	id := u.id("om_")
	m := map[string]any{
		"message_id": id, "chat_id": chat, "msg_type": req["msg_type"], "create_time": "1700000000" + fmt.Sprintf("%03d", u.n%1000),
		"sender": map[string]any{"id": app, "id_type": "app_id", "sender_type": "app"},
		"body":   map[string]any{"content": req["content"]},
	}
	if parent != "" {
		m["parent_id"], m["root_id"] = parent, parent
	}
	u.messages[id] = m
	return m
}

func str(v any) string { s, _ := v.(string); return s }

// host is a sidecar made of functions; the zero one accepts everything.
type host struct {
	said     chan Sent
	sent     func(context.Context, Sent) error
	heard    func(feishu.Message) error // records a person's message
	passage  func(m feishu.Message, event []byte) (feishu.Passage, error)
	native   func(feishu.Message, bool) error
	injected func(relay.MessageID) (feishu.Message, bool)
	peer     func(relay.OpenID) (feishu.Bot, bool)

	mu        sync.Mutex
	leftChats []relay.ChatID
	edited    []Sent
	recalled  []recalled
	reactions map[string]bool // "message/emoji": of the sidecar's own
	passed    []relay.MessageID
}

func (h *host) Edited(m Sent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.edited = append(h.edited, m)
}

func (h *host) Sent(ctx context.Context, m Sent) error {
	if h.sent != nil {
		if err := h.sent(ctx, m); err != nil {
			return err
		}
	}
	h.said <- m
	return nil
}

func (h *host) Heard(_ context.Context, m feishu.Message, event []byte) (p feishu.Passage, err error) {
	if h.passage != nil {
		p, err = h.passage(m, event)
	}
	if h.heard != nil && err == nil {
		err = h.heard(m)
	}
	return p, err
}

func (h *host) Native(_ context.Context, m feishu.Message, streaming bool) error {
	if h.native != nil {
		return h.native(m, streaming)
	}
	return nil
}

func (h *host) Passed(id relay.MessageID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passed = append(h.passed, id)
}

func (h *host) Left(c relay.ChatID, _ relay.Millis) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leftChats = append(h.leftChats, c)
}

func (*host) Joined(relay.ChatID, relay.Millis) {}

// recalled is what the host was told of a recall.
type recalled struct {
	chat relay.ChatID
	id   relay.MessageID
	at   relay.Millis
}

func (h *host) Recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recalled = append(h.recalled, recalled{chat, id, at})
}

func (h *host) recalls() []recalled {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.recalled)
}

func (h *host) Steers(*feishu.Message) bool { return false }

func (h *host) OwnReaction(id relay.MessageID, emoji string) bool {
	return h.reactions[string(id)+"/"+emoji]
}

func (h *host) Said(*feishu.Message) bool { panic("the gateway knows that") }

func (h *host) Injected(id relay.MessageID) (feishu.Message, bool) {
	if h.injected != nil {
		return h.injected(id)
	}
	return feishu.Message{}, false
}

func (h *host) Peer(id relay.OpenID) (feishu.Bot, bool) {
	if h.peer != nil {
		return h.peer(id)
	}
	return feishu.Bot{}, false
}

// rig is a gateway between a client and the stand-in.
type rig struct {
	*Gateway
	t      testing.TB
	up     *upstream
	host   *host
	api    *feishu.API
	book   *feishu.Directory
	store  *feishu.Store
	url    string
	app    string
	client *http.Client
	counts *counts
	stop   func() // ends Run, and waits for it
}

type counts struct {
	mu sync.Mutex
	m  map[string]int
}

func (c *counts) add(event feishu.Counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[string(event)]++
}

func (c *counts) of(event string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[event]
}

// newRig starts all of it. change may alter the options; drafts settle within
// milliseconds unless it says otherwise.
func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir(), newUpstream(t), change)
}

var apps atomic.Int64

func newRigIn(t testing.TB, dir string, up *upstream, change func(*Options)) *rig {
	t.Helper()
	app := fmt.Sprintf("cli_%016x", apps.Add(1)) // the SDK caches tokens per app and process
	r := startRig(t, dir, up.URL, app, change)
	r.up = up
	return r
}

// startRig starts a gateway to a Feishu.
func startRig(t testing.TB, dir, upstream, app string, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, host: &host{said: make(chan Sent, 256)}, app: app, counts: &counts{m: map[string]int{}},
		client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	store, err := feishu.OpenStore(dir+"/book", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	r.api = feishu.NewAPI(upstream, app, "")
	r.book = feishu.NewDirectory(store, r.api, nil)
	if r.book.LearnSelf(feishu.Self{AppID: app}); !r.book.IsApp(app) {
		r.app = r.book.Self().AppID // of the run before
	}
	o := Options{Upstream: mustURL(upstream), Book: r.book, API: r.api, Host: r.host, Loopback: true,
		Settle: 20 * time.Millisecond, EditSettle: 40 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})), Counter: r.counts.add}
	if change != nil {
		change(&o)
	}
	r.Gateway, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(r.Handler())
	r.url = front.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() {
		r.stop()
		r.client.CloseIdleConnections()
		front.CloseClientConnections()
		front.Close()
		_ = r.Close(context.Background())
		_ = r.book.Close()
		_ = r.store.Close()
	})
	return r
}

// tapEvent decides on an event, which may be repeated.
func (g *Gateway) tapEvent(event []byte) (feishu.Verdict, []byte) {
	t := g.events.Take(event)
	t.Settle(false)
	return t.Verdict, t.Instead
}

// sdk is the official client, through the gateway.
func (r *rig) sdk() *lark.Client {
	return lark.NewClient(r.app, "secret", lark.WithOpenBaseUrl(r.url), lark.WithHttpClient(r.client), lark.WithLogLevel(larkcore.LogLevelError))
}

// knowGroup saves the question what kind the group is.
func (r *rig) knowGroup() *rig {
	r.book.SawChat(group, feishu.ChatGroup)
	return r
}

// call makes a REST call with the app's token.
func (r *rig) call(method, path, body string) (int, string) {
	r.t.Helper()
	return r.as("t-"+r.app, method, path, body)
}

func (r *rig) as(token, method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

func (r *rig) do(req *http.Request) (int, string) {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// send sends a message to the group and returns its id.
func (r *rig) send(msgType, content string) string {
	r.t.Helper()
	return r.sendTo(group, msgType, content)
}

func (r *rig) sendTo(chat, msgType, content string) string {
	r.t.Helper()
	status, body := r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id",
		js(map[string]any{"receive_id": chat, "msg_type": msgType, "content": content}))
	var ans struct {
		Data struct {
			ID string `json:"message_id"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(body), &ans) != nil || status != http.StatusOK || ans.Data.ID == "" {
		r.t.Fatalf("the send was answered %d %s", status, body)
	}
	return ans.Data.ID
}

func (r *rig) text(text string) string { return r.send("text", js(map[string]any{"text": text})) }

// said is the next message that reached the host.
func (r *rig) said() Sent {
	r.t.Helper()
	select {
	case m := <-r.host.said:
		return m
	case <-time.After(2 * time.Minute):
		r.t.Fatal("nothing was published")
	}
	panic("unreachable")
}

// silent fails where something was published.
func (r *rig) silent() {
	r.t.Helper()
	select {
	case m := <-r.host.said:
		r.t.Fatalf("published %q", m.Text)
	default:
	}
}

// stored is how many drafts are in the store.
func (r *rig) stored() (n int) {
	r.t.Helper()
	err := r.store.Each(func(kind, _ string, _ json.RawMessage) {
		if kind == feishu.KindDraft {
			n++
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func js(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

var errTest = errors.New("a test's error")

func newRequest(method, path, query string) *http.Request {
	return &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{}}
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
