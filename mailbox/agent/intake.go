package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"feishu-relay/book"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// receive deals with the mail that comes. What the disk or the store refuses to deal with is shown again after a
// pause, with all that is still in the inbox: the other mail does not wait for it.
func (a *Agent) receive(ctx context.Context) error {
	looking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	looked := make(chan struct{})
	a.mu.Lock()
	a.lookAgain = func(why error) {
		time.AfterFunc(lookAgainAfter, func() {
			_ = wait.Change(looking, time.Time{}, looked)
			cancel(why)
		})
	}
	a.mu.Unlock()
	err := a.opts.Store.Receive(looking, a.opts.Self, func(item mailbox.Item) {
		if err := a.sort(looking, item); err != nil {
			a.postpone(err)
		}
	}, func() { a.lookedOnce(); close(looked) })
	return cmp.Or(context.Cause(looking), err)
}

// postpone has the inbox looked at again.
func (a *Agent) postpone(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookAgain(why)
}

// sort decides about a piece of mail. An error means that it has to be tried again.
func (a *Agent) sort(ctx context.Context, item mailbox.Item) (err error) {
	defer func() {
		if v := recover(); v != nil { // read again after a restart, it would end every process again
			a.log.Error("a message made the mailbox panic and is quarantined", "panic", fmt.Sprint(v),
				"stack", string(debug.Stack()))
			err = a.settle(ctx, item.Key, mailbox.Malformed)
		}
	}()
	e, err := a.opts.Signing.Decode(item.Raw)
	if err == nil && e.To != a.opts.Self {
		err = mailbox.Invalid("to", "is %q, and this is the mailbox of %q", e.To, a.opts.Self)
	}
	if err == nil && e.From == a.opts.Self {
		err = mailbox.Invalid("from", "is the receiver itself")
	}
	if err != nil {
		return a.malformed(ctx, item, e, err)
	}
	a.opts.Trace("claimed")
	a.refreshCards(ctx)
	done, err := a.decide(item, e)
	if err != nil || done == nil {
		return err
	}
	a.observe(done.what, e, done.why)
	return a.settle(ctx, item.Key, mailbox.Taken, a.stamp(e))
}

// handled is what became of mail that the bot is not given.
type handled struct {
	what What
	why  string
}

// decide deals with e, or puts it into the queue for the bot (nil).
func (a *Agent) decide(item mailbox.Item, e mailbox.Envelope) (*handled, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	switch {
	case a.has(kindCopy, a.stamp(e)):
		return a.finish(EventDuplicate, "", nil)
	case a.seen(messageKey(e)):
		return a.finish(EventDuplicate, "", a.receipt(e))
	case e.Type == mailbox.TypeNack && a.seen(noticeKey(e.ID)):
		a.enqueue(item, e)
		return nil, nil
	case e.Type == mailbox.TypeAck, e.Type == mailbox.TypePong, e.Type == mailbox.TypeRegistered:
		a.acked(mailbox.Original(e), e.From)
		return a.finish(EventControl, "", nil)
	case e.Type == mailbox.TypeNack:
		code, message := mailbox.Refusal(e)
		a.nacked(mailbox.Original(e), e.From, code, message)
		return a.finish(EventControl, "", nil)
	case e.Type.GivesTask():
		return a.takeTask(item, e)
	case e.Type.TaskStep():
		return a.takeStep(item, e)
	case a.expired(e):
		return a.finish(EventExpired, lifeOver, a.expiryAnswer(e))
	case e.Type == mailbox.TypePing:
		return a.finish(EventControl, "", new(mailbox.PongFor(e, a.opts.Self, now)))
	case e.Type == mailbox.TypeRegister:
		return a.finish(EventControl, "", new(mailbox.RegisteredFor(e, a.opts.Self, now)))
	case e.Type == mailbox.TypeHeartbeat:
		return a.finish(EventControl, "", a.receipt(e))
	}
	if refusal := a.unwanted(e); refusal != nil {
		return a.refuse(e, refusal)
	}
	a.enqueue(item, e)
	return nil, nil
}

// lifeOver is the reason of what expired.
const lifeOver = "its life in seconds is over"

// unwanted is why an agent's message is not taken, whatever its content.
func (a *Agent) unwanted(e mailbox.Envelope) *mailbox.Error {
	switch {
	case !a.card.Allows(e.From): // what it allows never changes
		return mailbox.Refused(mailbox.Unauthorized, "from", "unauthorized: %s takes no messages from %s",
			a.opts.Self, e.From)
	case !e.Type.Answers() && e.ReplyTo == "" && slices.Contains(e.Trace, a.opts.Self):
		return mailbox.Invalid("trace", "%s had it before: it would go in a circle", a.opts.Self)
	}
	return nil
}

// enqueue puts e into the queue of messages for the bot.
func (a *Agent) enqueue(item mailbox.Item, e mailbox.Envelope) {
	m := queued{keys: []string{item.Key}, stamps: []string{a.stamp(e)}, size: len(item.Raw), id: e.ID, key: messageKey(e),
		name: e.ID, session: cmp.Or(e.Metadata.Goal, string(a.opts.Self)), from: e.From, priority: e.Priority,
		sent: e.Timestamp, expires: lifeEnds(e), conversation: string(e.From),
		buffered: e.Type == mailbox.TypeMessage && !e.Metadata.RequiresAck && e.Metadata.Goal != ""}
	if c := a.conversation(e); c != nil {
		m.inChat, m.conversation = true, c.Channel+"/"+c.Chat()
	}
	if e.SharedID() || a.seen(givenKey(e.ID)) {
		m.name = e.UniqueID()
	}
	if a.seen(closedKey(m.key, m.sent)) {
		m.state = unanswered
	}
	added, came := a.queue.add(m, e.UniqueID())
	switch {
	case !came: // it is shown again
		return
	case !added:
		a.observe(EventDuplicate, e, "")
		return
	}
	var noted []book.Record
	if limited(e.Type) {
		_, noted = a.exchanged(e.From, m.key, 0) // it is not refused, only what follows is
	}
	if e.Type.Asks() {
		noted = append(noted, marks(kindSeen, askedKey(e.From, e.ID))...)
	}
	a.note(e.ID, noted...)
	a.observe(EventReceived, e, "")
}

// malformed sets aside what is not an envelope, and answers its sender where it says
// who that is and asks for an acknowledgement. Mail with a bad signature is not answered.
func (a *Agent) malformed(ctx context.Context, item mailbox.Item, e mailbox.Envelope, why error) error {
	a.log.Debug("mail is set aside", "key", item.Key)
	badSignature := a.observeBroken(e, why)
	nackable := e.Type != mailbox.TypeAck && e.Type != mailbox.TypeNack // or two agents could go on without end
	if !badSignature && nackable && e.Metadata.RequiresAck && e.ID != "" && e.From != "" && e.From != a.opts.Self {
		a.mu.Lock()
		err := a.tell(new(a.nack(e, asRefusal(why))))
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return a.settle(ctx, item.Key, mailbox.Malformed)
}

// observeBroken reports mail that is not an envelope, or has a bad signature, which
// it returns.
func (a *Agent) observeBroken(e mailbox.Envelope, why error) (badSignature bool) {
	what := EventMalformed
	if badSignature = asRefusal(why).Code == mailbox.BadSignature; badSignature {
		what = EventBadSignature
		a.opts.Failed(string(what), fmt.Errorf("mail that claims to be from %q: %w", e.From, why))
	}
	a.observe(what, mailbox.Envelope{ID: e.ID, From: e.From, To: a.opts.Self, Type: e.Type}, why.Error())
	return badSignature
}

// nack refuses e in words that name the field.
func (a *Agent) nack(e mailbox.Envelope, why *mailbox.Error) mailbox.Envelope {
	message := why.Message
	if why.Field != "" {
		message = why.Field + ": " + message
	}
	return mailbox.NackFor(e, a.opts.Self, time.Now(), why.Code, message)
}

// refuse finishes e, which is not taken, and says why where an acknowledgement is asked for.
func (a *Agent) refuse(e mailbox.Envelope, why *mailbox.Error) (*handled, error) {
	var answer *mailbox.Envelope
	if e.Metadata.RequiresAck {
		answer = new(a.nack(e, why))
	}
	return a.finish(EventRefused, string(why.Code)+": "+why.Message, answer)
}

// finish ends what the bot is not given: its sender gets the answer, nil for no answer.
func (a *Agent) finish(what What, reason string, answer *mailbox.Envelope) (*handled, error) {
	return &handled{what, reason}, a.tell(answer)
}

// receipt is the acknowledgement of e; nil where its sender asked for none.
func (a *Agent) receipt(e mailbox.Envelope) *mailbox.Envelope {
	if !e.Metadata.RequiresAck || e.Type == mailbox.TypeRegistered {
		return nil
	}
	return new(mailbox.AckFor(e, a.opts.Self, time.Now()))
}

// settle takes mail out of the inbox that is dealt with. A copy with one of the stamps is a duplicate from now on.
func (a *Agent) settle(ctx context.Context, key string, how mailbox.Outcome, stamps ...string) error {
	if how == mailbox.Taken {
		a.mu.Lock()
		a.note("", marks(kindCopy, stamps...)...)
		a.mu.Unlock()
	}
	return a.opts.Store.Settle(ctx, a.opts.Self, key, how)
}

// tell sends word of what became of mail or of a task, nil: none, and writes the records down. Where too much waits to
// be sent, only they are: one agent that reads nothing must not hold up the mail of all others.
func (a *Agent) tell(e *mailbox.Envelope, with ...book.Record) error {
	err := a.send(e, with...)
	if _, no := errors.AsType[*mailbox.Error](err); no || errors.Is(err, mailbox.ErrFull) {
		a.log.Warn("an agent is not told what became of mail or of a task", "to", e.To, "type", e.Type, "err", err)
		return a.commit(with...)
	}
	return err
}

// send sends an envelope of this agent's own making, nil: none, and writes the records down with it.
func (a *Agent) send(e *mailbox.Envelope, with ...book.Record) error {
	if e == nil {
		return a.commit(with...)
	}
	m, err := a.opts.Signing.Seal(*e)
	if err != nil {
		return err
	}
	return a.post(m, with...)
}
