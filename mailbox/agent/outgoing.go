package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Times.
const (
	watchAfter = 2 * time.Second  // when a letter that is watched is looked at first
	lookEvery  = 5 * time.Second  // between two looks at a receiver for which mail waits
	maxPause   = time.Minute      // longest pause before a message is sent again
	storeLimit = 10 * time.Second // for one call of the store
	maxBatch   = 100              // letters that are dealt with between two looks at the tasks
)

// watchTimes does what is due: it ends overdue tasks, and sends letters, asks where they are, sends them again or
// makes them dead letters (docs/protocol.md 6.8).
//
// An acknowledgement is awaited for AckTimeout since the message was sent and its receiver was
// seen online. Then the message is sent again after a pause ([backoff]), a few times. A message in
// the inbox of an agent whose mailbox acknowledges is in progress: it is not sent again, and waits until
// its life ends, since a bot may think for minutes. The receiver may also refuse a
// message and be asked again. A message's life in seconds (metadata.ttl) ends all that. A message
// without an acknowledgement is watched until the receiver has taken it. What the store has
// lost is sent again, as a retry. Letters do not wait for a task whose end cannot be written down.
func (a *Agent) watchTimes(ctx context.Context) error {
	for {
		next, err := a.endOverdue(time.Now())
		looks, letters, at := a.due(time.Now())
		for _, r := range looks {
			a.look(ctx, r)
		}
		for _, n := range letters[:min(len(letters), maxBatch)] {
			a.attend(ctx, n)
		}
		if err == nil && ctx.Err() == nil && len(looks)+len(letters) == 0 {
			err = wait.Change(ctx, sooner(next, at), a.wake)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// due returns the receivers and letters, the oldest first, for which something is to be done, and when the next are
// due.
func (a *Agent) due(now time.Time) (looks []*receiver, letters []*letter, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.receivers {
		if at := r.lookAt(); passed(at) {
			looks = append(looks, r)
		} else {
			next = sooner(next, at)
		}
	}
	for n := range a.all() {
		if at := n.at(); !at.IsZero() && !now.Before(at) {
			letters = append(letters, n)
		} else {
			next = sooner(next, at)
		}
	}
	slices.SortFunc(letters, func(x, y *letter) int { return strings.Compare(x.name, y.name) })
	return looks, letters, next
}

// at returns when something is to be done for n; zero: not before something else happens.
func (n *letter) at() time.Time {
	waits := n.Phase == stored && n.ack() || n.Key != "" && (n.Phase == pausing || n.Phase == refused)
	switch {
	case n.gone, n.Phase == dead:
		return time.Time{}
	case !n.hold.IsZero():
		return n.hold
	case waits && !n.receiver.online:
		return n.Head.Expires()
	}
	return sooner(later(n.Due, n.receiver.hold), n.Head.Expires())
}

func later(x, y time.Time) time.Time { return slices.MaxFunc([]time.Time{x, y}, time.Time.Compare) }

// sooner is the earlier of two times, of which the zero one is never.
func sooner(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

// lookAt returns when it is asked whether r is online and whether the store still has its newest
// mail: at once the first time; zero: no mail of r waits there.
func (r *receiver) lookAt() time.Time {
	for n := range r.letters {
		if n.Key != "" && n.Phase != dead {
			return r.looked.Add(lookEvery)
		}
	}
	return time.Time{}
}

// outside calls f, with a bounded context, while mu, which the caller holds, is free.
func outside[T any](ctx context.Context, a *Agent, f func(context.Context) (T, error)) (T, error) {
	a.mu.Unlock()
	defer a.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return f(ctx)
}

// look asks whether a receiver is online, and whether the store has what it was given last for it. If
// not, all that waits there may be lost, and is asked for at once.
func (a *Agent) look(ctx context.Context, r *receiver) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := r.last
	place, err := outside(ctx, a, func(ctx context.Context) (mailbox.Place, error) {
		a.refreshCards(ctx)
		return a.opts.Store.Where(ctx, r.id, last)
	})
	now, online := time.Now(), a.online(r.id)
	came := online && !r.online
	r.online, r.looked = online, now
	for n := range r.letters {
		if came && n.Phase == stored && n.ack() {
			n.Due = later(n.Due, now.Add(a.opts.AckTimeout))
		}
		if err == nil && place == mailbox.Gone && (n.Phase == stored || n.Phase == doubtful) {
			n.Phase, n.Due = doubtful, now
		}
	}
}

// attend does what is due for n. An earlier letter may have found that the store
// fails, and an acknowledgement may have come meanwhile: then nothing.
func (a *Agent) attend(ctx context.Context, n *letter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isDue := func() bool { return passed(n.at()) }
	if !isDue() {
		return
	}
	place, err := mailbox.Waiting, error(nil)
	if n.Key != "" && n.Phase != refused {
		key, to := n.Key, n.Head.To
		place, err = outside(ctx, a, func(ctx context.Context) (mailbox.Place, error) {
			a.refreshCards(ctx)
			return a.opts.Store.Where(ctx, to, key)
		})
		if !isDue() {
			return
		}
	}
	now, looked := time.Now(), !n.hold.IsZero()
	n.hold = time.Time{}
	switch expired := passed(n.Head.Expires()); {
	case err == nil && place == mailbox.Processed && expired && !looked:
		n.hold = now.Add(lookEvery) // a receiver that removed it for its age sends a nack soon
	case err == nil && place == mailbox.Processed: // it counts as acknowledged (docs/protocol.md 6.4 and 6.6)
		a.remove(n)
	case err == nil && place == mailbox.Aside:
		a.die(n, mailbox.InvalidMessage,
			fmt.Sprintf("%s set it aside: it could not read it, or has another RELAY_SECRET", n.Head.To))
	case expired && n.Key == "":
		a.die(n, mailbox.AgentOffline, fmt.Sprintf("the store could not take it within its life of %s", n.life()))
	case expired:
		a.die(n, mailbox.AgentOffline, fmt.Sprintf("not taken within its life of %s", n.life()))
	case err != nil:
		a.failed(n.receiver, err)
	case n.Phase == posted || n.Phase == pausing || n.Phase == refused:
		a.put(ctx, n)
	case place == mailbox.Gone && !a.mayRetry(n):
		a.die(n, mailbox.AgentOffline, fmt.Sprintf("the store has lost it, after %d attempts", n.attempts()))
	case place == mailbox.Gone:
		a.log.Warn("the mailbox store has lost a message; sending it again", "to", n.Head.To, "message_id", n.Head.ID)
		a.put(ctx, n)
	case n.Phase == doubtful || n.watched() || !n.Head.Type.AboutTask() && a.acknowledges(n.Head.To): // in progress
		n.Phase, n.Due = stored, now.Add(a.opts.AckTimeout)
	case !a.mayRetry(n):
		a.die(n, mailbox.AgentOffline, fmt.Sprintf("no acknowledgement after %d attempts", n.attempts()))
	default:
		a.pause(n, pausing)
	}
}

// life is how long n may wait to be taken.
func (n *letter) life() time.Duration { return n.Head.Expires().Sub(n.Head.Timestamp) }

// put puts n into the store: for the first time, or again. An answer to
// the earlier copy may come meanwhile, and then holds.
func (a *Agent) put(ctx context.Context, n *letter) {
	was, key := n.letterState, ""
	if was.Key != "" {
		n.RetryCount++
		n.Phase = stored
	}
	m, err := a.load(n)
	if n.gone {
		return
	}
	sending := n.Phase
	if err == nil {
		key, err = outside(ctx, a, func(ctx context.Context) (string, error) {
			if was.Key == "" {
				return a.opts.Store.Put(ctx, m)
			}
			return a.opts.Store.Again(ctx, was.Key, m)
		})
	}
	refusal, no := errors.AsType[*mailbox.Error](err)
	switch {
	case n.gone || n.Phase == dead:
	case err == nil:
		a.inInbox(n, key, n.Phase == sending)
	case no:
		a.die(n, refusal.Code, "the store refused it: "+refusal.Message)
	default:
		if n.RetryCount = was.RetryCount; n.Phase == sending {
			n.Phase = was.Phase
		}
		a.failed(n.receiver, err)
	}
}

// inInbox notes that the store has n under key. waits is false where it was refused meanwhile.
func (a *Agent) inInbox(n *letter, key string, waits bool) {
	r, first := n.receiver, n.Key == ""
	r.last, r.fails, r.hold = key, 0, time.Time{}
	n.Key, n.mail = key, nil
	if !n.ack() && (!n.watched() || first && a.watchesEnough()) {
		a.remove(n)
		return
	}
	if waits {
		n.Phase, n.Due = stored, time.Now().Add(a.opts.AckTimeout)
		if first && n.watched() {
			n.Due = time.Now().Add(watchAfter)
		}
	}
	a.save(n)
}

func (a *Agent) watchesEnough() bool {
	n := 0
	for l := range a.all() {
		if l.Phase == stored && l.watched() {
			n++
		}
	}
	return n >= maxWatched
}

// failed notes that the store could not do something for a receiver.
func (a *Agent) failed(r *receiver, err error) {
	if r.fails == 0 && !errors.Is(err, context.Canceled) {
		a.log.Warn("the mailbox store fails; messages are kept and tried again", "err", err)
	}
	longest := awayMax
	if errors.Is(err, mailbox.ErrFull) {
		longest = maxPause
	}
	r.hold = time.Now().Add(backoff(r.fails, a.opts.RetryBase, longest, a.random()))
	r.fails++
}

// backoff is the pause before the retry after n retries: base·2^n, but at most longest, and up
// to a quarter more, at random (from 0 to 1), so that many senders do not come back
// together. It is never over 60 s.
func backoff(n int, base, longest time.Duration, random float64) time.Duration {
	pause := wait.Doubled(max(base, 0), longest, n)
	return min(pause+time.Duration(float64(pause)/4*random), maxPause)
}
