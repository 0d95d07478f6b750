package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
)

func TestPassages(t *testing.T) {
	const app = "cli_0123456789abcdef"
	with := func(p feishu.Passage, err error) func(feishu.Message, []byte) (feishu.Passage, error) {
		return func(feishu.Message, []byte) (feishu.Passage, error) { return p, err }
	}
	for _, c := range []struct {
		name, chatType string
		passage        func(feishu.Message, []byte) (feishu.Passage, error)
		verdict        feishu.Verdict
		text           string // in the place of "hi"
	}{
		{"as it came", "group", with(feishu.Passage{}, nil), feishu.Pass, ""},
		{"withheld", "group", with(feishu.Passage{Verdict: feishu.Keep, Before: "x"}, nil), feishu.Keep, ""},
		{"with a text in front", "group", with(feishu.Passage{Before: "note: "}, nil), feishu.Pass, "note: hi"},
		{"an error", "group", with(feishu.Passage{}, errTest), feishu.Pass, ""},
		{"an error of what the bot must not get", "group", with(feishu.Passage{Verdict: feishu.Refuse}, errTest), feishu.Refuse, ""},
		{"a panic", "group", func(feishu.Message, []byte) (feishu.Passage, error) { panic("boom") }, feishu.Pass, ""},
		{"withheld in private", "p2p", with(feishu.Passage{Verdict: feishu.Keep}, nil), feishu.Pass, ""},
		{"with a text in front in private", "p2p", with(feishu.Passage{Before: "x"}, nil), feishu.Pass, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { forApp(o, app) })
			event := eventOf(app, "user", "ou_u", "om_e", group, c.chatType, "hi")
			r.host.passage = func(m feishu.Message, given []byte) (feishu.Passage, error) {
				if string(given) != event || m.ID != "om_e" {
					t.Errorf("the host was given %s", given)
				}
				return c.passage(m, given)
			}
			for range 2 { // Feishu may deliver it again
				v, instead := r.tapEvent([]byte(event))
				want := ""
				if c.text != "" {
					want = eventOf(app, "user", "ou_u", "om_e", group, c.chatType, c.text)
				}
				if v != c.verdict || string(instead) != want {
					t.Errorf("verdict %v, instead %s; want %v %s", v, instead, c.verdict, want)
				}
			}
		})
	}
}

// A host that takes too long does not hold the event back; it is told that it passed.
func TestASlowPassage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const app = "cli_0123456789abcdef"
		bot := &posts{}
		h := &host{passage: func(feishu.Message, []byte) (feishu.Passage, error) {
			time.Sleep(time.Minute)
			return feishu.Passage{Verdict: feishu.Keep}, nil
		}}
		o := Options{Upstream: mustURL("http://feishu"), Host: h, Webhook: bot.options()}
		o.API = feishu.NewAPI("http://feishu", app, "")
		o.Book = feishu.NewDirectory(nil, o.API, nil)
		forApp(&o, app)
		g, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close(t.Context())
		event := eventOf(app, "user", "ou_u", "om_e", group, "group", "hi")
		at := time.Now()
		if code := fromFeishu(t, g, event); code != 200 || time.Since(at) != feishu.AckHold {
			t.Errorf("Feishu got %d after %v", code, time.Since(at))
		}
		if got := bot.take(t); len(got) != 1 || got[0] != event {
			t.Errorf("the bot got %q", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(h.passed) != 1 || h.passed[0] != "om_e" {
			t.Errorf("the host was told of %v", h.passed)
		}
	})
}

// posts is a bot that takes events at a webhook and answers 200.
type posts struct {
	mu   sync.Mutex
	sent []*http.Request
	body []string
}

const hookKey = "test key"

func (p *posts) options() *webhook.Options {
	return &webhook.Options{BotURL: "http://bot/", EncryptKey: hookKey, Transport: p}
}

func (p *posts) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent, p.body = append(p.sent, r), append(p.body, string(body))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// take returns the events that came since the last call, once their signatures are checked.
func (p *posts) take(t *testing.T) (events []string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.sent {
		body := []byte(p.body[i])
		h := r.Header
		if want := feishu.Sign(h.Get("X-Lark-Request-Timestamp"), h.Get("X-Lark-Request-Nonce"), hookKey, body); h.Get("X-Lark-Signature") != want {
			t.Error("the signature is wrong")
		}
		plain, err := feishu.Decrypt(hookKey, body)
		if err != nil {
			t.Error(err)
		}
		events = append(events, string(plain))
	}
	p.sent, p.body = nil, nil
	return events
}

// fromFeishu posts an event to the webhook as Feishu does, and returns the status.
func fromFeishu(t *testing.T, g *Gateway, event string) int {
	t.Helper()
	body, err := feishu.Encrypt(hookKey, []byte(event))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, webhook.EventPath, strings.NewReader(string(body)))
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("X-Lark-Request-Timestamp", timestamp)
	req.Header.Set("X-Lark-Request-Nonce", "n")
	req.Header.Set("X-Lark-Signature", feishu.Sign(timestamp, "n", hookKey, body))
	w := httptest.NewRecorder()
	g.hook.ServeHTTP(w, req)
	return w.Code
}
