package link_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
)

// inject does so in the background.
func (r *rig) inject(ctx context.Context, event string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.s.Inject(ctx, feishu.Injection{Event: []byte(event)}) }()
	return done
}

func TestInjectionsRunSideBySide(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	first := r.inject(t.Context(), event("1"))
	f1 := bot.frame()
	second := r.inject(t.Context(), event("2"))
	f2 := bot.frame()
	bot.write(ackOf(f2, 200))
	if err := <-second; err != nil {
		t.Error(err)
	}
	bot.write(ackOf(f1, 200))
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// What a bot thinks about is not kept here: its caller can write it again.
func TestInjectedEventsAreNotHeld(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, upstream := r.ready()
	first := eventFrame("m1", event("e1"))
	upstream.write(first)
	bot.want(first)
	bot.write(ackOf(first, 200))
	upstream.want(ackOf(first, 200))
	held := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := held()
	const count, size = 30, 1 << 20
	var all []<-chan error
	for range count {
		all = append(all, r.inject(ctx, event(strings.Repeat("x", size))))
		bot.frame()
	}
	if grown := held() - before; grown > count*size/2 {
		t.Errorf("%d bytes are held of %d", grown, count*size)
	}
	cancel()
	for _, done := range all {
		<-done
	}
}

// patient reads the next event, however long it takes.
func patient(s *socket) *larkws.Frame {
	for {
		if f := s.parse((<-s.got).data); f.Method == 1 {
			return f
		}
	}
}

// keepUp pings and answers, so that the connection does not count as silent.
func keepUp(bot, upstream *socket) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-time.After(time.Minute):
			case <-done:
				return
			}
			bot.ping()
			<-upstream.got
			upstream.write(pongFrame(""))
		}
	}()
	return func() { close(done); <-gone }
}

// A bot that thinks inside its handler is written to once, however long it takes.
// Only a bot that has acknowledged nothing, and of which nothing shows that it
// listens, may have lost the frame.
func TestAnInjectionIsWrittenOnce(t *testing.T) {
	for _, c := range []struct {
		name          string
		acked, silent bool
		repeats       int
	}{
		{"bot that acknowledged before", true, true, 0},
		{"bot that pings and answers pings", false, false, 0},
		{"bot that answers no pings", false, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipes(), nil)
				bot, upstream := r.pinged(c.silent)
				if c.acked {
					f := eventFrame("m1", event("e1"))
					upstream.write(f)
					bot.want(f)
					bot.write(ackOf(f, 200))
					upstream.want(ackOf(f, 200))
				}
				stop := keepUp(bot, upstream)
				defer stop()
				at := time.Now()
				done := r.inject(t.Context(), event("ours"))
				f := bot.frame()
				for range c.repeats {
					again := patient(bot)
					if messageID(again) != messageID(f) || time.Since(at) > 9*time.Second {
						t.Errorf("after %v came %v", time.Since(at), again)
					}
				}
				time.Sleep(14 * time.Minute)
				bot.write(ackOf(f, 200))
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := r.counted("redelivered"); n != c.repeats {
					t.Errorf("written again %d times, want %d", n, c.repeats)
				}
			})
		})
	}
}

// pinged opens a connection whose bot has pinged; a silent one does not answer the
// WebSocket's own pings.
func (r *rig) pinged(silent bool) (bot, upstream *socket) {
	conn, _, err := websocket.Dial(r.t.Context(), r.bootstrap().URL, &websocket.DialOptions{
		HTTPClient:     r.client,
		OnPingReceived: func(context.Context, []byte) bool { return !silent },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	bot = newSocket(r.t, conn)
	upstream = r.feishu.next()
	bot.ping()
	upstream.want(pingFrame())
	upstream.write(pongFrame(""))
	bot.want(pongFrame(""))
	return bot, upstream
}

func TestAnAcknowledgementWithAnError(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	done := r.inject(t.Context(), event("ours"))
	bot.write(ackOf(bot.frame(), 500))
	if a, ok := errors.AsType[*feishu.AnswerError](<-done); !ok || a.Code != 500 {
		t.Errorf("got %v", a)
	}
	if r.counted("ack_error") != 1 {
		t.Error("not counted")
	}
}

// A caller that has stopped waiting hears of a late acknowledgement all the same.
func TestALateAcknowledgementCounts(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	ctx, cancel := context.WithCancel(t.Context())
	late, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- r.s.Inject(ctx, feishu.Injection{Event: []byte(event("ours")), Late: func() { close(late) }})
	}()
	f := bot.frame()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	bot.write(ackOf(f, 200))
	<-late
}

// A bot may acknowledge an event on the connection that it has by then.
func TestAnAcknowledgementOnTheNextConnectionCounts(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	late, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- r.s.Inject(t.Context(), feishu.Injection{Event: []byte(event("ours")), Late: func() { close(late) }})
	}()
	f := bot.frame()
	_ = bot.conn.CloseNow()
	if err := <-ended; !errors.Is(err, feishu.ErrInjectionEnded) {
		t.Error(err)
	}
	next, _ := r.ready()
	next.write(ackOf(f, 200))
	<-late
}

func TestAnInjectionWithoutAConnection(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	if err := <-r.inject(t.Context(), event("ours")); !errors.Is(err, feishu.ErrNotInjected) {
		t.Errorf("got %v", err)
	}
	bot, _ := r.ready()
	done := r.inject(t.Context(), event("ours"))
	bot.frame()
	_ = bot.conn.CloseNow()
	if err := <-done; !errors.Is(err, feishu.ErrInjectionEnded) {
		t.Errorf("got %v", err)
	}
}

// A bot that was killed may leave a connection on which nothing is answered any
// more, while its successor is there. A slow bot answers the WebSocket's pings.
func TestAnInjectionLeavesADeadConnectionOnly(t *testing.T) {
	for name, dead := range map[string]bool{"dead": true, "slow": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipes(), nil)
				old, upstream := r.pinged(dead)
				first := r.inject(t.Context(), event("1"))
				old.write(ackOf(old.frame(), 200))
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				done := r.inject(t.Context(), event("2"))
				f := old.frame()
				successor, _ := r.ready()
				if dead {
					if err := <-done; !errors.Is(err, feishu.ErrInjectionEnded) {
						t.Errorf("got %v", err)
					}
					next := r.inject(t.Context(), event("3"))
					successor.write(ackOf(successor.frame(), 200))
					if err := <-next; err != nil {
						t.Error(err)
					}
					return
				}
				stop := keepUp(old, upstream)
				defer stop()
				time.Sleep(10 * time.Minute)
				old.write(ackOf(f, 200))
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestInjectionsEnd(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	ctx, cancel := context.WithCancel(t.Context())
	unanswered := r.inject(ctx, event("2"))
	bot.frame()
	cancel()
	if err := <-unanswered; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	closed := r.inject(t.Context(), event("3"))
	bot.frame()
	if err := r.s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-closed; !errors.Is(err, link.ErrClosed) && !errors.Is(err, feishu.ErrInjectionEnded) {
		t.Errorf("got %v", err)
	}
	if err := <-r.inject(t.Context(), ""); !errors.Is(err, link.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
