//go:build unix

package sidecar_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// Redis is away when the sidecars start: they start all the same, say what is
// wrong, take what the bots send, and deliver it when Redis is there.
func TestFaultRedisDownAtStart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Kill()
	c := prepare(t, setup{redis: srv.URL(), separate: true, bots: 2})
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	c.talk(ctx, 5, "oc_1", "oc_2")
	for _, b := range c.bots {
		st, err := b.status(ctx)
		must(t, err)
		if st.Ready || !strings.Contains(st.NotReady, "redis") {
			t.Errorf("%s without Redis: ready %v, %q", b.name, st.Ready, st.NotReady)
		}
	}
	simple.bitten(ctx)
	b := c.bots[0].side // what was accepted survives that, too
	b.kill()
	b.countKill()
	b.start("")
	must(t, srv.Restart())
	c.talk(ctx, 2, "oc_1", "oc_2")
	c.verify(ctx)
	simple.mustLose(t)
}

// Redis, which persists nothing, is killed and comes back under load, with a
// sidecar killed meanwhile.
func TestFaultRedisKilled(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2, webhooks: []int{1}})
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	eventually(ctx, t, "naive programs talk", simple.begun)
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		for round := range 3 {
			failed = c.h.awaitEvents(ctx, 25)
			srv.Kill()
			failed = errors.Join(failed, c.h.awaitSends(ctx, 5)) // they are accepted
			if round > 0 {
				side := c.bots[round-1].side
				side.kill()
				side.countKill()
				side.start("")
			}
			simple.bitten(ctx)
			if failed = errors.Join(failed, srv.Restart()); failed != nil {
				return
			}
		}
	}()
	c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
	must(t, failed)
	c.verify(ctx)
	simple.mustLose(t)
}

// Redis stands still for three seconds: connections are taken, nobody answers.
func TestFaultRedisPaused(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2})
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	eventually(ctx, t, "naive programs talk", simple.begun)
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		failed = c.h.awaitEvents(ctx, 20)
		failed = errors.Join(failed, srv.Pause())
		<-time.After(3 * time.Second) // the fault itself
		failed = errors.Join(failed, srv.Resume())
	}()
	c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
	must(t, failed)
	c.verify(ctx)
	simple.mustLose(t)
}
