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
	a.mu.Lock()
	list := slices.Clone(a.queue.list)
	a.mu.Unlock()
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
		a.mu.Lock()
		waiting = append(waiting, mailOf(list[0], a.withTaskState(e)))
		a.mu.Unlock()
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
	d.Dropped = a.dropOverflow(ctx)
	var ready []*queued
	var names []string
	var list []mailbox.Envelope
	room := drainBytes
	a.mu.Lock()
	for _, m := range a.queue.of(goal) { // what is busy is not delivered meanwhile
		if !m.busy && len(ready) < min(limit, maxDrain) && room > 0 {
			m.busy = true
			room -= m.size
			ready = append(ready, m)
		}
	}
	a.mu.Unlock()
	for _, m := range ready {
		e, ok, err := a.fetch(ctx, m)
		if err != nil {
			a.log.Warn("mail cannot be read and waits", "message_id", m.id, "err", err)
		}
		if a.handOut(m, ok); ok {
			names, list = append(names, m.name), append(list, e)
			d.Messages = append(d.Messages, mailOf(m, e))
		}
	}
	if len(names) > 0 {
		d.Cursor = rand.Text()[:10]
		a.handedOut.Add(d.Cursor, names)
	}
	d.Rendered = mailbox.Render(list)
	a.mu.Lock()
	defer a.mu.Unlock()
	d.Waiting = max(0, len(a.queue.of(goal))-len(list))
	return d, nil
}

// handOut ends a drain's look at m. What it hands out is not delivered for a while.
func (a *Agent) handOut(m *queued, out bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.busy = false; out {
		m.hold = time.Now().Add(handedOutFor)
	}
	a.queue.notify()
}

// awaitChannel waits, at most drainWait, for what a channel has not been given yet: if it is closed, the message is to
// be drained.
func (a *Agent) awaitChannel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	for ctx.Err() == nil {
		a.mu.Lock()
		changed := a.queue.changed
		giving := slices.ContainsFunc(a.queue.list, func(m *queued) bool { return m.busy && m.given.IsZero() })
		a.mu.Unlock()
		if !giving {
			return
		}
		_ = wait.Change(ctx, time.Time{}, changed)
	}
}

// dropOverflow forgets peer messages that the buffers have no room for, and returns how many.
func (a *Agent) dropOverflow(ctx context.Context) int {
	a.mu.Lock()
	list := a.queue.overflow(peerBuffer)
	a.mu.Unlock()
	for _, m := range list {
		_ = a.end(ctx, m, mailbox.Taken, func() error {
			a.observe(EventDropped, mailbox.Envelope{ID: m.id, From: m.from, To: a.opts.Self, Type: mailbox.TypeMessage},
				"the buffer of its goal is full")
			a.note(m.id, marks(kindSeen, m.key)...)
			return nil
		})
	}
	return len(list)
}

// Ack settles a waiting message: the bot has dealt with it. It is an error where
// no message of that id waits.
func (a *Agent) Ack(ctx context.Context, id string) error {
	return a.settleOne(ctx, id, &Settled{}, a.delivered)
}

// Nack refuses a waiting message. Its sender gets that where it asked for an
// acknowledgement, and sends it again where the code is one for that. A task is
// rejected. A step of a task was acknowledged when it came: with such a code, it
// goes on waiting here.
func (a *Agent) Nack(ctx context.Context, id string, code mailbox.Code, message string) error {
	err := a.settleOne(ctx, id, &Settled{Refused: true},
		func(ctx context.Context, m *queued, e mailbox.Envelope) error {
			return a.refusedByBot(ctx, m, e, refusedWith{code, message})
		})
	if errors.Is(err, errLater) {
		return nil
	}
	return err
}

// Waits reports whether a message of this id waits for the bot, or for its answer.
func (a *Agent) Waits(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.byName[id] != nil
}

// Handled reports whether a message of this id was delivered, among the newest.
func (a *Agent) Handled(id string) bool { return a.forwardable.Contains(id) }

// settleOne calls do for the message that the bot knows by id, and ends its delivery.
func (a *Agent) settleOne(ctx context.Context, id string, how *Settled,
	do func(context.Context, *queued, mailbox.Envelope) error) error {
	gone := mailbox.Invalid("id", "no message %.200q waits; it may have been dealt with", id)
	a.mu.Lock()
	m := a.queue.byName[id]
	var giving *mailbox.Envelope
	if m != nil {
		giving = m.giving
	}
	a.mu.Unlock()
	var e mailbox.Envelope
	var err error
	switch {
	case m == nil:
		return gone
	case giving != nil: // the store may be away meanwhile
		e = *giving
	default:
		e, err = a.read(ctx, m)
	}
	if errors.Is(err, mailbox.ErrGone) {
		_ = a.end(ctx, m, mailbox.Taken, func() error { return nil })
		return gone
	}
	if err == nil {
		err = do(ctx, m, e)
	}
	if errors.Is(err, errSettled) {
		return gone
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.cancel != nil {
		m.cancel(how)
	}
	return err
}
