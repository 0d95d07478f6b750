package link_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/internal/test/logtest"
)

// connector runs one that talks to f, until the test ends.
func (f *fake) connector(e *link.Events, refused func(error)) *link.Connector {
	f.t.Helper()
	c := link.NewConnector(&url.URL{Scheme: "http", Host: f.host, Path: "/"}, app, secret, e, refused)
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			f.t.Errorf("Run: %v", err)
		}
	})
	return c
}

// events are those of a connector whose tap is f, and counts what it counts.
func events(counts *sync.Map, f tap) *link.Events {
	return &link.Events{Logger: slog.New(slog.DiscardHandler),
		Tap:     func(event []byte) (feishu.Verdict, []byte) { return f(string(event)) },
		Counter: func(what feishu.Counted) { counts.Store(string(what), true) }}
}

// acked reads the next acknowledgement: of which frame, and its code.
func (s *socket) acked() string {
	s.t.Helper()
	for {
		if f := s.frame(); f.Method == 1 {
			_, code, _ := strings.Cut(string(f.Payload), `"code":`)
			return messageID(f) + " " + code[:3]
		}
	}
}

func TestTheConnectorAcknowledgesWhatIsStored(t *testing.T) {
	var counts sync.Map
	f := newFake(t, tcp(t))
	var got []string
	c := f.connector(events(&counts, func(event string) (feishu.Verdict, []byte) {
		got = append(got, event) // one at a time: the race detector watches
		switch {
		case strings.Contains(event, "panic"):
			panic(event)
		case strings.Contains(event, "refuse"):
			return feishu.Refuse, nil
		}
		return feishu.Verdict(len(got) % 2), nil // Pass or Keep
	}), nil)
	for range 2 {
		up := f.next()
		up.want(pingFrame())
		got = nil
		var want, acks []string
		for i, kind := range []string{"im.message.receive_v1", "card.action.trigger", "of.the.future_v9", "", "refuse", "panic"} {
			want = append(want, `{"event_type":"`+kind+`"}`)
			acks = append(acks, fmt.Sprint(i, " ", 200+300*(i/4)))
			up.write(eventFrame(fmt.Sprint(i), want[i]))
		}
		up.raw([]byte("no frame"))
		whole := "in pieces, the last one first"
		up.write(pieceFrame("p", whole[9:], 2, 1))
		up.write(pieceFrame("odd", "-", 2, 9))
		up.write(pieceFrame("p", whole[:9], 2, 0))
		for _, ack := range append(acks, "p 200") {
			if a := up.acked(); a != ack {
				t.Errorf("acknowledged %s, want %s", a, ack)
			}
		}
		if diff := cmp.Diff(append(want, whole), got); diff != "" {
			t.Error(diff)
		}
		for _, what := range []string{"connected", "event", "event_refused", "panic", "bad_frame"} {
			if _, ok := counts.Load(what); !ok {
				t.Errorf("%s is not counted", what)
			}
		}
		if !c.Connected() {
			t.Error("not connected")
		}
		_ = up.conn.CloseNow() // and it connects again
	}
}

func TestASlowTapHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts sync.Map
		release := make(chan struct{})
		w := pipes()
		f := newFake(t, w)
		f.through(w)
		f.connector(events(&counts, func(event string) (feishu.Verdict, []byte) {
			if event == "slow" {
				<-release
			}
			return feishu.Keep, nil
		}), nil)
		up := f.next()
		for i := range 8 {
			up.write(eventFrame("slow", "slow"))
			if ack := up.acked(); ack != "slow 500" {
				t.Errorf("event %d: acknowledged %s", i, ack)
			}
			if i == 0 {
				up.write(eventFrame("fast", "fast"))
				if ack := up.acked(); ack != "fast 200" {
					t.Errorf("acknowledged %s", ack)
				}
			}
		}
		at := time.Now()
		up.write(eventFrame("fast", "fast"))
		if ack := up.acked(); ack != "fast 500" || time.Since(at) > 0 {
			t.Errorf("while all hang: acknowledged %s after %v", ack, time.Since(at))
		}
		if _, ok := counts.Load("event_late"); !ok {
			t.Error("not counted")
		}
		close(release)
	})
}

// through makes http.DefaultTransport, which a connector begins from, dial by w.
func (f *fake) through(w wire) {
	transport := http.DefaultTransport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = w.dial
	f.t.Cleanup(func() { transport.DialContext = dial })
}

// What only a person can fix is reported, with how, and tried again after a minute; other trouble after seconds.
func TestRefusalsOfTheConnector(t *testing.T) {
	for _, c := range []struct {
		name, bootstrap string
		handshake       http.Header
		fix             string // "": it is no refusal
	}{
		{"credentials", `{"code":514,"msg":"auth failed"}`, nil, "FEISHU_APP_SECRET"},
		{"domain", `{"code":1000040351,"msg":"Incorrect domain name","data":{}}`, nil, "FEISHU_BASE_URL"},
		{"limit", `{"code":1000040350,"msg":"exceed"}`, nil, "at most 50"},
		{"another", `{"code":77,"msg":"?"}`, nil, "events settings"},
		{"handshake limit", "", http.Header{"Handshake-Status": {"514"}, "Handshake-Msg": {"m"}, "Handshake-Autherrcode": {"1000040350"}}, "at most 50"},
		{"handshake", "", http.Header{"Handshake-Status": {"403"}}, "FEISHU_APP_ID"},
		{"busy", `{"code":1}`, nil, ""}, {"internal error", `{"code":1000040343,"msg":"m"}`, nil, ""},
		{"no JSON", `<html>`, nil, ""}, {"no data", `{"code":0}`, nil, ""},
		{"no address", `{"code":0,"data":{"URL":"http://x"}}`, nil, ""},
		{"HTTP status", "502", nil, ""},
		{"a lasting handshake", "", http.Header{"Handshake-Status": {"500"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipes()
				f := newFake(t, w)
				f.through(w)
				switch {
				case c.bootstrap == "502":
					f.says(502, "bad gateway", nil)
				case c.bootstrap != "":
					f.says(200, c.bootstrap, nil)
				}
				if c.handshake != nil {
					f.refuses(func(w http.ResponseWriter) {
						for key := range c.handshake {
							w.Header().Set(key, c.handshake.Get(key))
						}
						w.WriteHeader(http.StatusForbidden)
					})
				}
				var log logtest.Buffer
				var counts sync.Map
				e := events(&counts, func(string) (feishu.Verdict, []byte) { return feishu.Keep, nil })
				e.Logger = slog.New(slog.NewTextHandler(&log, nil))
				var said error
				conn := f.connector(e, func(err error) { said = err })
				time.Sleep(59 * time.Second)
				synctest.Wait()
				calls := 0
				for _, call := range f.requests() {
					if call.method == http.MethodPost {
						calls++
					}
				}
				refused := c.fix != ""
				if conn.Connected() || (calls == 1) != refused || (said != nil) != refused {
					t.Errorf("%d calls in a minute; it reported %v", calls, said)
				}
				if refused && !strings.Contains(said.Error(), c.fix) || !strings.Contains(log.String(), c.fix) {
					t.Errorf("it reported %v, and logged %s", said, &log)
				}
				for _, word := range []string{secret, "ticket=", "access_key"} {
					if strings.Contains(log.String(), word) {
						t.Errorf("the log shows %q: %s", word, &log)
					}
				}
			})
		})
	}
}

// The official client and ours do the same, as Feishu sees them.
func TestSpeaksAsTheSDKDoes(t *testing.T) {
	type seen struct {
		Bootstrap string
		Header    http.Header
		Ping, Ack larkws.Frame
	}
	observe := func(start func(f *fake)) (s seen) {
		f := newFake(t, tcp(t))
		start(f)
		up := f.next()
		s.Ping = *up.frame()
		up.write(eventFrame("m", `{"schema":"2.0","header":{"event_id":"e","event_type":"x"},"event":{}}`))
		for s.Ack = *up.frame(); s.Ack.Method == 0; s.Ack = *up.frame() {
		}
		last := &s.Ack.Headers[len(s.Ack.Headers)-1]
		if last.Key != larkws.HeaderBizRt {
			t.Errorf("last header %s", last.Key)
		}
		last.Value = ""
		call := f.requests()[0]
		s.Bootstrap, s.Header = call.method+" "+call.uri+" "+call.body, call.header
		return s
	}
	official := observe(func(f *fake) {
		d := dispatcher.NewEventDispatcher("", "").OnCustomizedEvent("x", func(context.Context, *larkevent.EventReq) error { return nil })
		cli := larkws.NewClient(app, secret, larkws.WithDomain("http://"+f.host), larkws.WithEventHandler(d), larkws.WithLogLevel(larkcore.LogLevelError))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- cli.Start(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
	})
	ours := observe(func(f *fake) {
		var counts sync.Map
		f.connector(events(&counts, func(string) (feishu.Verdict, []byte) { return feishu.Keep, nil }), nil)
	})
	if diff := cmp.Diff(official, ours); diff != "" {
		t.Error(diff)
	}
}
