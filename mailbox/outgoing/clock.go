package outgoing

import (
	"context"
	"errors"
	"time"

	"feishu-relay/mailbox"
)

// lookEvery is how often it is asked whether a receiver is online, as long as
// mail waits for its acknowledgement. It is also the pause before a dead letter
// that the disk did not take is tried again.
const lookEvery = 5 * time.Second

// receiver is an agent that mail waits for. Its clock runs while it is online:
// between two looks that both found it there.
type receiver struct {
	entries int
	looked  time.Time // zero: never
	online  bool      // then
	ran     time.Duration

	fails int // how often, in a row, the store failed for it; it is left alone until
	hold  time.Time
	full  bool // the last failure: its inbox has no room
	eager bool // something was sent since the last try began: hold does not count
}

// clock is the receiver's clock, as far as can be told between two looks.
func (r *receiver) clock(now time.Time) time.Duration {
	if !r.online {
		return r.ran
	}
	return r.ran + now.Sub(r.looked)
}

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
}

// until is how long r is left alone.
func (r *receiver) until() time.Time {
	if r.eager {
		return time.Time{}
	}
	return r.hold
}

// through notes that a message reached an agent's inbox.
func (b *Box) through(to mailbox.AgentID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.receivers[to]; r != nil {
		b.worked(r)
	}
}

// worked notes that the store could: what was held back goes on.
func (b *Box) worked(r *receiver) {
	if r.fails > 0 {
		r.fails, r.hold, r.full = 0, time.Time{}, false
		b.kick()
	}
}

// at tells when something is to be done for n, as it looks now; false: not
// before something else happens.
func (n *entry) at() (at time.Time, ok bool) {
	r := n.receiver
	switch {
	case n.busy:
		return time.Time{}, false
	case n.end != nil:
		return n.hold, true
	case !n.hold.IsZero():
		return later(n.hold, r.until()), true
	case !n.first.IsZero():
		return later(n.first, r.until()), true
	case n.Key == "":
		at, ok = r.until(), true
	case !r.online:
	case n.Next.IsZero():
		at, ok = later(r.looked.Add(n.due-r.ran), r.until()), true
	default:
		at, ok = later(n.Next, r.until()), true
	}
	if !n.expires.IsZero() && (!ok || n.expires.Before(at)) {
		return n.expires, true
	}
	return at, ok
}

// watched reports whether n needs to know whether its receiver is online.
func (n *entry) watched() bool { return n.Key != "" && n.end == nil && !n.busy && n.first.IsZero() }

// goes tells when Run has to go round for n; false: not at all.
func (n *entry) goes() (at time.Time, ok bool) {
	at, ok = n.at()
	if n.watched() {
		if look := n.receiver.next(); !ok || look.Before(at) {
			return look, true
		}
	}
	return at, ok
}

// next is when r is looked at next; at once the first time.
func (r *receiver) next() time.Time {
	if r.looked.IsZero() {
		return r.looked
	}
	return r.looked.Add(lookEvery)
}

func later(x, y time.Time) time.Time {
	if x.Before(y) {
		return y
	}
	return x
}

// look asks which receivers are online, where it is time to.
func (b *Box) look(ctx context.Context) {
	now := time.Now()
	ask := map[mailbox.AgentID]*receiver{}
	b.mu.Lock()
	for n := range b.all() {
		if !n.watched() {
			continue
		}
		at, ok := n.at()
		if ok && !now.Before(at) || !now.Before(n.receiver.next()) {
			ask[n.ref.to] = n.receiver
		}
	}
	b.mu.Unlock()
	for agent, r := range ask {
		online := b.opts.Online(ctx, agent)
		b.mu.Lock()
		r.look(time.Now(), online)
		b.mu.Unlock()
	}
}
