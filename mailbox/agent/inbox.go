package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// peerBuffer is how many peer messages of a goal wait for a bot that drains them
// itself; beyond it the oldest are dropped, and it learns how many (docs/protocol.md 6.7).
const peerBuffer = 64

// drainWait is how long a drain waits for what is just being delivered: a
// channel that is closed gives it back at once.
const drainWait = 200 * time.Millisecond

// handedOutFor is how long a message that a drain handed out is not delivered otherwise.
const handedOutFor = 5 * time.Minute

// maxDrain and drainBytes are the most messages that one drain or one look at
// the inbox returns, and the size at which it stops; the rest waits.
const (
	maxDrain   = 200
	drainBytes = 4 << 20
)

// Inbox shows what waits for the bot, at most limit, in the order of delivery,
// and how many there are. It delivers nothing.
func (a *Agent) Inbox(ctx context.Context, limit int) (waiting []Mail, total int, err error) {
	list := look(a.queue, func() []*queued { return slices.Clone(a.queue.list) })
	total = len(list)
	list = list[:max(0, min(limit, maxDrain, total))]
	waiting = []Mail{}
	for room := drainBytes; len(list) > 0 && room > 0; list = list[1:] {
		e, err := a.read(ctx, list[0])
		_, broken := errors.AsType[*mailbox.Error](err)
		if broken || errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		room -= list[0].size
		waiting = append(waiting, mailOf(list[0], e))
	}
	return waiting, total, nil
}

func mailOf(m *queued, e mailbox.Envelope) Mail {
	e.ID = m.name
	return Mail{Envelope: e, Goal: m.session}
}

// Drain hands out what waits for the bot, for one of its goals or with "" for all, and is not
// being delivered, at most limit. Nobody knows whether an answer arrives: what it holds waits until it is confirmed by
// an acknowledgement of each message, or by a call with the answer's cursor. A later Drain hands out
// again what is not confirmed; a delivery channel gives it after handedOutFor.
func (a *Agent) Drain(ctx context.Context, limit int, goal, cursor string) (Drained, error) {
	if err := a.awaitFirstLook(ctx); err != nil {
		return Drained{}, err
	}
	confirmed, _ := a.handedOut.Get(cursor)
	for _, id := range confirmed {
		err := a.Ack(ctx, id)
		if _, gone := errors.AsType[*mailbox.Error](err); err != nil && !gone {
			return Drained{}, err
		}
	}
	d := Drained{Messages: []Mail{}}
	a.awaitChannel(ctx)
	for _, m := range a.queue.overflow(peerBuffer) {
		if a.drop(ctx, m) {
			d.Dropped++
		}
	}
	var names []string
	var list []mailbox.Envelope
	room := drainBytes
	for _, m := range a.queue.takeAll(min(limit, maxDrain), goal) {
		var e mailbox.Envelope
		var ok bool
		if room > 0 {
			var err error
			if e, ok, err = a.fetch(ctx, m); err != nil {
				a.log.Warn("mail cannot be read and waits", "message_id", m.id, "err", err)
			}
		}
		a.queue.stop(m)
		if ok {
			a.queue.update(func() { m.hold = time.Now().Add(handedOutFor) })
			room -= m.size
			names, list = append(names, m.name), append(list, e)
			d.Messages = append(d.Messages, mailOf(m, e))
		}
	}
	if len(names) > 0 {
		d.Cursor = rand.Text()[:10]
		a.handedOut.Add(d.Cursor, names)
	}
	d.Rendered = mailbox.Render(list)
	d.Waiting = max(0, look(a.queue, func() int { return len(a.queue.of(goal)) })-len(list))
	return d, nil
}

// awaitChannel waits, at most drainWait, for what a channel has not been given yet: if it is closed, the message is to
// be drained.
func (a *Agent) awaitChannel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	for ctx.Err() == nil {
		changed := a.queue.Changed()
		if !a.queue.any(func(m *queued) bool { return m.delivering && !m.claimed && m.given.IsZero() }) {
			return
		}
		_ = wait.Change(ctx, time.Time{}, changed)
	}
}

// drop forgets a peer message that the buffer has no room for, unless the bot
// has answered it in between.
func (a *Agent) drop(ctx context.Context, m *queued) bool {
	if !a.queue.claim(m) {
		return false
	}
	a.observe(EventDropped, mailbox.Envelope{ID: m.id, From: m.from, To: a.opts.Self, Type: mailbox.TypeMessage},
		"the buffer of its goal is full")
	a.mu.Lock()
	a.note(m.id, marks(kindSeen, m.key)...)
	a.mu.Unlock()
	a.clearSoon(ctx, m)
	return true
}

// Ack settles a waiting message: the bot has dealt with it. It is an error where
// no message of that id waits.
func (a *Agent) Ack(ctx context.Context, id string) error {
	return a.settleOne(ctx, id, func(m *queued, e mailbox.Envelope) error {
		a.delivered(ctx, m, e)
		a.cancelDelivery(m, &Settled{})
		return nil
	})
}

// Nack refuses a waiting message. Its sender gets that where it asked for an
// acknowledgement, and sends it again where the code is one for that. A task is
// rejected. A step of a task was acknowledged when it came: with such a code, it
// goes on waiting here.
func (a *Agent) Nack(ctx context.Context, id string, code mailbox.Code, message string) error {
	return a.settleOne(ctx, id, func(m *queued, e mailbox.Envelope) error {
		err := a.refusedByBot(ctx, m, e, refusedWith{code, message})
		a.cancelDelivery(m, &Settled{Refused: true})
		if errors.Is(err, errLater) {
			return nil
		}
		return err
	})
}

// Waits reports whether a message of this id waits for the bot, or for its answer.
func (a *Agent) Waits(id string) bool { return a.queue.find(id) != nil }

// Handled reports whether a message of this id was delivered, among the newest.
func (a *Agent) Handled(id string) bool { return a.forwardable.Contains(id) }

// settleOne calls do, which ends it, for the message that the bot knows by id.
func (a *Agent) settleOne(ctx context.Context, id string, do func(*queued, mailbox.Envelope) error) error {
	gone := mailbox.Invalid("id", "no message %.200q waits; it may have been dealt with", id)
	m := a.queue.find(id)
	if m == nil {
		return gone
	}
	var e mailbox.Envelope
	var err error
	if giving := a.queue.now(m).giving; giving != nil {
		e = *giving // the store may be away meanwhile
	} else {
		e, err = a.read(ctx, m)
	}
	if errors.Is(err, mailbox.ErrGone) {
		a.queue.remove(m)
		return gone
	}
	if err != nil {
		return err
	}
	if !a.queue.claim(m) {
		return gone
	}
	return do(m, e)
}

// cancelDelivery ends the delivery of m, which was settled otherwise.
func (a *Agent) cancelDelivery(m *queued, how *Settled) {
	if cancel := a.queue.now(m).cancel; cancel != nil {
		cancel(how)
	}
}
