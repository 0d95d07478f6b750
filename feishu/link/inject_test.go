package link_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// inject does so in the background.
func (r *rig) inject(ctx context.Context, event string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.s.Inject(ctx, feishu.Injection{Event: []byte(event)}) }()
	return done
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

// A bot may answer as the last thing it does. Ten times, since what is seen first is up to chance.
func TestAnAnswerCountsThoughTheConnectionEnds(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, pipes(), nil)
			bot, _ := r.ready()
			done, over := make(chan error, 1), make(chan struct{})
			go func() {
				done <- r.s.Inject(t.Context(), feishu.Injection{Event: []byte(event("e1")), Written: func() { <-over }})
			}()
			bot.write(ackOf(bot.frame(), 200))
			synctest.Wait()
			_ = bot.conn.CloseNow()
			synctest.Wait()
			close(over)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
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
