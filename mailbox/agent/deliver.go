package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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

// deliver delivers what is ready and belongs in a conversation (inChat), or does
// not, as long as a delivery channel is open. Messages are written one after the other, by
// priority; the answers may take minutes and hold up only what has to wait for
// them (see [Progress]).
func (a *Agent) deliver(ctx context.Context, inChat bool) error {
	if err := a.awaitFirstLook(ctx); err != nil {
		return err
	}
	pause := retryFirst
	var attempts sync.WaitGroup
	defer attempts.Wait()
	room := semaphore.NewWeighted(maxInProgress)
	for {
		more := a.queue.Changed()
		m, at := a.queue.next(time.Now(), inChat)
		if m == nil {
			if f := a.fresh.Load(); f != nil && f.inChat == inChat { // it has to wait, and may leave the inbox meanwhile
				a.fresh.CompareAndSwap(f, nil)
			}
			if err := wait.Change(ctx, at, more); err != nil {
				return err
			}
			continue
		}
		if err := room.Acquire(ctx, m.weight()); err != nil {
			a.queue.stop(m)
			return err
		}
		first := make(chan error, 2) // nil when the bot has the message, else how the attempt ended
		attempts.Go(func() {
			var err error
			defer func() {
				first <- err
				room.Release(m.weight())
			}()
			written := sync.OnceFunc(func() { first <- nil })
			on := Progress{Written: func() { a.queue.written(m); written() }, Next: func() { a.queue.release(m) }}
			err = a.deliverOne(ctx, m, on)
			a.queue.release(m)
			a.ended(ctx, m, err)
		})
		err := <-first
		if err == nil || errors.Is(err, ErrNoChannel) || errors.Is(err, ErrTimedOut) {
			pause = retryFirst
			continue
		}
		if err := wait.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause(err))
	}
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
		a.queue.opened() // also what opened before
		if err := wait.Change(ctx, time.Time{}, opened); err != nil {
			return err
		}
	}
}

// ended gives back a message that was not delivered.
func (a *Agent) ended(ctx context.Context, m *queued, err error) {
	now := a.queue.now(m)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		a.queue.stop(m)
	case errors.Is(err, ErrNoChannel):
		a.queue.putBack(m, noChannel)
	case errors.Is(err, ErrTimedOut), !now.given.IsZero() && time.Since(now.given) > a.opts.MaxAge:
		if !a.queue.putBack(m, unanswered) { // the bot ended its task and did not answer
			return
		}
		a.mu.Lock()
		a.note(m.id, marks(kindSeen, closedKey(m.key, m.sent))...)
		a.mu.Unlock()
		a.observe(EventUndeliverable, mailbox.Envelope{ID: m.id, From: m.from, To: a.opts.Self}, "the bot did not answer")
	default:
		level := slog.LevelDebug
		if now.fails == 0 { // once a message: a bot may be away for long
			level = slog.LevelWarn
		}
		a.log.Log(ctx, level, "mail waits for the bot", "message_id", m.id, "err", err)
		a.opts.Failed("delivery", err)
		a.queue.postpone(m, time.Now(), longestPause(err))
	}
}

// read returns the envelope of a message, from whichever of its copies is left.
func (a *Agent) read(ctx context.Context, m *queued) (mailbox.Envelope, error) {
	for _, key := range a.queue.now(m).keys {
		item, err := a.opts.Store.Read(ctx, a.opts.Self, key)
		if errors.Is(err, mailbox.ErrGone) {
			continue
		}
		if err != nil {
			return mailbox.Envelope{}, err
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

// arrival is the message that came last: it is not read again if its turn is next, within maxFresh.
type arrival struct {
	mailbox.Envelope
	key    string
	inChat bool
	came   time.Time
}

const maxFresh = time.Second

// fetch reads a message that is to be delivered; false: the bot does not get
// it any more, and it has left the inbox.
func (a *Agent) fetch(ctx context.Context, m *queued) (e mailbox.Envelope, ok bool, err error) {
	if f := a.fresh.Swap(nil); f != nil && f.key == m.key && time.Since(f.came) <= maxFresh {
		e = a.withTaskState(f.Envelope)
	} else {
		e, err = a.read(ctx, m)
	}
	if errors.Is(err, mailbox.ErrGone) { // somebody else has dealt with it
		a.queue.remove(m)
		return e, false, nil
	}
	if _, broken := errors.AsType[*mailbox.Error](err); broken {
		a.observeBroken(mailbox.Envelope{ID: m.id, From: m.from}, err) // it was changed in the inbox
		return e, false, a.clear(ctx, m, mailbox.Malformed)
	}
	if err != nil {
		return e, false, awayError{err}
	}
	var from *mailbox.Card
	if a.expired(e) {
		from = a.cards.get(ctx, e.From)
	}
	a.mu.Lock()
	what, why := a.obsolete(e, m.key)
	switch what {
	case "":
	case EventDuplicate:
		err = a.answer(a.receipt(e))
	default:
		err = a.answer(a.expiryAnswer(e, from))
	}
	a.mu.Unlock()
	switch {
	case err != nil:
		return e, false, awayError{err}
	case what == "":
		return e, true, nil
	}
	a.observe(what, e, why)
	return e, false, a.clear(ctx, m, mailbox.Taken)
}

// deliverOne gives one message to the bot and settles it. It returns when the bot has
// answered; an error means that it has to be tried again.
func (a *Agent) deliverOne(ctx context.Context, m *queued, on Progress) error {
	e, ok, err := a.fetch(ctx, m)
	if err == nil && !ok && e.Type.GivesTask() {
		a.queue.opened() // there may be a channel for what waited for this one to end
	}
	if err != nil || !ok {
		return err
	}
	giving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.queue.update(func() { m.giving, m.cancel = &e, cancel })
	a.mu.Lock()
	d := Delivery{Envelope: e, Conversation: a.conversation(e)}
	a.mu.Unlock()
	d.ID = m.name
	a.opts.Trace("inject")
	err = a.give(giving, d, on)
	refused := errors.Is(err, ErrRefused)
	if err != nil && !refused && !a.queue.now(m).claimed {
		return err
	}
	if !a.queue.claim(m) { // the bot acknowledged it, or refused it, in between
		return nil
	}
	if refused {
		no := refusedWith{mailbox.InvalidMessage, "the bot refused it"}
		if said, ok := errors.AsType[*refusedWith](err); ok {
			no = *said
		}
		return a.refusedByBot(ctx, m, e, no)
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

// delivered notes that the bot has e, whose message the caller may end: seen
// first, so that a crash behind it does not repeat it; then acknowledged;
// then moved to processed. It is done even when ctx ends meanwhile.
func (a *Agent) delivered(ctx context.Context, m *queued, e mailbox.Envelope) {
	ctx = context.WithoutCancel(ctx)
	a.noteDelivered(m, e)
	a.forwardable.Add(m.name, origin{e.Hops, e.Trace, e.ID})
	a.opts.Trace("settling")
	a.observe(EventDelivered, e, "")
	a.clearSoon(ctx, m)
}

func (a *Agent) noteDelivered(m *queued, e mailbox.Envelope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := ""
	if e.Type.Asks() {
		asked = askedKey(e.From, e.ID)
	}
	a.note(e.ID, append(a.toldEnd(e), marks(kindSeen, asked, m.key, givenKey(m.name))...)...)
	if e.Type.AboutTask() {
		return
	}
	if err := a.answer(a.receipt(e)); err != nil {
		a.log.Warn("a delivery was not acknowledged; its sender may repeat it", "message_id", e.ID, "err", err)
	}
}

// clear takes a message that the bot is not to get any more out of the inbox. What the store
// refuses to take out is looked at again later.
func (a *Agent) clear(ctx context.Context, m *queued, how mailbox.Outcome) error {
	keys := a.queue.remove(m)
	for _, key := range keys {
		if err := a.settle(ctx, key, how, a.queue.now(m).stamps...); err != nil {
			again := a.queue.now(m)
			again.keys, again.progress = keys, progress{fails: 1, hold: time.Now().Add(awayMax)}
			a.queue.add(again, m.name)
			return awayError{err}
		}
	}
	return nil
}

// clearSoon is clear for what was seen: where it fails, nothing is done twice.
func (a *Agent) clearSoon(ctx context.Context, m *queued) {
	if err := a.clear(ctx, m, mailbox.Taken); err != nil {
		a.log.Warn("processed mail cannot be removed from the inbox yet", "message_id", m.id, "err", err)
	}
}

// refusedByBot ends what the bot will not take, and whose message the
// caller may end. A task is rejected. None of it counts as seen: when it is sent
// again, the bot is asked again.
func (a *Agent) refusedByBot(ctx context.Context, m *queued, e mailbox.Envelope, no refusedWith) (err error) {
	defer func() {
		if err != nil {
			a.queue.unclaim(m)
		}
	}()
	if e.Type.AboutTask() && !e.Type.GivesTask() && no.code.Retriable() {
		return errLater // its sender believes it delivered: who tries again is this side
	}
	a.observe(EventRefused, e, string(no.code))
	switch {
	case e.Type.GivesTask():
		_, err = a.UpdateTask(ctx, TaskUpdate{TaskID: taskID(e), From: e.From, State: mailbox.Rejected, Text: no.Error()})
		if _, refused := errors.AsType[*mailbox.Error](err); refused {
			err = nil
		}
	case e.Metadata.RequiresAck && !e.Type.AboutTask():
		err = a.answerNow(new(mailbox.NackFor(e, a.opts.Self, time.Now(), no.code, no.message)))
	}
	if err != nil {
		return awayError{err}
	}
	a.clearSoon(ctx, m)
	return nil
}
