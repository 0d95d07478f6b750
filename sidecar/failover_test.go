//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"feishu-relay/internal/redistest"
	"feishu-relay/sidecar"
)

// replicated is a Redis in which another server takes the place of one that is lost.
type replicated struct {
	url    string
	serves func(key string) *redistest.Server // nil: nobody knows
}

func startSentinels(t *testing.T) replicated {
	w := redistest.StartWatched(t)
	return replicated{w.URL(), func(string) *redistest.Server {
		switch w.Serving() {
		case w.Primary.Addr():
			return w.Primary
		case w.Replica.Addr():
			return w.Replica
		}
		return nil
	}}
}

func startCluster(t *testing.T) replicated {
	c := redistest.StartCluster(t)
	return replicated{c.URL(), func(key string) *redistest.Server {
		owner, _ := c.Owner(c.Slot(key))
		return owner
	}}
}

// The primary is killed, or stands still with its connections open, and another takes its place, while
// bots talk, send direct messages and change settings: nothing is lost, nothing comes twice, each sender's
// messages come in order, and all passes again.
func TestFailover(t *testing.T) {
	t.Parallel()
	rounds, long := faultRounds(t)
	keys := []string{sidecar.OutcomesKey("test:outbound"), "test:outbound:log", "nanobot:mailbox:{agent_b}:inbox",
		sidecar.MarksKey("test:outbound")} // in a Cluster, of several primaries
	for _, tt := range []struct {
		name  string
		start func(*testing.T) replicated
		pause bool
		short bool
	}{
		{"Sentinel, killed", startSentinels, false, false},
		{"Sentinel, paused", startSentinels, true, true},
		{"Cluster, killed", startCluster, false, false},
		{"Cluster, paused", startCluster, true, false},
	} {
		if !long && !tt.short {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := tt.start(t)
			c := newCluster(t, withErrands(t, setup{redis: srv.url}))
			ctx := roundsLimit(t, 4*rounds)
			lose := keys[:1]
			if long {
				lose = keys
			}
			done := make(chan struct{})
			var failed error
			go func() {
				defer close(done)
				for range rounds {
					for _, key := range lose {
						if failed = c.failover(ctx, srv, key, tt.pause); failed != nil {
							return
						}
					}
				}
			}()
			e := c.startErrands(ctx, done)
			c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
			must(t, failed)
			c.verify(ctx)
			e.verify(ctx)
			c.h.record.mustPlant(t)
		})
	}
}

// failover takes the server of a key away, waits until another serves it and all passes, and brings it back.
func (c *cluster) failover(ctx context.Context, srv replicated, key string, pause bool) error {
	if err := c.h.awaitEvents(ctx, 20); err != nil {
		return err
	}
	lost := srv.serves(key)
	if lost == nil {
		return fmt.Errorf("nobody serves %s", key)
	}
	began := time.Now()
	if !pause {
		lost.Kill()
	} else if err := lost.Pause(); err != nil {
		return err
	}
	now := lost
	for now == nil || now == lost {
		if ctx.Err() != nil {
			return fmt.Errorf("no other server of %s: %w", key, ctx.Err())
		}
		breathe(ctx)
		now = srv.serves(key)
	}
	served, mark := time.Now(), c.h.mark()
	if err := c.h.passed(ctx, mark); err != nil {
		return fmt.Errorf("messages after another server took the place of that of %s: %w", key, err)
	}
	c.t.Logf("%s: another server %s after the fault, messages passed %s after that", key,
		served.Sub(began).Round(10*time.Millisecond), time.Since(served).Round(10*time.Millisecond))
	var err error
	if pause {
		err = lost.Resume()
	} else {
		err = lost.Restart()
	}
	if err == nil {
		now.AwaitReplicas(c.t, 1)
	}
	return err
}
