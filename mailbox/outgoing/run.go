package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"feishu-relay/mailbox"
)

// Run sends again what is due, until ctx is done. It is called once at a time.
func (b *Box) Run(ctx context.Context) {
	defer b.keepAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.wake:
		}
		b.look(ctx)
		stuck := map[mailbox.AgentID]bool{} // an earlier message still waits for the store
		for _, n := range b.dueNow() {
			if ctx.Err() != nil {
				return
			}
			if stuck[n.ref.to] && b.unstored(n) {
				continue
			}
			b.act(ctx, n)
			stuck[n.ref.to] = stuck[n.ref.to] || b.unstored(n)
		}
		if next, ok := b.plan(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// unstored reports whether n waits for the store.
func (b *Box) unstored(n *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return n.unstored()
}

func (n *entry) unstored() bool { return n.Key == "" && !n.busy && !n.gone && n.end == nil }

// all ranges over the entries; b.mu is held meanwhile.
func (b *Box) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, list := range b.entries {
			for _, n := range list {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// dueNow returns the entries that something is to be done for, the oldest first.
func (b *Box) dueNow() (due []*entry) {
	now := time.Now()
	b.mu.Lock()
	for n := range b.all() {
		if n.isDue(now) {
			due = append(due, n)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(due, func(x, y *entry) int { return cmp.Compare(x.name, y.name) })
	return due
}

func (n *entry) isDue(now time.Time) bool {
	at, ok := n.at()
	return ok && !n.gone && !now.Before(at)
}

// plan tells when the next round is; false: none is needed until wake.
func (b *Box) plan() (next time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.all() {
		if at, goes := n.goes(); goes && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	b.planned = next
	return next, ok
}

// replan wakes Run where n changes its plan.
func (b *Box) replan(n *entry) {
	if at, ok := n.goes(); ok && (b.planned.IsZero() || at.Before(b.planned)) {
		b.kick()
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
	expired := n.expired(now)
	ask := n.Key != "" && !n.Refused && n.end == nil
	key := n.Key
	b.mu.Unlock()

	var place mailbox.Place
	var err error
	inProgress := false
	if ask {
		place, err = b.where(ctx, n.ref.to, key)
		inProgress = err == nil && place == mailbox.Waiting && !n.noted && b.opts.Acknowledges(ctx, n.ref.to)
	}

	b.mu.Lock()
	var died []DeadLetter
	again := false
	// A message that is watched and gone was taken: not every store keeps what was.
	taken := ask && err == nil && !n.Refused && (place == mailbox.Processed || n.watch && place == mailbox.Gone)
	switch {
	case !n.isDue(time.Now()):
	case n.end != nil:
		died = b.bury(n)
	case taken && expired && n.hold.IsZero():
		n.hold = now.Add(lookEvery) // who cleared it away for its age says so, and that may be on its way
	case taken: // a file that was moved to processed is one that the receiver has (docs/protocol.md 6.4)
		b.drop(n)
	case err == nil && place == mailbox.Aside:
		died = b.die(n, mailbox.InvalidMessage,
			fmt.Sprintf("%s set it aside: it could not read it, or has another RELAY_SECRET", n.ref.to))
	case expired && n.Key == "":
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("the store could not take it within its life of %s", n.life))
	case expired:
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("not taken within its life of %s", n.life))
	case err != nil:
		n.receiver.eager = false
		b.failed(n.receiver, err)
	case n.Key == "" || !n.Next.IsZero():
		again = true
	case !n.first.IsZero():
		b.keep(n)
	case n.watch, inProgress:
		b.await(n)
	case n.RetryCount >= n.retries:
		died = b.die(n, mailbox.AgentOffline, fmt.Sprintf("no acknowledgement after %d attempts", n.attempts()))
	default:
		b.pause(n)
	}
	b.mu.Unlock()
	b.tell(died)
	if again {
		b.again(ctx, n)
	}
}

func (b *Box) where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return b.opts.Store.Where(ctx, to, key)
}

// again puts n into the store: for the first time, or once more. An answer to
// the earlier copy may come meanwhile, and then holds.
func (b *Box) again(ctx context.Context, n *entry) {
	b.mu.Lock()
	n.receiver.eager = false
	raw, e, err := b.load(n)
	if err != nil {
		var died []DeadLetter
		switch {
		case n.gone:
		case errors.Is(err, errUnsigned):
			died = b.die(n, errUnsigned.Code, errUnsigned.Message)
		default:
			b.failed(n.receiver, err)
		}
		b.mu.Unlock()
		b.tell(died)
		return
	}
	was := n.record
	if n.Key != "" {
		n.RetryCount++
		n.Next, n.Refused = time.Time{}, false
		e.Metadata.RetryCount = n.RetryCount
	}
	b.mu.Unlock()

	key, err := b.resend(ctx, was.Key, e)
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
	case no:
		died = b.die(n, refusal.Code, "the store refused it: "+refusal.Message)
	default:
		if n.RetryCount = was.RetryCount; n.Next.IsZero() {
			n.Next, n.Refused = was.Next, was.Refused
		}
		b.failed(n.receiver, err)
	}
	b.mu.Unlock()
	b.tell(died)
}

func (b *Box) resend(ctx context.Context, key string, e mailbox.Envelope) (newKey string, err error) {
	if key == "" {
		return b.put(ctx, e)
	}
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return b.opts.Store.Again(ctx, key, e)
}

// attempts is how often n was sent.
func (n *entry) attempts() int {
	if n.Key == "" {
		return 0
	}
	return n.RetryCount + 1
}
