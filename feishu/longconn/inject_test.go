package longconn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu/longconn"
)

// inject does so in the background.
func (r *rig) inject(ctx context.Context, event string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.s.Inject(ctx, []byte(event)) }()
	return done
}

func TestInjectedFrame(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, feishu := r.ready()
	done := r.inject(t.Context(), event("ours"))
	f := bot.frame()
	h := larkws.Headers(f.Headers)
	if f.Method != 1 || f.Service != service || f.SeqID == 0 || f.LogID == 0 || string(f.Payload) != event("ours") ||
		h.GetString("type") != "event" || h.GetString("sum") != "1" || h.GetString("seq") != "0" ||
		!strings.HasPrefix(h.GetString("message_id"), "relay-") || h.GetString("trace_id") == "" || h.GetInt("timestamp") == 0 {
		t.Errorf("got %+v", f)
	}
	bot.write(ackOf(f, 200))
	if err := <-done; err != nil {
		t.Error(err)
	}
	feishu.nothingBefore(bot) // the acknowledgement is not Feishu's
	if r.s.Status().Waiting != 0 || r.counted("delivered") != 1 {
		t.Errorf("status %+v, counts %v", r.s.Status(), r.counts)
	}
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

// times reads how often and when a frame comes that nobody acknowledges.
func times(t *testing.T, bot *socket, n int) (waits []time.Duration, last *larkws.Frame) {
	t.Helper()
	last = bot.frame()
	at := time.Now()
	for range n {
		f := patient(bot)
		if messageID(f) != messageID(last) || string(f.Payload) != string(last.Payload) {
			t.Errorf("got %v, which is not %v again", f, last)
		}
		waits = append(waits, time.Since(at))
		last, at = f, time.Now()
	}
	return waits, last
}

// patient reads a frame however long it takes.
func patient(s *socket) *larkws.Frame { return s.parse((<-s.got).data) }

// keepUp pings and answers, so that the connection does not count as silent.
func keepUp(bot, feishu *socket) (stop func()) {
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
			<-feishu.got
			if err := feishu.conn.Ping(context.Background()); err != nil { // a word that the bot does not see
				return
			}
		}
	}()
	return func() { close(done); <-gone }
}

func TestWhatIsNotAcknowledgedComesAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		acked bool
		want  []time.Duration
	}{
		{"bot that never acknowledged", false, []time.Duration{3 * time.Second, 15 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		{"bot that did", true, []time.Duration{15 * time.Second, 5 * time.Minute, 5 * time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipes(), nil)
				bot, feishu := r.ready()
				if c.acked {
					f := eventFrame("m1", event("e1"))
					feishu.write(f)
					bot.want(f)
					bot.write(ackOf(f, 200))
					feishu.want(ackOf(f, 200))
				}
				stop := keepUp(bot, feishu)
				defer stop()
				done := r.inject(t.Context(), event("ours"))
				got, last := times(t, bot, len(c.want))
				for i, d := range c.want {
					if got[i] != d {
						t.Errorf("waited %v, want %v", got, c.want)
						break
					}
				}
				bot.write(ackOf(last, 200))
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := r.counted("redelivered"); n != len(c.want) {
					t.Errorf("%d counted as redelivered", n)
				}
			})
		})
	}
}

func TestALateAcknowledgementCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		bot, _ := r.ready()
		done := r.inject(t.Context(), event("ours"))
		first := bot.frame()
		bot.frame()
		bot.write(ackOf(first, 200))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestABotThatFailedGetsItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		bot, feishu := r.ready()
		stop := keepUp(bot, feishu)
		defer stop()
		done := r.inject(t.Context(), event("ours"))
		at := time.Now()
		bot.write(ackOf(bot.frame(), 500))
		f := patient(bot)
		if took := time.Since(at); took != 15*time.Second { // it was not lost: no need for haste
			t.Errorf("came again after %v", took)
		}
		bot.write(ackOf(f, 200))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if r.counted("ack_error") != 1 {
			t.Error("not counted")
		}
	})
}

func TestAnInjectionWaitsForABot(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	changed := r.s.Changed()
	done := r.inject(t.Context(), event("ours"))
	bot, _ := r.connect()
	bot.ping()
	<-changed
	if !r.s.Connected() {
		t.Error("not connected")
	}
	bot.write(ackOf(bot.frame(), 200))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnInjectionMovesToTheNextConnection(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, _ := r.ready()
	done := r.inject(t.Context(), event("ours"))
	first := bot.frame()
	changed := r.s.Changed()
	_ = bot.conn.CloseNow()
	<-changed
	if r.s.Connected() {
		t.Error("still connected")
	}
	bot, _ = r.connect()
	bot.ping()
	again := bot.frame()
	if messageID(again) != messageID(first) {
		t.Errorf("got %s, want %s again", messageID(again), messageID(first))
	}
	bot.write(ackOf(again, 200))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A bot that was killed may leave a connection on which nothing is answered any
// more, while its successor is there. A slow bot answers the WebSocket's pings.
func TestAnInjectionMovesAwayFromADeadConnectionOnly(t *testing.T) {
	for name, dead := range map[string]bool{"dead": true, "slow": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipes(), nil)
				conn, _, err := websocket.Dial(t.Context(), r.bootstrap().URL, &websocket.DialOptions{
					HTTPClient:     r.client,
					OnPingReceived: func(context.Context, []byte) bool { return !dead },
				})
				if err != nil {
					t.Fatal(err)
				}
				old := newSocket(t, conn)
				feishu := r.feishu.next()
				old.ping()
				feishu.want(pingFrame())
				done := r.inject(t.Context(), event("1"))
				old.write(ackOf(old.frame(), 200))
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				successor, _ := r.ready()

				done = r.inject(t.Context(), event("2"))
				first := old.frame() // it has acknowledged one before
				at := time.Now()
				from, want := successor, 20*time.Second
				if !dead {
					from, want = old, 15*time.Second
				}
				f := from.frame()
				if took := time.Since(at); took != want || messageID(f) != messageID(first) {
					t.Errorf("came again after %v, want %v", took, want)
				}
				if dead { // the next one does not try it first
					next := r.inject(t.Context(), event("3"))
					successor.write(ackOf(successor.frame(), 200))
					if err := <-next; err != nil {
						t.Error(err)
					}
				}
				from.write(ackOf(f, 200))
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestInjectionsEnd(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	nobody := r.inject(ctx, event("1"))
	until(t, "it waits", func() bool { return r.s.Status().Waiting == 1 })
	cancel()
	if err := <-nobody; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	bot, _ := r.ready()
	ctx, cancel = context.WithCancel(t.Context())
	unanswered := r.inject(ctx, event("2"))
	bot.frame()
	cancel()
	if err := <-unanswered; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	closed := r.inject(t.Context(), event("3"))
	bot.frame()
	if err := r.s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; !errors.Is(err, longconn.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := r.s.Inject(t.Context(), nil); !errors.Is(err, longconn.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
