//go:build unix

package sidecar_test

import (
	"errors"
	"strings"
	"testing"

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
	ctx := limited(t)
	c.talk(ctx, 5, "oc_1", "oc_2")
	for _, b := range c.bots {
		st, err := b.status(ctx)
		must(t, err)
		if st.Ready || !strings.Contains(st.NotReady, "redis") {
			t.Errorf("%s without Redis: ready %v, %q", b.name, st.Ready, st.NotReady)
		}
	}
	c.killOne(0) // what was accepted survives that, too
	must(t, srv.Restart())
	c.talk(ctx, 2, "oc_1", "oc_2")
	c.verify(ctx)
}

// Redis, which persists nothing, is killed and comes back under load, or stands still: connections are taken, and nobody
// answers. A sidecar is killed meanwhile.
func TestFaultRedisAway(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for name, fault := range map[string]struct{ away, back func(*redistest.Server) error }{
		"killed": {func(s *redistest.Server) error { s.Kill(); return nil }, (*redistest.Server).Restart},
		"paused": {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2, webhooks: []int{1}})
			ctx := limited(t)
			done := make(chan struct{})
			var failed error
			go func() {
				defer close(done)
				for round := range 3 {
					failed = c.h.awaitEvents(ctx, 25)
					failed = errors.Join(failed, fault.away(srv), c.bots[0].notReady(ctx), c.h.awaitSends(ctx, 5)) // they are accepted
					if round > 0 {
						c.killOne(round - 1)
					}
					if failed = errors.Join(failed, fault.back(srv)); failed != nil {
						return
					}
				}
			}()
			c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
			must(t, failed)
			c.verify(ctx)
		})
	}
}
