package link_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/feishu/link"
)

func TestCloseCodesAreCarried(t *testing.T) {
	for _, c := range []struct {
		code   websocket.StatusCode
		reason string
		want   websocket.StatusCode
	}{
		{1000, "bye", 1000}, {1001, "", 1001}, {1012, "restart", 1012}, {4001, "replaced 你好", 4001}, {1005, "", 1005},
		{-1, "", 1001}, // cut without a word
	} {
		for _, side := range []string{"bot", "feishu"} {
			t.Run(side+"/"+c.code.String(), func(t *testing.T) {
				r := newRig(t, tcp(t), nil)
				from, to := r.ready()
				if side == "feishu" {
					from, to = to, from
				}
				if c.code < 0 {
					_ = from.conn.CloseNow()
				} else {
					_ = from.conn.Close(c.code, c.reason)
				}
				if code, reason := to.closed(); code != c.want || reason != c.reason {
					t.Errorf("got %d %q, want %d %q", code, reason, c.want, c.reason)
				}
				until(t, "it is gone", func() bool { return len(r.s.Status().Connections) == 0 })
			})
		}
	}
}

func TestTooLargeAMessageEndsBothSides(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, feishu := r.ready()
	go func() { _ = feishu.conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 17<<20)) }()
	if code, _ := bot.closed(); code != websocket.StatusMessageTooBig {
		t.Errorf("the bot got %d", code)
	}
	if code, _ := feishu.closed(); code != websocket.StatusMessageTooBig {
		t.Errorf("Feishu got %d", code)
	}
}

func TestCloseSendsTheBotsAway(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, feishu := r.ready()
	if err := r.s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range []*socket{bot, feishu} {
		if code, _ := s.closed(); code != websocket.StatusServiceRestart {
			t.Errorf("got %d", code)
		}
	}
	resp, err := r.client.Do(upgrade(t, r.bootstrap().URL))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new one: got %d", resp.StatusCode)
	}
}

// Whoever is frozen, a stop takes what its context allows, and at most a moment.
func TestCloseDoesNotWaitForWhoIsFrozen(t *testing.T) {
	for name, limit := range map[string]time.Duration{"by itself": time.Hour, "by its context": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipes(), nil)
				r.ready()
				frozen, _, err := websocket.Dial(t.Context(), r.bootstrap().URL, &websocket.DialOptions{HTTPClient: r.client})
				if err != nil {
					t.Fatal(err)
				}
				defer frozen.CloseNow()
				up := r.feishu.next() // whose bot reads nothing, and it neither
				if err := frozen.Write(t.Context(), websocket.MessageBinary, bytesOf(t, pingFrame())); err != nil {
					t.Fatal(err)
				}
				up.want(pingFrame())
				up.write(eventFrame("m1", event("e1")))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				at := time.Now()
				err = r.s.Close(ctx)
				if took := time.Since(at); took > min(limit, time.Second) || (err == nil) != (limit > time.Second) {
					t.Errorf("it took %v: %v", took, err)
				}
			})
		})
	}
}

// upgrade is the request for a WebSocket, whose answer a test wants to see.
func upgrade(t *testing.T, rawURL string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(rawURL, "ws", "http", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"WebSocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	return req
}

func TestAtMost64Connections(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	for range 64 {
		r.connect()
	}
	until(t, "all are there", func() bool { return len(r.s.Status().Connections) == 64 })
	resp, err := r.client.Do(upgrade(t, r.bootstrap().URL))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || r.counted("too_many") != 1 {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestBeyondLoopbackATicketCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), func(o *link.Options) { o.Loopback = false })
		refused := func(url string) {
			t.Helper()
			resp, err := r.client.Do(upgrade(t, url))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Handshake-Status") != "" {
				t.Errorf("got %d %v", resp.StatusCode, resp.Header)
			}
		}
		refused("ws://" + r.front + "/ws/v2?" + query)
		url := r.bootstrap().URL
		r.dial(url)
		refused(url)
		url = r.bootstrap().URL
		refused(strings.Replace(url, "t-1", "t-2", 1))
		time.Sleep(2*time.Minute + time.Second)
		refused(url)
		if n := r.counted("unknown_ticket"); n != 4 {
			t.Errorf("%d counted", n)
		}
	})
}

// On loopback a bot may come back late, or twice, with its query. One that we did not hand out may be anybody's.
func TestOnLoopbackABotMayComeBackWithItsQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		url := r.bootstrap().URL
		for range 2 {
			r.dial(url)
			r.feishu.next()
			time.Sleep(time.Hour)
		}
		resp, err := r.client.Do(upgrade(t, strings.Replace(url, "t-1", "t-2", 1)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("got %d", resp.StatusCode)
		}
	})
}

func TestARefusalIsFeishus(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	r.feishu.refuses(func(w http.ResponseWriter) {
		w.Header().Set("Handshake-Status", "514")
		w.Header().Set("Handshake-Msg", "auth failed")
		w.Header().Set("Handshake-Autherrcode", "1000040350")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("why"))
	})
	resp, err := r.client.Do(upgrade(t, r.bootstrap().URL))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := make([]byte, 10)
	n, _ := resp.Body.Read(body)
	h := resp.Header
	if resp.StatusCode != http.StatusTeapot || h.Get("Handshake-Status") != "514" || h.Get("Handshake-Msg") != "auth failed" ||
		h.Get("Handshake-Autherrcode") != "1000040350" || string(body[:n]) != "why" {
		t.Errorf("got %d %v %q", resp.StatusCode, h, body[:n])
	}
}
