//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// defaultKills keeps the tests fast; `make crash` wants hundreds.
const defaultKills = 8

func killsWanted(t *testing.T) int {
	t.Helper()
	text := os.Getenv(killsEnv)
	if text == "" {
		return defaultKills
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of kills", killsEnv, text)
	}
	return n
}

// onBackend is the setup for a backend, with a Redis of its own that keeps
// nothing over its end.
func onBackend(t *testing.T, backend string, s setup) setup {
	t.Helper()
	if backend == "redis" {
		s.redis = redistest.Start(t).URL()
	}
	return s
}

// Sidecars are killed at random instants, also while they recover from the last
// kill, while bots talk, each with several callers in a chat, and drop their
// connections. Nothing that was accepted is lost, torn, out of order or repeated
// beyond what a kill excuses.
func TestCrashAtRandom(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, backend := range backends {
		for _, folders := range []string{"shared", "separate"} {
			t.Run(backend+"/"+folders, func(t *testing.T) {
				t.Parallel()
				kills := max(1, killsWanted(t)/2)
				s := setup{separate: folders == "separate", webhooks: []int{1}, callers: 2}
				s.change = wantsMentions(t, 2, "oc_3")
				c := newCluster(t, onBackend(t, backend, s))
				c.h.stops = func(bot, chat string) relay.Reason {
					if bot == c.bots[2].name && chat == "oc_3" {
						return relay.NotMentioned
					}
					return relay.Pass
				}
				for _, b := range c.bots {
					b.flaky.Store(true)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(kills)*10*time.Second)
				defer cancel()
				done := make(chan struct{})
				var killing sync.WaitGroup
				killing.Go(func() {
					defer close(done)
					for range kills {
						// The instant is any in the way of a message.
						if c.h.awaitEvents(ctx, 1+rand.IntN(20)) != nil {
							return
						}
						victim := c.bots[rand.IntN(len(c.bots))].side
						victim.kill()
						victim.countKill()
						victim.start("")
					}
				})
				c.talkUntil(ctx, done, 5, "oc_1", "oc_2", "oc_3")
				killing.Wait()
				c.talk(ctx, 2, "oc_1", "oc_2", "oc_3") // all are up: what waits behind is pushed out
				c.verify(ctx)
				if left := c.h.record.plant(t); len(left) > 0 {
					t.Logf("too few kills to plant %v", left)
				}
			})
		}
	}
}

// wantsMentions lets the i-th bot hear in a chat only what addresses it.
func wantsMentions(t *testing.T, i int, chat string) func(int, *sidecar.Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "groups.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"groups":{%q:{"group_policy":"mention"}}}`, chat), 0o600))
	return func(j int, cfg *sidecar.Config) {
		if j == i {
			cfg.GroupsFile, cfg.MembershipCheck = file, "off"
		}
	}
}

// crashStep is a step between two that must not be parted by a crash.
type crashStep struct {
	name   string
	victim int      // the sidecar that is killed: 0 delivers by stream, 1 by webhook
	lives  []string // the points at which successive lives end
}

var crashPoints = []crashStep{
	{"send recorded", 0, []string{"recorded:2"}},
	{"send accepted", 0, []string{"accepted:2"}},
	{"send to be answered", 1, []string{"answering:2"}},
	{"published", 0, []string{"published:2"}},
	{"message arrived", 1, []string{"arrived:2"}},
	{"message taken", 0, []string{"taken:2"}},
	{"before the stream", 0, []string{"inject:3"}},
	{"before the webhook", 1, []string{"inject:3"}},
	{"behind the stream", 0, []string{"delivered:3"}},
	{"behind the webhook", 1, []string{"delivered:3"}},
	{"at each step of the same messages, by stream", 0, []string{"arrived:1", "taken:1", "inject:1", "delivered:1"}},
	{"at each step of the same messages, by webhook", 1, []string{"arrived:1", "taken:1", "inject:1", "delivered:1"}},
	{"at each step of the same send", 0, []string{"accepted:1", "recorded:1", "published:1", "answering:1"}},
}

// A sidecar is killed at every step of a message's way, and in its recovery.
func TestCrashAtNamedPoints(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for points := range slices.Chunk(crashPoints, 4) { // each with sidecars of its own
			t.Run(backend+"/from "+points[0].name, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, onBackend(t, backend, setup{separate: true, bots: 2, webhooks: []int{1}}))
				for i, point := range points {
					ok := t.Run(point.name, func(t *testing.T) { crashAt(c.in(t), point, fmt.Sprintf("oc_%d", i)) })
					if !ok {
						return
					}
				}
				c.verify(limited(t))
			})
		}
	}
}

// crashAt lets bots talk while one sidecar goes through the lives of a point. In the end both sidecars show what became
// of each message.
func crashAt(c *cluster, point crashStep, chat string) {
	ctx := limited(c.t)
	victim := c.bots[point.victim].side
	victim.stop()
	var failed error
	up := make(chan struct{})
	go func() {
		defer close(up)
		for _, at := range point.lives {
			if failed = victim.crash(ctx, at); failed != nil {
				break
			}
		}
		victim.start("")
	}()
	c.talkUntil(ctx, up, 2, chat, "oc_all")
	must(c.t, failed)
	c.settle(ctx)
	for _, viewer := range c.bots {
		for _, b := range c.bots {
			c.wantOutcomes(ctx, viewer, b.name, chat)
		}
	}
}

// A sidecar is killed while it takes in a user's message that no other bot
// hears: reported again, the message reaches the other transcript all the same.
func TestCrashWhileHearing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, onBackend(t, backend, setup{separate: true, bots: 2}))
			ctx := limited(t)
			b := c.bots[0]
			b.side.stop()
			crashed := make(chan error, 1)
			go func() {
				defer b.side.start("")
				crashed <- b.side.crash(ctx, "heard:1")
			}()
			must(t, b.hear(ctx, "oc_1", "user", 1))
			must(t, <-crashed)
			c.talk(ctx, 1, "oc_1")
			c.verify(ctx)
		})
	}
}

// Sidecars that are asked to stop, again and again under load, repeat nothing
// and lose nothing.
func TestFaultOrderlyRestarts(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, onBackend(t, backend, setup{separate: true, webhooks: []int{1}}))
			for _, b := range c.bots {
				b.flaky.Store(true)
			}
			ctx := limited(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range 2 * len(c.bots) {
					if c.h.awaitEvents(ctx, 10) != nil {
						return
					}
					victim := c.bots[i%len(c.bots)].side
					victim.stop()
					victim.start("")
				}
			}()
			c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
			c.verify(ctx)
		})
	}
}
