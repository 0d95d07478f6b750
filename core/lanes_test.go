package core

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// running is a core whose loop runs until the test ends.
func running(t *testing.T, o Options) *Core {
	t.Helper()
	o.Dir, o.Revision, o.Trace = t.TempDir(), func() any { return nil }, func(string) {}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var looping sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	looping.Go(func() { _ = c.loop.Run(ctx) })
	t.Cleanup(func() {
		c.stop() // first: then nothing is done that follows
		c.work.Wait()
		stop()
		looping.Wait()
	})
	return c
}

// While too much waits for the bot, a lane waits; it goes on once there is room, and ends with the sidecar.
func TestALaneWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := &reads{came: make(chan string, 8)}
		c := running(t, Options{Watch: watch})
		given, back := context.WithCancel(t.Context())
		c.work.Go(func() {
			c.GiveMail(given, Mail{Key: "large", Bytes: 1 << 30, Settled: func() deliver.Result { return "" }})
		})
		for !c.loop.Full() {
			time.Sleep(time.Millisecond)
		}
		line := relay.Delivery{Line: []byte("no message"), Settle: func() { watch.came <- "settled" }}
		ends, end := context.WithCancel(t.Context())
		end()
		if c.takeMessage(ends, c.lanes[0], line); len(watch.came) > 0 {
			t.Error("a line was taken without room")
		}
		c.work.Go(func() { c.takeMessage(t.Context(), c.lanes[0], line) })
		time.Sleep(4 * roomAfter)
		if len(watch.came) > 0 {
			t.Error("a line was taken without room")
		}
		back()
		for _, want := range []string{Outbound, "malformed", "stopped", "settled"} {
			if got := <-watch.came; got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
	})
}

// What has waited for the backend for long is published in parts that the book can keep.
func TestALargeBacklog(t *testing.T) {
	c := running(t, Options{MaxAge: time.Hour, Watch: &reads{}, Bots: taker{}, Logger: slog.New(slog.DiscardHandler)})
	line := []byte(`"` + strings.Repeat("x", relay.MaxLine-10) + `"`)
	for range 40 {
		c.put(c.lanes[0], loop.Chat{}, &group.Effect{}, line, nil)
	}
	c.work.Go(func() { c.publish(c.lanes[0]) })
	c.drain(time.Minute)
	if err := c.loop.Save(t.Context(), loop.Event{Note: "after", Value: []byte("1")}); err != nil {
		t.Error(err)
	}
}

// taker is a backend that takes each line.
type taker struct{ relay.Backend }

func (taker) Publish(context.Context, [][]byte, relay.Receipt) (relay.Receipt, error) {
	return "1-1/x", nil
}

// reads is a Watch of what is read.
type reads struct {
	Watch
	came chan string
}

func (r *reads) Read(lane string)        { r.came <- lane }
func (r *reads) Malformed([]byte, error) { r.came <- "malformed" }
func (r *reads) Stopped(Stop)            { r.came <- "stopped" }
func (r *reads) Ended(*deliver.Effect)   {}
func (r *reads) Problem(string, error)   {}
