package webhook_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/test/logtest"
)

const (
	app   = "cli_0123456789abcdef"
	key   = "test key"
	token = "t0ken"
)

// rig is a server between Feishu, which is the test, and a bot.
type rig struct {
	t   testing.TB
	s   *webhook.Server
	url string
	log logtest.Buffer

	mu     sync.Mutex
	counts map[string]int
}

func newRig(t testing.TB, bot string, change func(*webhook.Options)) *rig {
	t.Helper()
	r := &rig{t: t, counts: make(map[string]int)}
	o := webhook.Options{
		BotURL: bot, EncryptKey: key, VerificationToken: token, Verified: func(string) {},
		Events: &link.Events{Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Counter: r.count, Answered: dedup.Memory(0)},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.s, err = webhook.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, word := range []string{token, key, "hello"} {
			if strings.Contains(r.log.String(), word) {
				t.Errorf("the log shows %q:\n%s", word, r.log.String())
			}
		}
	})
	return r
}

// serve puts the server on a port.
func (r *rig) serve() *rig {
	front := httptest.NewServer(r.s)
	r.t.Cleanup(front.Close)
	r.url = front.URL
	return r
}

func (r *rig) count(event feishu.Counted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[string(event)]++
}

func (r *rig) counted(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[event]
}

// take hands the server a post without a network.
func (r *rig) take(p post) *httptest.ResponseRecorder {
	r.t.Helper()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, cmp.Or(p.path, webhook.EventPath), bytes.NewReader(p.body))
	req.Header = p.header
	r.s.ServeHTTP(w, req)
	return w
}

// post is what Feishu sends.
type post struct {
	path   string
	header http.Header
	body   []byte
}

func event(id string) string {
	return fmt.Sprintf(`{"schema":"2.0","header":{"event_id":%q,"event_type":"im.message.receive_v1","create_time":"1608725989000","token":%q,"app_id":%q},"event":{"text":"hello 你好 <&>"}}`, id, token, app)
}

func challenge(t string) string {
	return fmt.Sprintf(`{"challenge":"c-1","token":%q,"type":"url_verification"}`, t)
}

// plain is a post of an app without an encrypt key.
func plain(body string) post {
	return post{header: http.Header{"Content-Type": {"application/json;charset=utf-8"}, "X-Request-Id": {"r1"}}, body: []byte(body)}
}

// signed is a post of one with it.
func signed(t testing.TB, body string) post {
	t.Helper()
	p := plain("")
	var err error
	if p.body, err = feishu.Encrypt(key, []byte(body)); err != nil {
		t.Fatal(err)
	}
	p.sign(strconv.FormatInt(time.Now().Unix(), 10))
	return p
}

// oldCard is a callback as cards sent it before card.action.trigger.
func oldCard(body string) post {
	p := plain(body)
	p.path = webhook.CardPath
	p.sign(strconv.FormatInt(time.Now().Unix(), 10))
	return p
}

// sign signs p as Feishu does at a time: an event or, of an old card, a callback.
func (p *post) sign(timestamp string) {
	signature := feishu.Sign(timestamp, "nonce", key, p.body)
	if p.path == webhook.CardPath {
		signature = fmt.Sprintf("%x", sha1.Sum([]byte(timestamp+"nonce"+token+string(p.body))))
	}
	p.header.Set("X-Lark-Request-Timestamp", timestamp)
	p.header.Set("X-Lark-Request-Nonce", "nonce")
	p.header.Set("X-Lark-Signature", signature)
}

// transport is a bot without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return f(r)
}

// via makes the server reach its bot through f.
func via(f transport, more ...func(*webhook.Options)) func(*webhook.Options) {
	return func(o *webhook.Options) {
		o.Transport = f
		for _, m := range more {
			m(o)
		}
	}
}

func says(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"X-Bot": {"1"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
