package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/mailbox"
)

// lookEvery is how often it is asked whether a receiver is online, and whether the store still
// has the newest mail to it, as long as mail waits there. It is also the pause before a dead
// letter that could not be written down is tried again.
const lookEvery = 5 * time.Second

// receiver is an agent that mail waits for. Its clock runs while it is online:
// between two looks that both found it there.
type receiver struct {
	entries map[*entry]struct{}
	last    string    // the key of what the store was given last
	looked  time.Time // zero: never
	online  bool      // then
	ran     time.Duration

	fails int // how often, in a row, the store failed for it; it is left alone until
	hold  time.Time
	full  bool // the last failure: its inbox has no room
	eager bool // something was sent since the last try began: hold does not count
}

// clock is the receiver's clock, as far as is known between two looks.
func (r *receiver) clock(now time.Time) time.Duration {
	if !r.online {
		return r.ran
	}
	return r.ran + now.Sub(r.looked)
}

// storeWaits reports whether mail to r waits for the store. Nothing goes behind what a
// full inbox refused: the caller gets the error, and mail does not pile up here.
func (r *receiver) storeWaits() bool {
	if r.full {
		return false
	}
	for n := range r.entries {
		if n.unstored() {
			return true
		}
	}
	return false
}

// until is how long r is left alone.
func (r *receiver) until(now time.Time) time.Time {
	if r.eager {
		return now
	}
	return later(r.hold, now)
}

// failed notes that the store could not do something for a receiver. b.mu is held, here and
// below.
func (b *outgoing) failed(r *receiver, err error) {
	if r.fails == 0 && !errors.Is(err, context.Canceled) {
		b.opts.Logger.Warn("the mailbox store fails; messages are kept and tried again", "err", err)
	}
	r.full = errors.Is(err, mailbox.ErrFull)
	if now := time.Now(); !now.Before(r.hold) { // else it was tried before its time
		longest := awayMax
		if r.full {
			longest = maxPause
		}
		r.hold = now.Add(backoff(r.fails, b.opts.RetryBase, longest, b.random()))
		r.fails++
	}
	b.planAll(r)
}

// worked notes that the store could: what was held back goes on.
func (b *outgoing) worked(r *receiver) {
	if r != nil && r.fails > 0 {
		r.fails, r.hold, r.full = 0, time.Time{}, false
		b.planAll(r)
	}
}

// looked notes whether a receiver is online.
func (b *outgoing) looked(r *receiver, online bool) {
	now := time.Now()
	if online {
		r.ran = r.clock(now)
	}
	r.online, r.looked = online, now
	b.planAll(r)
}

// look asks whether a receiver is online, and whether the store has what it was given last for it. If
// not, all that waits there may be lost, and is asked for at once.
func (b *outgoing) look(ctx context.Context, r *receiver, to mailbox.AgentID) {
	place, last := mailbox.Waiting, r.last
	online, err := outside(ctx, b, func(ctx context.Context) (online bool, err error) {
		place, err = b.opts.Store.Where(ctx, to, last)
		return b.opts.Online(ctx, to), err
	})
	for n := range r.entries {
		if err == nil && place == mailbox.Gone {
			n.hold = time.Now()
		}
	}
	b.looked(r, online)
}

// at returns when something is to be done for n, as it looks now; zero: not before
// something else happens.
func (n *entry) at(now time.Time) (at time.Time) {
	r := n.receiver
	switch {
	case n.busy || n.gone:
		return time.Time{}
	case n.dead != nil:
		return n.hold
	case !n.hold.IsZero():
		return later(n.hold, r.until(now))
	case n.Key == "":
		at = r.until(now)
	case r.online && n.Next.IsZero():
		at = later(r.looked.Add(n.due-r.ran), r.until(now))
	case r.online:
		at = later(n.Next, r.until(now))
	}
	return sooner(at, n.expires)
}

func (n *entry) isDue(now time.Time) bool {
	at := n.at(now)
	return !at.IsZero() && !now.Before(at)
}

func later(x, y time.Time) time.Time { return slices.MaxFunc([]time.Time{x, y}, time.Time.Compare) }

// sooner is the earlier of two times, of which the zero one is never.
func sooner(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

// needsLook reports whether n needs to know whether its receiver is online.
func (n *entry) needsLook() bool {
	return n.Key != "" && n.dead == nil && !n.busy && !n.gone && !n.unsaved
}

// plan schedules when Run has to look at n next.
func (b *outgoing) plan(n *entry) {
	now := time.Now()
	at := n.at(now)
	if n.needsLook() {
		look := now // at once the first time
		if r := n.receiver; !r.looked.IsZero() {
			look = r.looked.Add(lookEvery)
		}
		at = sooner(at, look)
	}
	b.unacked.Schedule(n.name, at)
}

// planAll is plan for all that waits for a receiver.
func (b *outgoing) planAll(r *receiver) {
	for n := range r.entries {
		b.plan(n)
	}
}

// Run sends again what is due, until ctx is done. It is called once at a time.
func (b *outgoing) Run(ctx context.Context) {
	defer b.keepAll()
	for {
		names, err := b.unacked.Wait(ctx)
		if err != nil {
			return
		}
		b.mu.Lock() // whoever is just planning all mail to a receiver does so to the end
		names = append(names, b.unacked.Due(time.Now())...)
		b.mu.Unlock()
		slices.Sort(names)                   // the oldest first
		looked := map[mailbox.AgentID]bool{} // whose receivers were asked for
		stuck := map[mailbox.AgentID]bool{}  // where an earlier message still waits for the store
		for _, name := range names {
			b.mu.Lock()
			if n := b.entries[name]; n != nil && ctx.Err() == nil {
				if n.needsLook() && !looked[n.to] {
					looked[n.to] = true
					b.look(ctx, n.receiver, n.to)
				}
				if !stuck[n.to] || !n.unstored() {
					b.decide(ctx, n)
				}
				stuck[n.to] = stuck[n.to] || n.unstored()
				b.plan(n)
			}
			b.unlock()
		}
	}
}

// keepAll writes down what is only in memory yet.
func (b *outgoing) keepAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.entries {
		if n.unsaved {
			b.keep(n)
		}
	}
}

// decide does what is due for n. An earlier entry may have found that the store
// fails, and an acknowledgement may have come meanwhile: then nothing.
func (b *outgoing) decide(ctx context.Context, n *entry) {
	now := time.Now()
	if !n.isDue(now) {
		return
	}
	var err error
	place, inProgress := mailbox.Waiting, false
	if key := n.Key; key != "" && !n.Refused && n.dead == nil {
		place, err = outside(ctx, b, func(ctx context.Context) (mailbox.Place, error) {
			place, err := b.opts.Store.Where(ctx, n.to, key)
			inProgress = err == nil && place == mailbox.Waiting && !n.recorded && b.opts.Acknowledges(ctx, n.to)
			return place, err
		})
	}
	taken, expired := err == nil && place == mailbox.Processed, n.expired(now)
	switch {
	case !n.isDue(time.Now()):
	case n.dead != nil:
		b.writeDead(n)
	case taken && expired && (n.hold.IsZero() || n.unsaved):
		n.unsaved, n.hold = false, now.Add(lookEvery) // a receiver that removed it for its age sends a nack soon
	case taken: // it counts as acknowledged (docs/protocol.md 6.4 and 6.6)
		b.drop(n)
	case err == nil && place == mailbox.Aside:
		b.makeDead(n, mailbox.InvalidMessage,
			fmt.Sprintf("%s set it aside: it could not read it, or has another RELAY_SECRET", n.to))
	case expired && n.Key == "":
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("the store could not take it within its life of %s", n.life))
	case expired:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("not taken within its life of %s", n.life))
	case err != nil:
		n.receiver.eager = false
		b.failed(n.receiver, err)
	case place == mailbox.Gone && n.RetryCount >= n.retries:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("the store has lost it, after %d attempts", n.attempts()))
	case place == mailbox.Gone:
		b.opts.Logger.Warn("the mailbox store has lost a message; sending it again", "to", n.to, "message_id", n.id)
		b.again(ctx, n)
	case !n.hold.IsZero() && !n.unsaved:
		n.hold = time.Time{} // it is still there
	case n.Key == "" || !n.Next.IsZero():
		b.again(ctx, n)
	case n.unsaved:
		b.keep(n)
	case n.watch, inProgress:
		b.await(n)
	case n.RetryCount >= n.retries:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("no acknowledgement after %d attempts", n.attempts()))
	default:
		b.pause(n)
	}
}

// again puts n into the store: for the first time, or again. An answer to
// the earlier copy may come meanwhile, and then holds.
func (b *outgoing) again(ctx context.Context, n *entry) {
	n.receiver.eager = false
	m, err := b.load(n)
	if n.gone {
		return
	}
	was, key := n.sentFile, ""
	if err == nil && was.Key != "" {
		n.RetryCount++
		n.Next, n.Refused = time.Time{}, false
		m.Metadata.RetryCount = n.RetryCount
		m.Raw, err = b.opts.Signing.Encode(m.Envelope)
	}
	if err == nil {
		key, err = outside(ctx, b, func(ctx context.Context) (string, error) {
			if was.Key == "" {
				return b.opts.Store.Put(ctx, m)
			}
			return b.opts.Store.Again(ctx, was.Key, m)
		})
	}
	refusal, no := errors.AsType[*mailbox.Error](err)
	switch {
	case err == nil:
		n.unsaved, n.hold = false, time.Time{}
		b.sent(n, key, m.Raw)
	case n.gone:
	case errors.Is(err, errUnsigned):
		b.makeDead(n, errUnsigned.Code, errUnsigned.Message)
	case no:
		b.makeDead(n, refusal.Code, "the store refused it: "+refusal.Message)
	default:
		if n.RetryCount = was.RetryCount; n.Next.IsZero() {
			n.Next, n.Refused = was.Next, was.Refused
		}
		b.failed(n.receiver, err)
	}
}
