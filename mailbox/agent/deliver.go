package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// peerBuffer is how many peer messages of a goal wait for a bot that drains them
// itself; beyond it the oldest are dropped, and it is told how many (MAILBOX.md B).
const peerBuffer = 64

// maxDrain is the most messages that one drain or one look at the inbox returns.
const maxDrain = 200

// deliver hands over what is ready as long as a door is open.
func (a *Agent) deliver(ctx context.Context) error {
	pause := retryFirst
	parked := map[*letter]bool{} // no door is open for them
	for {
		more, opened, attached := a.ready.Changed(), a.opts.Doors.Changed(), a.lines.Changed()
		l := a.ready.first(parked)
		if l == nil {
			select {
			case <-more:
				continue
			case <-opened:
			case <-attached:
			case <-ctx.Done():
				return ctx.Err()
			}
			clear(parked)
			continue
		}
		err := a.handOver(ctx, l)
		switch {
		case err == nil:
			pause = retryFirst
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		}
		a.ready.release(l)
		if errors.Is(err, ErrNoDoor) {
			parked[l] = true
			continue
		}
		a.log.Warn("mail waits for the bot", "message_id", l.id, "err", err)
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, retryMax)
	}
}

// read returns the envelope of a letter, from whichever of its copies is left.
func (a *Agent) read(ctx context.Context, l *letter) (mailbox.Envelope, error) {
	for _, key := range a.ready.keysOf(l) {
		item, err := a.opts.Store.Read(ctx, a.opts.Self, key)
		if errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err != nil {
			return mailbox.Envelope{}, err
		}
		return mailbox.Decode(item.Raw)
	}
	return mailbox.Envelope{}, mailbox.ErrGone
}

// handOver gives one letter to the bot, and is done with it. An error means that
// it has to be tried again.
func (a *Agent) handOver(ctx context.Context, l *letter) error {
	e, err := a.read(ctx, l)
	if errors.Is(err, mailbox.ErrGone) { // somebody else has dealt with it
		a.ready.remove(l)
		return nil
	}
	if err != nil {
		return err
	}
	if why := a.tooLate(e); why != "" {
		a.observe(EventExpired, e, why)
		return a.settle(ctx, a.ready.remove(l)...)
	}
	giving := ctx
	if expires := e.Expires(); !expires.IsZero() {
		var cancel context.CancelFunc
		giving, cancel = context.WithDeadline(ctx, expires)
		defer cancel()
	}
	d := Delivery{Envelope: e, Conversation: a.conversation(e)}
	a.trace("inject")
	err = a.give(giving, d)
	switch {
	case errors.Is(err, ErrRefused):
		return a.refusedByBot(ctx, l, e, mailbox.InvalidMessage, "the bot refused it")
	case err != nil:
		return err
	}
	a.trace("delivered")
	return a.delivered(ctx, l, e)
}

// give hands d to the bot: a result that belongs in a conversation by the door
// that conversations come through, all else by the bot's own line first.
func (a *Agent) give(ctx context.Context, d Delivery) error {
	ways := []func() error{
		func() error { return a.lines.give(ctx, d, a.opts.AckTimeout) },
		func() error { return a.opts.Doors.Deliver(ctx, d) },
	}
	if d.Conversation != nil {
		slices.Reverse(ways)
	}
	err := ways[0]()
	if errors.Is(err, ErrNoDoor) {
		err = ways[1]()
	}
	return err
}

// tooLate is why e is not given to the bot any more.
func (a *Agent) tooLate(e mailbox.Envelope) string {
	if expires := e.Expires(); !expires.IsZero() && time.Now().After(expires) {
		return "its life in seconds is over"
	}
	if e.Type.GivesTask() {
		if r, ok := a.ledger.Get(tasks.Received, e.From, taskID(e)); ok && tasks.Terminal(r.State) {
			return cmp.Or(r.Reason, "the task is "+string(r.State))
		}
	}
	return ""
}

// delivered notes that the bot has e: seen first, so that a crash behind it does
// not repeat it; then told to its sender; then moved to processed.
func (a *Agent) delivered(ctx context.Context, l *letter, e mailbox.Envelope) error {
	if err := a.opts.Seen.Add(letterKey(e.From, e.ID)); err != nil {
		a.log.Error("a delivery is not remembered; after a restart it may be repeated", "message_id", e.ID, "err", err)
	}
	if step := stepKey(e); step != "" {
		_ = a.opts.Seen.Add(step) // reported above
	}
	if e.Metadata.RequiresAck && !ackedEarly(e.Type) {
		if err := a.send(ctx, mailbox.AckFor(e, a.opts.Self, time.Now())); err != nil {
			a.log.Warn("a delivery is not acknowledged; its sender may repeat it", "message_id", e.ID, "err", err)
		}
	}
	a.handed.Add(e.ID, origin{e.Hops, e.Trace})
	a.trace("settling")
	if err := a.settle(ctx, a.ready.remove(l)...); err != nil {
		a.log.Warn("delivered mail stays in the inbox; after a restart it is found there and not delivered again", "message_id", e.ID, "err", err)
	}
	a.observe(EventDelivered, e, "")
	return nil
}

// ackedEarly tells the types whose receipt is acknowledged when their step is
// noted, not when the bot has them: a bot that looks for its mail once an hour
// has accepted a task all the same.
func ackedEarly(t mailbox.Type) bool {
	switch t {
	case mailbox.TypeTask, mailbox.TypeTaskAssign, mailbox.TypeTaskUpdate, mailbox.TypeTaskComplete, mailbox.TypeTaskFailed:
		return true
	}
	return false
}

// refusedByBot is done with what the bot will not take. A task is rejected.
func (a *Agent) refusedByBot(ctx context.Context, l *letter, e mailbox.Envelope, code mailbox.Code, message string) error {
	a.observe(EventRefused, e, string(code)+": "+message)
	if e.Type.GivesTask() {
		if _, err := a.UpdateTask(ctx, TaskUpdate{TaskID: taskID(e), From: e.From, State: mailbox.Rejected, Text: message}); err != nil {
			if _, ok := errors.AsType[*mailbox.Error](err); !ok {
				return err
			}
		}
	}
	if !code.Retriable() || e.Type.GivesTask() { // what is sent again is no duplicate then
		_ = a.opts.Seen.Add(letterKey(e.From, e.ID))
	}
	if err := a.send(ctx, mailbox.NackFor(e, a.opts.Self, time.Now(), code, message)); err != nil {
		return err
	}
	return a.settle(ctx, a.ready.remove(l)...)
}

// Inbox shows what waits for the bot, at most limit, in the order of delivery,
// and how many there are. It delivers nothing.
func (a *Agent) Inbox(ctx context.Context, limit int) (waiting []Mail, total int, err error) {
	letters, total := a.ready.show(min(limit, maxDrain))
	waiting = []Mail{}
	for i := range letters {
		e, err := a.read(ctx, &letters[i])
		if errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		waiting = append(waiting, a.mail(e))
	}
	return waiting, total, nil
}

func (a *Agent) mail(e mailbox.Envelope) Mail {
	return Mail{Envelope: e, Goal: cmp.Or(e.Metadata.Goal, string(a.opts.Self))}
}

// Drain hands out what waits for the bot and is not being delivered, at most
// limit. From then on it counts as delivered.
func (a *Agent) Drain(ctx context.Context, limit int) (Drained, error) {
	var d Drained
	for _, l := range a.ready.overflow(peerBuffer) {
		e := mailbox.Envelope{ID: l.id, From: l.from, To: a.opts.Self, Type: mailbox.TypeMessage}
		if err := a.settle(ctx, a.ready.remove(l)...); err != nil {
			return Drained{}, err
		}
		a.observe(EventDropped, e, "the buffer of its goal holds 64")
		d.Dropped++
	}
	d.Messages = []Mail{}
	var list []mailbox.Envelope
	for _, l := range a.ready.takeAll(min(limit, maxDrain)) {
		e, err := a.read(ctx, l)
		switch {
		case errors.Is(err, mailbox.ErrGone):
			a.ready.remove(l)
			continue
		case err != nil:
			a.ready.release(l)
			continue // told by what waits
		case a.tooLate(e) != "":
			a.observe(EventExpired, e, a.tooLate(e))
			if err := a.settle(ctx, a.ready.remove(l)...); err != nil {
				a.log.Warn("mail that is too late stays in the inbox", "message_id", e.ID, "err", err)
			}
			continue
		}
		if err := a.delivered(ctx, l, e); err != nil {
			return Drained{}, err
		}
		d.Messages = append(d.Messages, a.mail(e))
		list = append(list, e)
	}
	d.Rendered = mailbox.Render(list)
	_, d.Waiting = a.ready.show(0)
	return d, nil
}

// Ack settles a waiting message: the bot has dealt with it. It is an error where
// none of that id waits.
func (a *Agent) Ack(ctx context.Context, id string) error {
	return a.each(ctx, id, a.delivered)
}

// Nack refuses a waiting message: its sender is told, and sends it again where
// the code is one for that.
func (a *Agent) Nack(ctx context.Context, id string, code mailbox.Code, message string) error {
	return a.each(ctx, id, func(ctx context.Context, l *letter, e mailbox.Envelope) error {
		return a.refusedByBot(ctx, l, e, code, message)
	})
}

func (a *Agent) each(ctx context.Context, id string, do func(context.Context, *letter, mailbox.Envelope) error) error {
	if a.lines.answer(id, nil) {
		return nil
	}
	found := a.ready.find(id)
	if len(found) == 0 {
		return mailbox.Invalid("id", "no message %.200q waits; it may have been dealt with", id)
	}
	for _, l := range found {
		e, err := a.read(ctx, l)
		if errors.Is(err, mailbox.ErrGone) {
			a.ready.remove(l)
			continue
		}
		if err == nil {
			err = do(ctx, l, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
