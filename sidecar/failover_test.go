//go:build unix

package sidecar_test

import (
	"context"
	"feishu-relay/sidecar"
	"fmt"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// replicated is a Redis in which another server takes the place of one that is lost.
type replicated struct {
	url    string
	serves func(key string) *redistest.Server // nil: nobody knows
	move   func(key string) (slots int, err error)
	other  func(*redistest.Server) *redistest.Server
}

// startSentinels returns two servers that write all to their disks, so that one that was killed comes back with what it had.
func startSentinels(t *testing.T) replicated {
	w := redistest.StartWatched(t, "--appendonly", "yes")
	return replicated{url: w.URL(), other: w.Other, serves: func(string) *redistest.Server {
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
	return replicated{url: c.URL(), move: c.Move, serves: func(key string) *redistest.Server {
		owner, _ := c.Owner(c.Slot(key))
		return owner
	}}
}

// failoverKeys are the streams of messages, mail and the side lane, in a Cluster of several primaries.
var failoverKeys = []string{"test:outbound:log", "nanobot:mailbox:{agent_b}:inbox",
	sidecar.SideKey("test:outbound")}

// takeover lets another server take the place of lost, that of a key. back brings lost back; nil: it was not away.
type takeover func(c *cluster, ctx context.Context, srv replicated, key string, lost *redistest.Server) (back func() error, err error)

func killed(_ *cluster, _ context.Context, _ replicated, _ string, lost *redistest.Server) (func() error, error) {
	lost.Kill()
	return lost.Restart, nil
}

func paused(_ *cluster, _ context.Context, _ replicated, _ string, lost *redistest.Server) (func() error, error) {
	return lost.Resume, lost.Pause()
}

// killedAhead kills the server when each stream has entries that its replica never got.
func killedAhead(c *cluster, ctx context.Context, srv replicated, _ string, lost *redistest.Server) (func() error, error) {
	replica := srv.other(lost)
	if err := replica.Pause(); err != nil {
		return nil, err
	}
	if err := lost.DropReplicas(); err != nil { // else the kernel takes more for the replica
		return nil, err
	}
	for _, stream := range failoverKeys {
		for was := lost.LastEntry(stream); lost.LastEntry(stream) == was; breathe(ctx) {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("nothing is added to %s: %w", stream, ctx.Err())
			}
		}
	}
	lost.Kill()
	return lost.Restart, replica.Resume()
}

// resharded moves the key's slot to another primary.
func resharded(c *cluster, ctx context.Context, srv replicated, key string, _ *redistest.Server) (func() error, error) {
	for {
		began := time.Now()
		slots, err := srv.move(key)
		if err == nil {
			c.t.Logf("%s: moved with %d slots in %s", key, slots, time.Since(began).Round(10*time.Millisecond))
			return nil, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		breathe(ctx) // the nodes do not agree yet on who has which slots
	}
}

// The primary is killed, also with what its replica never got, or stands still with its connections open, and another
// takes its place, or slots move to another, while bots talk, send direct messages and change settings: nothing is lost,
// nothing comes twice, each sender's messages come in order, and all passes again. In the long form sidecars are killed too.
func TestFailover(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	rounds, long := faultRounds(t)
	for _, tt := range []struct {
		name  string
		start func(*testing.T) replicated
		fault takeover
		short bool
	}{
		{"Sentinel, killed", startSentinels, killed, false},
		{"Sentinel, killed ahead of the replica", startSentinels, killedAhead, false},
		{"Sentinel, paused", startSentinels, paused, true},
		{"Cluster, killed", startCluster, killed, false},
		{"Cluster, paused", startCluster, paused, false},
		{"Cluster, resharded", startCluster, resharded, false},
	} {
		if !long && !tt.short {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := tt.start(t)
			c := newCluster(t, withErrands(t, setup{redis: srv.url}))
			ctx := roundsLimit(t, 4*rounds)
			lose, within := failoverKeys[:1], patience
			if long {
				lose, within = failoverKeys, passesWithin
			}
			done := make(chan struct{})
			var failed error
			go func() {
				defer close(done)
				for range rounds {
					for i, key := range lose {
						if failed = c.failover(ctx, srv, key, tt.fault, within); failed != nil {
							return
						}
						if long {
							c.killOne(i)
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

// passesWithin is how long after another server has taken over messages pass again.
const passesWithin = 10 * time.Second

// failover lets another server take over a key, waits until all passes, and brings the first one back.
func (c *cluster) failover(ctx context.Context, srv replicated, key string, fault takeover, within time.Duration) error {
	if err := c.h.awaitEvents(ctx, 20); err != nil {
		return err
	}
	lost := srv.serves(key)
	if lost == nil {
		return fmt.Errorf("nobody serves %s", key)
	}
	back, err := fault(c, ctx, srv, key, lost)
	if err != nil {
		return err
	}
	began, now := time.Now(), srv.serves(key)
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
	messages := time.Since(served)
	if err := c.h.mailPassed(ctx, mark); err != nil {
		return fmt.Errorf("direct messages after another server took the place of that of %s: %w", key, err)
	}
	mail := time.Since(served)
	c.t.Logf("%s: another server %s after the fault; messages passed %s after that, direct messages %s", key,
		served.Sub(began).Round(10*time.Millisecond), messages.Round(10*time.Millisecond), mail.Round(10*time.Millisecond))
	if messages > within || mail > within {
		return fmt.Errorf("messages passed only %s, direct messages %s, after another server took the place of that of %s",
			messages, mail, key)
	}
	if back == nil {
		return nil
	}
	if err := back(); err != nil {
		return err
	}
	now.AwaitReplicas(c.t, 1)
	return nil
}
