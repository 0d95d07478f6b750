package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// errLater says that the bot wants a message that only this side can give again.
var errLater = errors.New("the bot wants it later")

// maxInProgress is how many bytes of messages the bot may have without an answer, in
// conversations and otherwise; the next waits for one of these to end. Each counts as leastInProgress.
const (
	maxInProgress   = 16 << 20
	leastInProgress = 64 << 10
)

// deliver delivers what is ready, as long as a delivery channel is open. The messages of a lane are written one after
// the other, by priority; the answers may take minutes and hold up only what has to wait for
// them (see [Progress]).
func (a *Agent) deliver(ctx context.Context) error {
	if err := a.awaitFirstLook(ctx); err != nil {
		return err
	}
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for {
		a.mu.Lock()
		m, at := a.queue.next(time.Now())
		changed := a.queue.changed
		a.mu.Unlock()
		if m != nil {
			attempts.Go(func() { a.attempt(ctx, m) })
		} else if err := wait.Change(ctx, at, changed); err != nil {
			return err
		}
	}
}

// attempt tries to deliver m.
func (a *Agent) attempt(ctx context.Context, m *queued) {
	err := errors.New("the delivery broke off")
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended(ctx, m, err)
	}()
	locked := func(do func(*queued)) func() {
		return func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			do(m)
		}
	}
	err = a.deliverOne(ctx, m, Progress{Written: locked(a.queue.written), Next: locked(a.queue.release)})
}

// watchChannels notes when a delivery channel opens.
func (a *Agent) watchChannels(ctx context.Context) error {
	for {
		opened := a.opts.Channels.Changed()
		a.opened() // also what opened before
		if err := wait.Change(ctx, time.Time{}, opened); err != nil {
			return err
		}
	}
}

// opened notes that there may be a delivery channel for what waits for one.
func (a *Agent) opened() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.channelOpened()
}

// ended ends an attempt to deliver m: what was not delivered is given back.
func (a *Agent) ended(ctx context.Context, m *queued, err error) {
	l := a.queue.lane(m)
	l.bytes -= m.weight()
	a.queue.release(m)
	writing := l.writing == m
	if writing {
		l.writing = nil
	}
	m.busy, m.giving, m.cancel = false, nil, nil
	switch {
	case err == nil, !a.queue.has(m): // the bot acknowledged it, or refused it, in between
		l.fails = 0
	case ctx.Err() != nil:
	case m.over: // it is cleared away at its next turn
	case errors.Is(err, ErrNoChannel):
		l.fails = 0
		if m.opened == a.queue.openings { // else a channel has opened since
			m.state = noChannel
		}
	case errors.Is(err, ErrTimedOut), !m.given.IsZero() && time.Since(m.given) > a.opts.MaxAge:
		m.state = unanswered
		a.note(m.id, marks(kindSeen, closedKey(m.key, m.sent))...)
		a.observe(EventUndeliverable, mailbox.Envelope{ID: m.id, From: m.from, To: a.opts.Self}, "the bot did not answer")
	default:
		level := slog.LevelDebug
		if m.fails == 0 { // once a message: a bot may be away for long
			level = slog.LevelWarn
		}
		a.log.Log(ctx, level, "mail waits for the bot", "message_id", m.id, "err", err)
		a.opts.Failed("delivery", err)
		m.hold = time.Now().Add(wait.Doubled(retryFirst, awayMax, m.fails))
		m.fails++
		if writing {
			l.hold = time.Now().Add(wait.Doubled(retryFirst, awayMax, l.fails))
			l.fails++
		}
	}
}

// read returns the envelope of a message, from whichever of its copies is left.
func (a *Agent) read(ctx context.Context, m *queued) (e mailbox.Envelope, err error) {
	a.mu.Lock()
	keys := slices.Clone(m.keys)
	a.mu.Unlock()
	for _, key := range keys {
		item, err := a.opts.Store.Read(ctx, a.opts.Self, key)
		if errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err == nil {
			e, err = a.opts.Signing.Decode(item.Raw)
		}
		if err == nil && messageKey(e) != m.key {
			continue // another message has taken its place, and comes as one of its own
		}
		return e, err
	}
	return e, mailbox.ErrGone
}

// withTaskState is e, with the state that the task which it gives has now.
func (a *Agent) withTaskState(e mailbox.Envelope) mailbox.Envelope {
	if e.Type.GivesTask() {
		if t, ok := a.tasks.get(Received, e.From, taskID(e)); ok {
			e.Task = &mailbox.Task{ID: e.Task.ID, State: t.State, Deadline: e.Task.Deadline}
		}
	}
	return e
}

// fetch reads a message that is to be delivered; false: the bot does not get
// it any more, and it has left the inbox.
func (a *Agent) fetch(ctx context.Context, m *queued) (e mailbox.Envelope, ok bool, err error) {
	e, err = a.read(ctx, m)
	_, broken := errors.AsType[*mailbox.Error](err)
	switch {
	case errors.Is(err, mailbox.ErrGone): // somebody else has dealt with it
		_ = a.end(ctx, m, mailbox.Taken, func() error { return nil })
		return e, false, nil
	case broken:
		a.observeBroken(mailbox.Envelope{ID: m.id, From: m.from}, err) // it was changed in the inbox
		_ = a.end(ctx, m, mailbox.Malformed, func() error { return nil })
		return e, false, nil
	case err != nil:
		return e, false, err
	}
	a.refreshCards(ctx)
	err = a.end(ctx, m, mailbox.Taken, func() error {
		what, why := a.obsolete(e, m.key)
		if what == "" {
			e = a.withTaskState(e)
			return errWaits
		}
		if e.Type.GivesTask() {
			a.queue.channelOpened() // there may be a channel for what waited for this one to end
		}
		answer := a.receipt(e)
		if what != EventDuplicate {
			answer = a.expiryAnswer(e)
		}
		err := a.tell(answer)
		if err == nil {
			a.observe(what, e, why)
		}
		return err
	})
	if ok = errors.Is(err, errWaits); ok || errors.Is(err, errSettled) {
		err = nil
	}
	return e, ok, err
}

var (
	errWaits   = errors.New("the message is still for the bot")
	errSettled = errors.New("the message was settled before")
)

// end takes m out of the queue and the inbox with what note commits. With an error of note it stays; it is errSettled
// where it was settled before. What the store refuses to take out is looked at again later. The stamps are read without
// mu: nobody changes them once m is out of the queue.
func (a *Agent) end(ctx context.Context, m *queued, how mailbox.Outcome, note func() error) error {
	keys, err := a.endInQueue(m, note)
	for _, key := range keys {
		if err := a.settle(ctx, key, how, m.stamps...); err != nil {
			a.postpone(err)
		}
	}
	return err
}

func (a *Agent) endInQueue(m *queued, note func() error) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.queue.has(m) {
		return nil, errSettled
	}
	if err := note(); err != nil {
		return nil, err
	}
	return a.queue.remove(m), nil
}

// deliverOne gives one message to the bot and settles it. It returns when the bot has
// answered; an error means that it has to be tried again.
func (a *Agent) deliverOne(ctx context.Context, m *queued, on Progress) error {
	e, ok, err := a.fetch(ctx, m)
	if err != nil || !ok {
		return err
	}
	giving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.mu.Lock()
	m.giving, m.cancel = &e, cancel
	d := Delivery{Envelope: e, Conversation: a.conversation(e)}
	a.mu.Unlock()
	d.ID = m.name
	a.opts.Trace("inject")
	err = a.give(giving, d, on)
	if said, ok := errors.AsType[*refusedWith](err); ok {
		return a.refusedByBot(ctx, m, e, *said)
	}
	if errors.Is(err, ErrRefused) {
		return a.refusedByBot(ctx, m, e, refusedWith{mailbox.InvalidMessage, "the bot refused it"})
	}
	if err != nil {
		return err
	}
	a.opts.Trace("delivered")
	return a.delivered(ctx, m, e)
}

// give hands d to the bot: a result that belongs in a conversation by the channel
// that conversations come through, all else by the bot's own line first.
func (a *Agent) give(ctx context.Context, d Delivery, on Progress) error {
	paths := []func() error{
		func() error { return a.giveLine(ctx, d, on) },
		func() error { return a.opts.Channels.Deliver(ctx, d, on) },
	}
	if d.Conversation != nil {
		slices.Reverse(paths)
	}
	err := paths[0]()
	if errors.Is(err, ErrNoChannel) {
		err = paths[1]()
	}
	return err
}

// obsolete is why e, which is known by key, is not given to the bot any more; "": it is.
func (a *Agent) obsolete(e mailbox.Envelope, key string) (what What, why string) {
	if a.seen(key) {
		return EventDuplicate, ""
	}
	if a.expired(e) {
		return EventExpired, lifeOver
	}
	switch {
	case e.Type.GivesTask():
		if t, ok := a.tasks.get(Received, e.From, taskID(e)); ok && !t.open() {
			return EventExpired, "the task is " + string(t.State)
		}
	case e.Type.TaskStep():
		switch t, ok := a.tasks.get(Given, e.From, taskID(e)); {
		case !ok:
		case t.told(e):
			return EventDuplicate, ""
		case a.overtaken(t, e):
			return EventExpired, "the task has gone on: it is " + string(t.State)
		}
	}
	return "", ""
}

// expired reports whether e's life in seconds is over. What was acknowledged when
// it was noted has outlived it: nobody sends it again, and a task has a deadline.
func (a *Agent) expired(e mailbox.Envelope) bool { return passed(lifeEnds(e)) }

// passed reports whether it is t or later; zero: never.
func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// expiryAnswer is what the sender gets of e, which was not delivered in time; nil: nothing. It
// would take it for delivered, as it is in the inbox no more. A sender that asked for no
// acknowledgement gets it where its mailbox knows what to do with that.
func (a *Agent) expiryAnswer(e mailbox.Envelope) *mailbox.Envelope {
	if e.Type.AboutTask() || e.Type.Control() {
		return nil
	}
	if !e.Metadata.RequiresAck && !a.acknowledges(e.From) {
		return nil
	}
	return new(mailbox.NackFor(e, a.opts.Self, time.Now(), mailbox.AgentOffline, "its life ended before it was taken"))
}

// lifeEnds is when e is not delivered any more; zero: never. Tasks and their steps were
// acknowledged when they were noted, not when the bot has them: a bot that looks for its
// mail once an hour has accepted a task all the same.
func lifeEnds(e mailbox.Envelope) time.Time {
	if e.Type.AboutTask() {
		return time.Time{}
	}
	return e.Expires()
}

// delivered notes that the bot has e: seen first, so that a crash behind it does not repeat it; then acknowledged;
// then moved to processed. It is done even when ctx ends meanwhile.
func (a *Agent) delivered(ctx context.Context, m *queued, e mailbox.Envelope) error {
	return a.end(context.WithoutCancel(ctx), m, mailbox.Taken, func() error {
		a.note(e.ID, append(a.toldEnd(e), marks(kindSeen, m.key, givenKey(m.name))...)...)
		if !e.Type.AboutTask() {
			if err := a.tell(a.receipt(e)); err != nil {
				a.log.Warn("a delivery was not acknowledged; its sender may repeat it", "message_id", e.ID, "err", err)
			}
		}
		a.forwardable.Add(m.name, origin{e.Hops, e.Trace})
		a.opts.Trace("settling")
		a.observe(EventDelivered, e, "")
		return nil
	})
}

// refusedByBot ends what the bot will not take. A task is rejected. None of it counts as seen: when it is sent
// again, the bot is asked again.
func (a *Agent) refusedByBot(ctx context.Context, m *queued, e mailbox.Envelope, no refusedWith) error {
	if e.Type.AboutTask() && !e.Type.GivesTask() && no.code.Retriable() {
		return errLater // its sender believes it delivered: who tries again is this side
	}
	return a.end(ctx, m, mailbox.Taken, func() (err error) {
		a.observe(EventRefused, e, string(no.code))
		switch {
		case e.Type.GivesTask():
			u := TaskUpdate{TaskID: taskID(e), From: e.From, State: mailbox.Rejected, Text: no.Error()}
			if _, err = a.update(u, "", nil); err != nil && errors.As(err, new(*mailbox.Error)) {
				err = nil
			}
		case e.Metadata.RequiresAck && !e.Type.AboutTask():
			err = a.tell(new(mailbox.NackFor(e, a.opts.Self, time.Now(), no.code, no.message)))
		}
		return err
	})
}
