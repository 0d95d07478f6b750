package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

func (a *Agent) receive(ctx context.Context) error {
	return a.opts.Store.Receive(ctx, a.opts.Self, func(item mailbox.Item) { a.take(ctx, item) }, a.lookedOnce)
}

// take deals with a piece of mail until it is ready for the bot or done with:
// what the disk or the store refuses is tried again.
func (a *Agent) take(ctx context.Context, item mailbox.Item) {
	for again := wait.NewBackoff(retryFirst, retryMax); ; {
		err := a.sort(ctx, item)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.log.Warn("mail waits to be taken in", "err", err)
		a.opts.Failed("inbox", err)
		if again.Sleep(ctx) != nil {
			return
		}
	}
}

// sort decides about a piece of mail. An error means that it has to be tried again.
func (a *Agent) sort(ctx context.Context, item mailbox.Item) (err error) {
	defer func() {
		if v := recover(); v != nil { // read again after a restart, it would end every process again
			a.log.Error("a message made the mailbox panic and is set aside", "panic", fmt.Sprint(v),
				"stack", string(debug.Stack()))
			err = a.settle(ctx, item.Key, mailbox.Malformed)
		}
	}()
	e, sig, err := a.opts.Signing.Decode(item.Raw)
	if err == nil {
		err = a.checkSigner(e, sig)
	}
	if err == nil && e.To != a.opts.Self {
		err = mailbox.Invalid("to", "is %q, and this is the mailbox of %q", e.To, a.opts.Self)
	}
	if err == nil && e.From == a.opts.Self {
		err = mailbox.Invalid("from", "is the receiver itself")
	}
	if err != nil {
		return a.malformed(ctx, item, e, err)
	}
	a.trace("claimed")
	if a.copied(item.Key, sig) {
		a.observe(EventDuplicate, e, "")
		return a.settle(ctx, item.Key, mailbox.Taken)
	}
	if a.opts.Seen.Seen(messageKey(e)) {
		a.observe(EventDuplicate, e, "")
		if err := a.acknowledge(ctx, e); err != nil {
			return err
		}
		return a.settle(ctx, item.Key, mailbox.Taken)
	}
	if a.isExpiryNotice(e) {
		return a.layReady(item, e)
	}
	switch e.Type {
	case mailbox.TypeAck, mailbox.TypePong, mailbox.TypeRegistered:
		a.out.Acked(mailbox.Original(e), e.From)
		return a.handled(ctx, item, e)
	case mailbox.TypeNack:
		code, message := mailbox.Refusal(e)
		a.out.Nacked(mailbox.Original(e), e.From, code, message)
		return a.handled(ctx, item, e)
	}
	switch {
	case e.Type.GivesTask():
		return a.takeTask(ctx, item, e)
	case isStep(e.Type):
		return a.takeStep(ctx, item, e)
	case a.expired(e):
		a.observe(EventExpired, e, "its life in seconds is over")
		if err := a.tooLate(ctx, e); err != nil {
			return err
		}
		return a.settle(ctx, item.Key, mailbox.Taken)
	}
	switch e.Type {
	case mailbox.TypePing:
		return a.handledBy(ctx, item, e, mailbox.PongFor(e, a.opts.Self, time.Now()))
	case mailbox.TypeRegister:
		return a.handledBy(ctx, item, e, mailbox.RegisteredFor(e, a.opts.Self, time.Now()))
	case mailbox.TypeHeartbeat:
		if err := a.acknowledge(ctx, e); err != nil {
			return err
		}
		return a.handled(ctx, item, e)
	}
	if refusal := a.unwelcome(e); refusal != nil {
		return a.refuse(ctx, item, e, refusal)
	}
	return a.layReady(item, e)
}

// isStep tells the types that say how it goes with a task.
func isStep(t mailbox.Type) bool {
	return t == mailbox.TypeTaskUpdate || t == mailbox.TypeTaskComplete || t == mailbox.TypeTaskFailed
}

// ackedEarly tells the types whose receipt is acknowledged when their step is
// noted, not when the bot has them: a bot that looks for its mail once an hour
// has accepted a task all the same.
func ackedEarly(t mailbox.Type) bool { return t.AboutTask() }

// unwelcome is why an agent's message is not taken, whatever it says.
func (a *Agent) unwelcome(e mailbox.Envelope) *mailbox.Error {
	me := a.currentCard(time.Now())
	switch {
	case !me.Allows(e.From):
		return &mailbox.Error{Code: mailbox.Unauthorized, Field: "from", Message: "unauthorized: " + string(a.opts.Self) +
			" takes no messages from " + string(e.From)}
	case !e.Type.Answers() && e.ReplyTo == "" && slices.Contains(e.Trace, a.opts.Self):
		return mailbox.Invalid("trace", "%s had it before: it would go in a circle", a.opts.Self)
	}
	return nil
}

// givenKey is what Seen knows an id by under which the bot was given a message.
func givenKey(id string) string { return ":given/" + id }

// closedKey is what Seen knows a message by that is not handed over again, since
// the bot did not answer. One that its sender sends again later is.
func closedKey(key string, sent time.Time) string {
	return fmt.Sprintf(":closed/%d/%s", sent.UnixMilli(), key)
}

// layReady lays e ready for the bot.
func (a *Agent) layReady(item mailbox.Item, e mailbox.Envelope) error {
	l := letter{id: e.ID, key: messageKey(e), sum: e.Fingerprint(), name: e.ID, session: a.session(e), from: e.From,
		keys: []string{item.Key}, priority: e.Priority, sent: e.Timestamp, expires: lifeEnds(e), conversation: string(e.From),
		asks: asks(e.Type)}
	if c := a.conversation(e); c != nil {
		l.talk, l.conversation = true, c.Channel+"/"+c.Chat()
	}
	if e.Type == mailbox.TypeMessage && !e.Metadata.RequiresAck {
		l.goal = e.Metadata.Goal
	}
	if e.SharedID() || a.opts.Seen.Seen(givenKey(e.ID)) {
		l.name = e.UniqueID()
	}
	l.closed = a.opts.Seen.Seen(closedKey(l.key, l.sent))
	if limited(e.Type) && !a.ready.knows(l.key) { // counted before the bot can answer it
		a.pairs.took(e.From, time.Now())
	}
	if !a.ready.add(l, e.UniqueID()) {
		a.observe(EventDuplicate, e, "")
		return nil
	}
	a.observe(EventReceived, e, "")
	return nil
}

// malformed sets aside what is not an envelope, and answers its sender where it says
// who that is and asks for an acknowledgement. Mail with a bad signature is not answered.
func (a *Agent) malformed(ctx context.Context, item mailbox.Item, e mailbox.Envelope, why error) error {
	a.log.Debug("mail is set aside", "key", item.Key)
	if a.observeBroken(e, why) {
		return a.settle(ctx, item.Key, mailbox.Malformed)
	}
	nackable := e.Type != mailbox.TypeAck && e.Type != mailbox.TypeNack // or two agents could go on for ever
	if nackable && e.Metadata.RequiresAck && e.ID != "" && e.From != a.opts.Self && mailbox.CheckAgent(e.From) == nil {
		if err := a.answer(ctx, a.nack(e, asRefusal(why))); err != nil {
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

// refuse tells the sender why e is not taken, and is done with it.
func (a *Agent) refuse(ctx context.Context, item mailbox.Item, e mailbox.Envelope, why *mailbox.Error) error {
	a.observe(EventRefused, e, string(why.Code)+": "+why.Message)
	if e.Metadata.RequiresAck {
		if err := a.answer(ctx, a.nack(e, why)); err != nil {
			return err
		}
	}
	return a.settle(ctx, item.Key, mailbox.Taken)
}

// handled is for what the bot is not told of.
func (a *Agent) handled(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	a.observe(EventControl, e, "")
	return a.settle(ctx, item.Key, mailbox.Taken)
}

// handledBy is for what an answer deals with.
func (a *Agent) handledBy(ctx context.Context, item mailbox.Item, e, answer mailbox.Envelope) error {
	if err := a.answer(ctx, answer); err != nil {
		return err
	}
	return a.handled(ctx, item, e)
}

// acknowledge tells the sender of e that it arrived, where it asked for that.
func (a *Agent) acknowledge(ctx context.Context, e mailbox.Envelope) error {
	if !e.Metadata.RequiresAck || e.Type == mailbox.TypeRegistered {
		return nil
	}
	return a.answer(ctx, mailbox.AckFor(e, a.opts.Self, time.Now()))
}

// settle takes mail out of the inbox that is dealt with; a copy of it is a duplicate
// from then on.
func (a *Agent) settle(ctx context.Context, key string, how mailbox.Outcome) error {
	if how == mailbox.Taken {
		a.dealtWith(key)
	}
	err := a.opts.Store.Settle(ctx, a.opts.Self, key, how)
	if err == nil {
		a.signatures.forget(key)
	}
	return err
}

// answer tells another agent what became of its mail. Where its inbox is full,
// or too much waits to be sent, it is not told: one agent that reads nothing
// must not hold up the mail of all others.
func (a *Agent) answer(ctx context.Context, e mailbox.Envelope) error {
	err := a.send(ctx, e)
	if _, no := errors.AsType[*mailbox.Error](err); no || errors.Is(err, mailbox.ErrFull) {
		a.log.Warn("an agent is not told what became of its mail", "to", e.To, "type", e.Type, "err", err)
		return nil
	}
	return err
}

// send is for envelopes of our own making: nothing about them can be refused.
func (a *Agent) send(ctx context.Context, e mailbox.Envelope) error {
	if err := a.out.Send(ctx, e); err != nil {
		return err
	}
	a.observe(EventSent, e, "")
	return nil
}
