//go:build unix

package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// Whatever happens between the sidecars and Redis: nothing is lost, nothing comes twice, each
// sender's messages come in order, what the bots send is accepted meanwhile, and all passes again
// when the fault has ended. So do direct messages, outcomes and settings.
func TestNetworkFaultsBeforeRedis(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	rounds, long := faultRounds(t)
	srv := redistest.Start(t)
	path := netfault.Start(t, srv.Addr())
	c := newCluster(t, withErrands(t, setup{redis: "redis://" + path.Addr()}))
	ctx := roundsLimit(t, 8*rounds)
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		for range rounds {
			faults := slices.Clone(netfault.Faults)
			rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
			if !long { // the hardest one, and another
				hardest := slices.IndexFunc(faults, func(f netfault.Fault) bool { return f.Name == "half-open" })
				faults = []netfault.Fault{faults[hardest], faults[(hardest+1)%len(faults)]}
			}
			for i, f := range faults {
				if failed = c.endure(ctx, path, f); failed != nil {
					failed = fmt.Errorf("%s: %w", f.Name, failed)
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
}

// endure lets the sidecars go through a fault.
func (c *cluster) endure(ctx context.Context, path *netfault.Proxy, f netfault.Fault) error {
	if err := c.h.awaitEvents(ctx, 10); err != nil {
		return err
	}
	if err := path.Begin(f); err != nil {
		return err
	}
	if f.Stops {
		for _, b := range c.bots {
			if err := b.notReady(ctx); err != nil {
				return err
			}
		}
	}
	err := c.h.awaitSends(ctx, 10)
	path.End()
	ended, mark := time.Now(), c.h.mark()
	if err = errors.Join(err, c.h.passed(ctx, mark)); err == nil {
		c.t.Logf("%s: messages passed %s after its end", f.Name, time.Since(ended).Round(10*time.Millisecond))
	}
	return err
}

// notReady waits until the sidecar says that it does not reach its queue.
func (b *bot) notReady(ctx context.Context) error {
	for {
		st, err := b.status(ctx)
		if err == nil && !st.Ready && strings.Contains(st.NotReady, "redis") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s says that it is ready: %w", b.name, ctx.Err())
		}
		breathe(ctx)
	}
}
