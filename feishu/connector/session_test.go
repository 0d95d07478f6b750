package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
)

// run runs c until the test ends.
func run(t *testing.T, c *Connector) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func eventOf(kind string) string {
	return `{"schema":"2.0","header":{"event_id":"e","event_type":"` + kind + `"},"event":{}}`
}

func TestEveryTypeOfEventIsAcknowledged(t *testing.T) {
	f := newFake(t)
	got := make(chan string, 8)
	c := f.connector(t, func(o *Options) {
		o.Tap = func(event []byte) feishu.Verdict {
			got <- string(event)
			return feishu.Pass
		}
	})
	run(t, c)
	l := <-f.links
	if !c.Connected() {
		t.Error("not connected")
	}
	for i, kind := range []string{"im.message.receive_v1", "im.message.message_read_v1", "card.action.trigger", "of.the.future_v9", ""} {
		want := eventOf(kind)
		l.event(fmt.Sprint(i), want, 1, 0)
		if event := <-got; event != want {
			t.Errorf("got %s, want %s", event, want)
		}
		if id, code := l.ack(); id != fmt.Sprint(i) || code != 200 {
			t.Errorf("%q: ack of %s with %d", kind, id, code)
		}
	}
}

func TestRefusedEventsComeAgain(t *testing.T) {
	f := newFake(t)
	answers := []func() feishu.Verdict{
		func() feishu.Verdict { return feishu.Refuse },
		func() feishu.Verdict { panic("x") },
		func() feishu.Verdict { return feishu.Keep },
	}
	var calls int
	c := f.connector(t, func(o *Options) {
		o.Tap = func([]byte) feishu.Verdict {
			calls++
			return answers[calls-1]()
		}
	})
	run(t, c)
	l := <-f.links
	for _, want := range []int{500, 500, 200} {
		l.event("1", eventOf("x"), 1, 0)
		if _, code := l.ack(); code != want {
			t.Errorf("ack %d, want %d", code, want)
		}
	}
}

func TestASlowTapHoldsUpNobody(t *testing.T) {
	f := newFake(t)
	release := make(chan struct{})
	counted := make(chan feishu.Counted, 4*maxSlow)
	c := f.connector(t, func(o *Options) {
		o.Counter = func(what feishu.Counted) { counted <- what }
		o.Tap = func(event []byte) feishu.Verdict {
			if strings.Contains(string(event), "slow") {
				<-release
			}
			return feishu.Keep
		}
	})
	c.tap.Patience = 20 * time.Millisecond
	run(t, c)
	l := <-f.links
	l.event("1", eventOf("slow"), 1, 0)
	l.event("2", eventOf("fast"), 1, 0)
	if id, code := l.ack(); id != "1" || code != 500 {
		t.Errorf("ack of %s with %d", id, code)
	}
	if id, code := l.ack(); id != "2" || code != 200 {
		t.Errorf("ack of %s with %d", id, code)
	}
	for s := feishu.Counted(""); s != "event_late"; s = <-counted {
	}
	for range maxSlow - 1 {
		l.event("x", eventOf("slow"), 1, 0)
		l.ack()
	}
	l.event("3", eventOf("fast"), 1, 0)
	if _, code := l.ack(); code != 500 {
		t.Errorf("with all taps taken: ack %d", code)
	}
	close(release)
}

func TestFragments(t *testing.T) {
	f := newFake(t)
	got := make(chan string, 8)
	c := f.connector(t, func(o *Options) {
		o.Tap = func(event []byte) feishu.Verdict {
			got <- string(event)
			return feishu.Keep
		}
	})
	run(t, c)
	l := <-f.links
	l.event("a", "3", 3, 2)
	l.event("b", "x", 2, 0)
	l.event("a", "1", 3, 0)
	l.event("a", "1", 3, 0) // again
	l.event("c", "-", 2, 9) // out of range
	l.event("a", "-", 4, 1) // another number
	l.raw([]byte("no frame"))
	l.event("a", "2", 3, 1)
	if event := <-got; event != "123" {
		t.Errorf("got %q", event)
	}
	if id, code := l.ack(); id != "a" || code != 200 {
		t.Errorf("ack of %s with %d", id, code)
	}
	l.event("b", "y", 2, 1)
	if event := <-got; event != "xy" {
		t.Errorf("got %q", event)
	}
}

func TestEventsKeepTheirOrder(t *testing.T) {
	f := newFake(t)
	var got []string
	c := f.connector(t, func(o *Options) {
		o.Tap = func(event []byte) feishu.Verdict {
			got = append(got, string(event)) // one at a time: the race detector watches
			return feishu.Keep
		}
	})
	run(t, c)
	l := <-f.links
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprint(i))
		l.event("m", fmt.Sprint(i), 1, 0)
	}
	for range want {
		l.ack()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestItConnectsAgain(t *testing.T) {
	f := newFake(t)
	c := f.connector(t, nil)
	run(t, c)
	for range 2 {
		l := <-f.links
		l.event("1", eventOf("x"), 1, 0)
		l.ack()
		l.conn.CloseNow()
		<-l.gone
	}
}

func TestRefusalsAreToldAndTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		name      string
		bootstrap string
		handshake http.Header
		mend      string
	}{
		{"credentials", `{"code":514,"msg":"auth failed"}`, nil, "FEISHU_APP_SECRET"},
		{"domain", `{"code":1000040351,"msg":"Incorrect domain name","data":{}}`, nil, "FEISHU_BASE_URL"},
		{"limit", `{"code":1000040350,"msg":"exceed"}`, nil, "at most 50"},
		{"another", `{"code":77,"msg":"?"}`, nil, "events settings"},
		{"handshake limit", "", http.Header{"Handshake-Status": {"514"}, "Handshake-Msg": {"m"}, "Handshake-Autherrcode": {"1000040350"}}, "at most 50"},
		{"handshake", "", http.Header{"Handshake-Status": {"403"}}, "FEISHU_APP_ID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.handshake = tt.handshake
			if tt.bootstrap != "" {
				f.bootstrap = func(w http.ResponseWriter) bool { respond(w, 200, tt.bootstrap); return true }
			}
			var log lockedBuffer
			twice := make(chan struct{})
			c := f.connector(t, func(o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				refused := 0
				o.Counter = func(s feishu.Counted) {
					if s == "refused" {
						if refused++; refused == 2 {
							close(twice)
						}
					}
				}
			})
			c.refused = time.Millisecond
			run(t, c)
			<-twice
			if c.Connected() {
				t.Error("connected")
			}
			if s := log.String(); !strings.Contains(s, tt.mend) || strings.Contains(s, "TICKET") || strings.Contains(s, "secret\"") {
				t.Errorf("log: %s", s)
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestPassingTroubleIsNoRefusal(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"busy":           func(w http.ResponseWriter) { respond(w, 200, `{"code":1}`) },
		"internal error": func(w http.ResponseWriter) { respond(w, 200, `{"code":1000040343,"msg":"m"}`) },
		"HTTP status":    func(w http.ResponseWriter) { respond(w, 502, `bad gateway`) },
		"no JSON":        func(w http.ResponseWriter) { respond(w, 200, `<html>`) },
		"no data":        func(w http.ResponseWriter) { respond(w, 200, `{"code":0}`) },
		"no address":     func(w http.ResponseWriter) { respond(w, 200, `{"code":0,"data":{"URL":"http://x"}}`) },
		"nobody listening": func(w http.ResponseWriter) {
			respond(w, 200, `{"code":0,"data":{"URL":"ws://127.0.0.1:1/?ticket=TICKET"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.bootstrap = func(w http.ResponseWriter) bool { answer(w); return true }
			err := f.connector(t, nil).connect(t.Context())
			if _, refused := errors.AsType[*RefusedError](err); refused || err == nil {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "TICKET") {
				t.Errorf("%v shows the ticket", err)
			}
		})
	}
}

// TestSpeaksAsTheSDKDoes lets the official client and ours do the same, and
// compares what Feishu sees of both.
func TestSpeaksAsTheSDKDoes(t *testing.T) {
	type seen struct {
		Bootstrap string
		Headers   http.Header
		Ack       larkws.Frame
	}
	observe := func(start func(ctx context.Context, base string)) (s seen) {
		f := newFake(t)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			s.Bootstrap, s.Headers = r.Method+" "+r.URL.Path+" "+string(raw), r.Header
			r.Body = io.NopCloser(bytes.NewReader(raw))
			f.endpoint(w, r)
		}))
		defer front.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { start(ctx, front.URL) })
		l := <-f.links
		l.event("m", eventOf("x"), 1, 0)
		s.Ack = <-l.frames
		last := &s.Ack.Headers[len(s.Ack.Headers)-1]
		if last.Key != larkws.HeaderBizRt {
			t.Errorf("last header %s", last.Key)
		}
		last.Value = ""
		cancel()
		wg.Wait()
		return s
	}
	official := observe(func(ctx context.Context, base string) {
		d := dispatcher.NewEventDispatcher("", "").OnCustomizedEvent("x", func(context.Context, *larkevent.EventReq) error { return nil })
		cli := larkws.NewClient("cli_0123456789abcdef", "secret", larkws.WithDomain(base), larkws.WithEventHandler(d), larkws.WithLogLevel(larkcore.LogLevelError))
		_ = cli.Start(ctx)
	})
	ours := observe(func(ctx context.Context, base string) {
		c, err := New(Options{
			BaseURL: base, AppID: "cli_0123456789abcdef", AppSecret: "secret",
			Tap:    func([]byte) feishu.Verdict { return feishu.Keep },
			Logger: slog.New(slog.DiscardHandler), Counter: func(feishu.Counted) {},
		})
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.Run(ctx)
	})
	if diff := cmp.Diff(official, ours); diff != "" {
		t.Error(diff)
	}
}
