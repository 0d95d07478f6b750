package outgoing

import (
	"context"
	"errors"
	"time"

	"feishu-relay/mailbox"
)

// lookEvery is how often it is asked whether a receiver is online, as long as
// mail waits for its acknowledgement. It is also the pause before a dead letter
// that could not be written down is tried again.
const lookEvery = 5 * time.Second

// receiver is an agent that mail waits for. Its clock runs while it is online:
// between two looks that both found it there.
type receiver struct {
	entries map[*entry]struct{}
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

// look notes whether r is online.
func (r *receiver) look(now time.Time, online bool) {
	if online {
		r.ran = r.clock(now)
	}
	r.online, r.looked = online, now
}

// settle makes the clock one to count from: where nobody looked for a while,
// since no mail waited, it is not known to have run.
func (r *receiver) settle(now time.Time) {
	if now.Sub(r.looked) > lookEvery {
		r.looked, r.online = time.Time{}, false
	}
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
func (r *receiver) until() time.Time {
	if r.eager {
		return time.Time{}
	}
	return r.hold
}

// failed notes that the store could not do something for a receiver.
func (b *Box) failed(r *receiver, err error) {
	if r.fails == 0 && !errors.Is(err, context.Canceled) {
		b.opts.Logger.Warn("the mailbox store fails; messages are kept and tried again", "err", err)
	}
	if now := time.Now(); !now.Before(r.hold) { // else it was tried before its time
		r.hold = now.Add(backoff(r.fails, b.opts.RetryBase, b.random()))
		r.fails++
	}
	r.full = errors.Is(err, mailbox.ErrFull)
	b.planAll(r)
}

// worked notes that the store could: what was held back goes on.
func (b *Box) worked(r *receiver) {
	if r.fails > 0 {
		r.fails, r.hold, r.full = 0, time.Time{}, false
		b.planAll(r)
	}
}

// looked notes whether a receiver is online.
func (b *Box) looked(r *receiver, online bool) {
	r.look(time.Now(), online)
	b.planAll(r)
}

// at returns when something is to be done for n, as it looks now; false: not
// before something else happens.
func (n *entry) at() (at time.Time, ok bool) {
	r := n.receiver
	switch {
	case n.busy || n.gone:
		return time.Time{}, false
	case n.died != nil:
		return n.hold, true
	case !n.hold.IsZero():
		return later(n.hold, r.until()), true
	case n.Key == "":
		at, ok = r.until(), true
	case r.online && n.Next.IsZero():
		at, ok = later(r.looked.Add(n.due-r.ran), r.until()), true
	case r.online:
		at, ok = later(n.Next, r.until()), true
	}
	if !n.expires.IsZero() && (!ok || n.expires.Before(at)) {
		return n.expires, true
	}
	return at, ok
}

func (n *entry) isDue(now time.Time) bool {
	at, ok := n.at()
	return ok && !now.Before(at)
}

func later(x, y time.Time) time.Time {
	if x.Before(y) {
		return y
	}
	return x
}

// needsLook reports whether n needs to know whether its receiver is online.
func (n *entry) needsLook() bool {
	return n.Key != "" && n.died == nil && !n.busy && !n.gone && !n.fresh
}

// plan schedules when Run has to look at n next.
func (b *Box) plan(n *entry) {
	now := time.Now()
	at, ok := n.at()
	if n.needsLook() {
		look := now // at once the first time
		if r := n.receiver; !r.looked.IsZero() {
			look = r.looked.Add(lookEvery)
		}
		if !ok || look.Before(at) {
			at, ok = look, true
		}
	}
	if ok && at.IsZero() {
		at = now
	}
	b.unacked.Schedule(n.name, at)
}

// planAll is plan for all that waits for a receiver.
func (b *Box) planAll(r *receiver) {
	for n := range r.entries {
		b.plan(n)
	}
}
