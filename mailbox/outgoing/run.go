package outgoing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/mailbox"
)

// Run sends again what is due, until ctx is done. It is called once at a time.
func (b *Box) Run(ctx context.Context) {
	defer b.keepAll()
	for {
		names, err := b.unacked.Wait(ctx)
		if err != nil {
			return
		}
		b.mu.Lock()
		names = append(names, b.unacked.Due(time.Now())...) // of a receiver whose mail was just planned, all
		slices.Sort(names)                                  // the oldest first
		due := make([]*entry, 0, len(names))
		for _, name := range names {
			if n := b.entries[name]; n != nil {
				due = append(due, n)
			}
		}
		b.mu.Unlock()
		b.look(ctx, due)
		stuck := map[mailbox.AgentID]bool{} // an earlier message still waits for the store
		for _, n := range due {
			b.mu.Lock()
			skip := stuck[n.to] && n.unstored()
			b.mu.Unlock()
			if !skip && ctx.Err() == nil {
				b.act(ctx, n)
			}
			b.mu.Lock()
			stuck[n.to] = stuck[n.to] || n.unstored()
			b.plan(n)
			b.mu.Unlock()
		}
	}
}

// look asks which receivers of what is due are online.
func (b *Box) look(ctx context.Context, due []*entry) {
	ask := map[mailbox.AgentID]*receiver{}
	b.mu.Lock()
	for _, n := range due {
		if n.needsLook() {
			ask[n.to] = n.receiver
		}
	}
	b.mu.Unlock()
	for agent, r := range ask {
		online := b.opts.Online(ctx, agent)
		b.mu.Lock()
		b.looked(r, online)
		b.mu.Unlock()
	}
}

// keepAll writes down what is only in memory yet.
func (b *Box) keepAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.entries {
		if n.fresh {
			b.keep(n)
		}
	}
}

// act does what is due for n. An earlier entry may have found that the store
// fails, and an acknowledgement may have come meanwhile: then nothing.
func (b *Box) act(ctx context.Context, n *entry) {
	now := time.Now()
	b.mu.Lock()
	if !n.isDue(now) {
		b.mu.Unlock()
		return
	}
	ask := n.Key != "" && !n.Refused && n.died == nil
	key := n.Key
	b.mu.Unlock()

	var place mailbox.Place
	var err error
	inProgress := false
	if ask {
		place, err = limited(ctx, func(ctx context.Context) (mailbox.Place, error) { return b.opts.Store.Where(ctx, n.to, key) })
		inProgress = err == nil && place == mailbox.Waiting && !n.noted && b.opts.Acknowledges(ctx, n.to)
	}

	b.mu.Lock()
	died, again := b.decide(n, now, ask, place, inProgress, err)
	b.mu.Unlock()
	b.report(died)
	if again {
		b.again(ctx, n)
	}
}

// decide does what needs no store, and reports whether n is to be put into it. It was due
// at now; where it was is place, or unknown with err, if it was asked.
func (b *Box) decide(n *entry, now time.Time, asked bool, place mailbox.Place, inProgress bool, err error) (died []DeadLetter, again bool) {
	known, expired := asked && err == nil, n.expired(now)
	// A message that is watched and gone was taken: not every store keeps what was.
	taken := known && !n.Refused && (place == mailbox.Processed || n.watch && place == mailbox.Gone)
	switch {
	case !n.isDue(time.Now()):
	case n.died != nil:
		died = b.writeDead(n)
	case taken && expired && (n.hold.IsZero() || n.fresh):
		n.fresh, n.hold = false, now.Add(lookEvery) // who cleared it away for its age says so, and that may be on its way
	case taken: // a file that was moved to processed is one that the receiver has (docs/protocol.md 6.4)
		b.drop(n)
	case err == nil && place == mailbox.Aside:
		died = b.die(n, mailbox.InvalidMessage,
			fmt.Sprintf("%s set it aside: it could not read it, or has another RELAY_SECRET", n.to))
	case expired && n.Key == "":
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("the store could not take it within its life of %s", n.life))
	case expired:
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("not taken within its life of %s", n.life))
	case err != nil:
		n.receiver.eager = false
		b.failed(n.receiver, err)
	case n.Key == "" || !n.Next.IsZero():
		again = true
	case n.fresh:
		b.keep(n)
	case n.watch, inProgress:
		b.await(n)
	case n.RetryCount >= n.retries:
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("no acknowledgement after %d attempts", n.attempts()))
	default:
		b.pause(n)
	}
	return died, again
}

// again puts n into the store: for the first time, or once more. An answer to
// the earlier copy may come meanwhile, and then holds.
func (b *Box) again(ctx context.Context, n *entry) {
	b.mu.Lock()
	n.receiver.eager = false
	raw, e, err := b.load(n)
	if n.gone {
		b.mu.Unlock()
		return
	}
	was := n.record
	if err == nil && n.Key != "" {
		n.RetryCount++
		n.Next, n.Refused = time.Time{}, false
		e.Metadata.RetryCount = n.RetryCount
	}
	b.mu.Unlock()

	key := ""
	switch {
	case err != nil:
	case was.Key == "":
		key, err = b.put(ctx, e)
	default:
		key, err = limited(ctx, func(ctx context.Context) (string, error) { return b.opts.Store.Again(ctx, was.Key, e) })
	}
	if err == nil {
		raw, err = b.opts.Signing.Encode(e)
	}

	b.mu.Lock()
	var died []DeadLetter
	refusal, no := errors.AsType[*mailbox.Error](err)
	switch {
	case err == nil:
		b.sent(n, key, raw)
	case n.gone:
	case errors.Is(err, errUnsigned):
		died = b.die(n, errUnsigned.Code, errUnsigned.Message)
	case no:
		died = b.die(n, refusal.Code, "the store refused it: "+refusal.Message)
	default:
		if n.RetryCount = was.RetryCount; n.Next.IsZero() {
			n.Next, n.Refused = was.Next, was.Refused
		}
		b.failed(n.receiver, err)
	}
	b.mu.Unlock()
	b.report(died)
}
