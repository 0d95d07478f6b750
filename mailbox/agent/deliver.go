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

// awayError is an error of the store.
type awayError struct{ error }

// longestPause is the longest pause after an error before what failed is tried again.
func longestPause(err error) time.Duration {
	if _, away := errors.AsType[awayError](err); away {
		return awayMax
	}
	return retryMax
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
		longest := longestPause(err)
		m.hold = time.Now().Add(wait.Doubled(retryFirst, longest, m.fails))
		m.fails++
		if writing {
			l.hold = time.Now().Add(wait.Doubled(retryFirst, longest, l.fails))
			l.fails++
		}
	}
}

// read returns the envelope of a message, from whichever of its copies is left.
func (a *Agent) read(ctx context.Context, m *queued) (mailbox.Envelope, error) {
	a.mu.Lock()
	keys := slices.Clone(m.keys)
	a.mu.Unlock()
	for _, key := range keys {
		item, err := a.opts.Store.Read(ctx, a.opts.Self, key)
		if errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err != nil {
			return mailbox.Envelope{}, awayError{err}
		}
		e, err := a.opts.Signing.Decode(item.Raw)
		if err == nil && messageKey(e) != m.key {
			continue // another message has taken its place, and comes as one of its own
		}
		return a.withTaskState(e), err
	}
	return mailbox.Envelope{}, mailbox.ErrGone
}

// withTaskState is e, with the state that the task which it gives has now.
func (a *Agent) withTaskState(e mailbox.Envelope) mailbox.Envelope {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Type.GivesTask() && e.Task != nil {
		if t, ok := a.tasks.get(Received, e.From, e.Task.ID); ok {
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
		a.take(m)
		return e, false, nil
	case broken:
		a.observeBroken(mailbox.Envelope{ID: m.id, From: m.from}, err) // it was changed in the inbox
		a.clear(ctx, a.take(m), mailbox.Malformed)
		return e, false, nil
	case err != nil:
		return e, false, err
	}
	var from *mailbox.Card
	if a.expired(e) {
		from = a.cards.get(ctx, e.From)
	}
	keys, done, err := a.takeObsolete(m, e, from)
	if done == nil || err != nil {
		return e, done == nil, err
	}
	a.observe(done.what, e, done.why)
	a.clear(ctx, keys, mailbox.Taken, m.stamps...)
	return e, false, nil
}

// takeObsolete answers and takes out e if it is not given to the bot any more; nil: it is.
func (a *Agent) takeObsolete(m *queued, e mailbox.Envelope, from *mailbox.Card) ([]string, *handled, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what, why := a.obsolete(e, m.key)
	if what == "" {
		return nil, nil, nil
	}
	answer := a.receipt(e)
	if what != EventDuplicate {
		answer = a.expiryAnswer(e, from)
	}
	done, err := a.finish(what, why, answer)
	if err != nil {
		return nil, done, awayError{err}
	}
	if e.Type.GivesTask() {
		a.queue.channelOpened() // there may be a channel for what waited for this one to end
	}
	return a.queue.remove(m), done, nil
}

// take takes m out of the queue, and returns its keys.
func (a *Agent) take(m *queued) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.remove(m)
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
	a.delivered(ctx, m, e)
	return nil
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
		case t.Told != "" && t.Told == e.Task.State:
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
func (a *Agent) expiryAnswer(e mailbox.Envelope, from *mailbox.Card) *mailbox.Envelope {
	if e.Type.AboutTask() || e.Type.Control() {
		return nil
	}
	if !e.Metadata.RequiresAck && (from == nil || from.Protocol == "") {
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
// then moved to processed. It is done even when ctx ends meanwhile. It reports false where m was settled before: the
// bot acknowledged it, or refused it, in between.
func (a *Agent) delivered(ctx context.Context, m *queued, e mailbox.Envelope) bool {
	keys, ok := a.noteDelivered(m, e)
	if !ok {
		return false
	}
	a.forwardable.Add(m.name, origin{e.Hops, e.Trace, e.ID})
	a.opts.Trace("settling")
	a.observe(EventDelivered, e, "")
	a.clear(context.WithoutCancel(ctx), keys, mailbox.Taken, m.stamps...)
	return true
}

func (a *Agent) noteDelivered(m *queued, e mailbox.Envelope) (keys []string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.queue.has(m) {
		return nil, false
	}
	asked := ""
	if e.Type.Asks() {
		asked = askedKey(e.From, e.ID)
	}
	a.note(e.ID, append(a.toldEnd(e), marks(kindSeen, asked, m.key, givenKey(m.name))...)...)
	if !e.Type.AboutTask() {
		if err := a.answer(a.receipt(e)); err != nil {
			a.log.Warn("a delivery was not acknowledged; its sender may repeat it", "message_id", e.ID, "err", err)
		}
	}
	return a.queue.remove(m), true
}

// clear takes mail that the bot is not to get any more out of the inbox. What the store
// refuses to take out is looked at again later.
func (a *Agent) clear(ctx context.Context, keys []string, how mailbox.Outcome, stamps ...string) {
	for _, key := range keys {
		if err := a.settle(ctx, key, how, stamps...); err != nil {
			a.postpone(err)
		}
	}
}

// refusedByBot ends what the bot will not take. A task is rejected. None of it counts as seen: when it is sent
// again, the bot is asked again.
func (a *Agent) refusedByBot(ctx context.Context, m *queued, e mailbox.Envelope, no refusedWith) error {
	if e.Type.AboutTask() && !e.Type.GivesTask() && no.code.Retriable() {
		return errLater // its sender believes it delivered: who tries again is this side
	}
	var giver *mailbox.Card
	if e.Type.GivesTask() {
		giver = a.cards.get(ctx, e.From)
	}
	keys, err := a.noteRefused(m, e, no, giver)
	if err != nil {
		return awayError{err}
	}
	a.clear(ctx, keys, mailbox.Taken, m.stamps...)
	return nil
}

func (a *Agent) noteRefused(m *queued, e mailbox.Envelope, no refusedWith, giver *mailbox.Card) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.queue.has(m) {
		return nil, nil
	}
	a.observe(EventRefused, e, string(no.code))
	var err error
	switch {
	case e.Type.GivesTask():
		_, err = a.update(TaskUpdate{TaskID: taskID(e), From: e.From, State: mailbox.Rejected, Text: no.Error()}, "", giver,
			nil)
		if _, refused := errors.AsType[*mailbox.Error](err); refused {
			err = nil
		}
	case e.Metadata.RequiresAck && !e.Type.AboutTask():
		err = a.answer(new(mailbox.NackFor(e, a.opts.Self, time.Now(), no.code, no.message)))
	}
	if err != nil {
		return nil, err
	}
	return a.queue.remove(m), nil
}
