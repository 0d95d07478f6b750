package core

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// While too much waits for the bot, a lane waits; it goes on once there is room, and ends with the sidecar.
func TestALaneWaitsForRoom(t *testing.T) {
	watch := &reads{came: make(chan string, 8)}
	c, err := Open(Options{Dir: t.TempDir(), Revision: func() any { return nil }, Watch: watch,
		Trace: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	work.Go(func() { _ = c.loop.Run(ctx) })
	given, back := context.WithCancel(ctx)
	work.Go(func() {
		c.GiveMail(given, Mail{Key: "large", Bytes: 1 << 30, Settled: func() deliver.Result { return "" }})
	})
	for !c.loop.Full() {
		time.Sleep(time.Millisecond)
	}
	line := relay.Delivery{Line: []byte("no message"), Settle: func() { watch.came <- "settled" }}
	ends, end := context.WithCancel(ctx)
	end()
	if c.takeMessage(ends, c.lanes[0], line); len(watch.came) > 0 {
		t.Error("a line was taken without room")
	}
	work.Go(func() { c.takeMessage(ctx, c.lanes[0], line) })
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
}

// What has waited for the backend for long is published in parts that the book can keep.
func TestALargeBacklog(t *testing.T) {
	c, err := Open(Options{Dir: t.TempDir(), MaxAge: time.Hour, Revision: func() any { return nil }, Watch: &reads{},
		Trace: func(string) {}, Bots: taker{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c.work.Go(func() { _ = c.loop.Run(ctx) })
	line := []byte(`"` + strings.Repeat("x", relay.MaxLine-10) + `"`)
	for range 40 {
		c.put(c.lanes[0], loop.Chat{}, &group.Effect{}, line, nil)
	}
	c.work.Go(func() { c.publish(c.lanes[0]) })
	c.drain(time.Minute)
	if err := c.loop.Save(ctx, loop.Event{Note: "after", Value: []byte("1")}); err != nil {
		t.Error(err)
	}
	c.stop()
	stop()
	c.work.Wait()
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
