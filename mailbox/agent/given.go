package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/outgoing"
	"feishu-relay/mailbox/tasks"
)

// metaNotice marks, in the metadata of a result or a nack, that this side made it:
// the deadline passed, or the task or message could not be handed over.
const metaNotice = "notice"

// takeStep notes what another agent says of a task that it was given. The bot
// hears of it where it ends the task or says something; the bare news that it
// was accepted must not wake it.
func (a *Agent) takeStep(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	r, ok := a.ledger.Get(tasks.Sent, e.From, taskID(e))
	if !ok {
		return a.refuse(ctx, item, e, &mailbox.Error{Code: mailbox.TaskNotFound, Field: "task.id",
			Message: fmt.Sprintf("%s gave %s no such task", a.opts.Self, e.From)})
	}
	notice := e.Metadata.Extra[metaNotice] != nil && e.ID == noticeID(a.opts.Self, r)
	overdue := e.Metadata.Extra[metaOverdue] != nil && e.Task.State == mailbox.Failed
	if !notice && !overdue && e.Task.State != "" { // else it is noted already, or by our own clock
		var err error
		r, _, err = a.ledger.Move(tasks.Sent, e.From, r.ID, e.Task.State, reasonOf(e), time.Now())
		if no, ok := errors.AsType[*mailbox.Error](err); ok {
			return a.refuse(ctx, item, e, no)
		}
		if err != nil {
			return err
		}
	}
	a.trace("noted")
	if !notice {
		a.out.Acked(r.MessageID, e.From) // who reports of a task has received it
	}
	if silent(e) || overdue || a.overtaken(r, e) || a.opts.Seen.Seen(stepKey(e)) {
		return a.finish(ctx, item, e, EventControl, "", a.receipt(e))
	}
	if err := a.answer(ctx, a.receipt(e)); err != nil {
		return err
	}
	return a.makeReady(item, e)
}

// overtaken reports whether a step says nothing that the bot still needs: the
// task ended otherwise, or the bot was given its end. Progress that was noted
// and not delivered yet, as before a crash, is needed.
func (a *Agent) overtaken(r tasks.Record, e mailbox.Envelope) bool {
	if e.Task.State == "" || r.State == e.Task.State {
		return false
	}
	return tasks.Terminal(e.Task.State) || a.opts.Seen.Seen(endKey(r.Peer, r.ID, r.State))
}

func reasonOf(e mailbox.Envelope) string {
	if e.Task.State == mailbox.Rejected || e.Task.State == mailbox.Failed {
		return e.Text()
	}
	return ""
}

// conversation is where a result belongs: a conversation that this agent named
// when it gave a task to the sender, in the words that it named it with, or a
// group that the bot is in. Anything else would let another agent speak
// wherever it likes.
func (a *Agent) conversation(e mailbox.Envelope) *mailbox.Callback {
	if !e.Type.Result() {
		return nil
	}
	about, _ := a.ledger.Get(tasks.Sent, e.From, taskID(e))
	wanted := cmp.Or(e.Callback, about.Callback)
	if wanted == nil || wanted.Chat() == "" || wanted.Channel == "mailbox" {
		return nil
	}
	named := func(r tasks.Record) bool {
		c := r.Callback
		return r.Direction == tasks.Sent && r.Peer == e.From && c != nil && c.Channel == wanted.Channel &&
			c.Chat() == wanted.Chat()
	}
	if named(about) {
		return about.Callback
	}
	all := a.ledger.List()
	if i := slices.IndexFunc(all, named); i >= 0 {
		return all[i].Callback
	}
	if a.opts.Hears(wanted.Channel, wanted.Chat()) {
		// whose session it is we do not let others say
		return &mailbox.Callback{Channel: wanted.Channel, ChatID: wanted.Chat()}
	}
	return nil
}

// died gives the bot notice of a task that could not be handed over, and of a message
// that expired.
func (a *Agent) died(d outgoing.DeadLetter) {
	e := d.Envelope
	a.observe(EventDead, e, string(d.Code))
	ctx, cancel := context.WithTimeout(context.Background(), retryMax)
	defer cancel()
	switch {
	case e.Type.GivesTask():
		a.trace("dead")
		a.giveUp(ctx, d)
	case (d.Expired || d.Code == mailbox.BadSignature || !e.Metadata.RequiresAck) && !e.Type.Control():
		if err := a.send(ctx, expiryNotice(d)); err != nil {
			a.log.Error("the bot gets no notice of a message that was not taken; it is among the dead letters",
				"message_id", d.ID, "err", err)
		}
	}
}

// expiryNotice is for the bot, whose message was not taken: a nack in the
// name of its receiver.
func expiryNotice(d outgoing.DeadLetter) mailbox.Envelope {
	says := fmt.Sprintf("%s did not take your message %s: %s. It is among the dead letters", d.Envelope.To, d.ID, d.Reason)
	if d.Code == mailbox.BadSignature {
		says += "; send it anew."
	} else {
		says += ", from which it can be sent again."
	}
	e := mailbox.NackFor(d.Envelope, d.Envelope.To, time.Now(), d.Code, d.Reason)
	e.Content.Parts = slices.Insert(e.Content.Parts, 0, mailbox.Part{Type: mailbox.PartText, Text: says})
	e.Metadata.TTL = new(0)
	e.Metadata.Extra = map[string]json.RawMessage{metaNotice: json.RawMessage("true")}
	return e
}

// isExpiryNotice reports whether e is one that this side made.
func (a *Agent) isExpiryNotice(e mailbox.Envelope) bool {
	return e.Type == mailbox.TypeNack && e.Metadata.Extra[metaNotice] != nil && a.out.IsDead(mailbox.Original(e), e.From)
}

// giveUp ends the task of a dead letter that waits to be taken. Should it arrive
// after all, its result still counts.
func (a *Agent) giveUp(ctx context.Context, d outgoing.DeadLetter) {
	r, ok := a.ledger.Get(tasks.Sent, d.Envelope.To, taskID(d.Envelope))
	if !ok || r.State != mailbox.Pending {
		return
	}
	r, err := a.ledger.GiveUp(r.Peer, r.ID, fmt.Sprintf("%s: %s", d.Code, d.Reason), time.Now())
	if err != nil {
		a.log.Error("a task that came to nothing is not noted", "task_id", r.ID, "err", err)
		return
	}
	if r.Overdue { // else it has gone on in between
		a.notify(ctx, r)
	}
}

// noticeID is the id of the notice that r, which is overdue, came to nothing.
// Made twice, it is the same.
func noticeID(self mailbox.AgentID, r tasks.Record) string {
	sum := sha256.Sum256([]byte(string(r.Peer) + "\x00" + r.ID))
	return fmt.Sprintf("msg_%d_%s_%s", r.UpdatedAt.UnixMilli(), self, hex.EncodeToString(sum[:6]))
}

// notify gives the bot notice that a task it gave has ended without word from the other
// side. It goes the way of all results, so that it is not lost either.
func (a *Agent) notify(ctx context.Context, r tasks.Record) {
	e := a.step(r, r.State, fmt.Sprintf("%s did not finish the task: %s", r.Peer, r.Reason), nil, "")
	e.ID, e.From, e.To, e.Trace = noticeID(a.opts.Self, r), r.Peer, a.opts.Self, []mailbox.AgentID{r.Peer}
	e.Metadata = mailbox.Metadata{CorrelationID: r.MessageID, TTL: new(0),
		Extra: map[string]json.RawMessage{metaNotice: json.RawMessage("true")}}
	if err := a.send(ctx, e); err != nil {
		a.log.Error("the bot gets notice only after a restart that a task came to nothing", "task_id", r.ID, "err", err)
	}
}

// resume sends the answers and notices that a crash prevented.
func (a *Agent) resume(ctx context.Context) {
	for _, r := range a.ledger.List() {
		if r.Direction == tasks.Received && a.rejectedBefore(r) {
			if _, err := a.UpdateTask(ctx, TaskUpdate{TaskID: r.ID, From: r.Peer, State: mailbox.Rejected,
				Text: rejectedBefore}); err != nil {
				a.log.Error("a task that was rejected before a restart is still open", "task_id", r.ID, "err", err)
			}
		}
		if r.Direction == tasks.Sent && r.Overdue && !a.opts.Seen.Seen(endKey(r.Peer, r.ID, r.State)) {
			a.notify(ctx, r)
		}
	}
	dead, err := a.out.DeadLetters()
	if err != nil {
		a.log.Warn("dead letters cannot be read", "err", err)
	}
	for _, d := range dead {
		if d.Envelope.Type.GivesTask() {
			a.giveUp(ctx, d)
		}
	}
}

// gave finds the task that a message of this agent gave.
func (a *Agent) gave(message string) (tasks.Record, bool) {
	all := a.ledger.List()
	i := slices.IndexFunc(all, func(r tasks.Record) bool { return r.Direction == tasks.Sent && r.MessageID == message })
	if i < 0 {
		return tasks.Record{}, false
	}
	return all[i], true
}

// Tasks returns the tasks taken and given, the newest first.
func (a *Agent) Tasks() []tasks.Record { return a.ledger.List() }

// Task returns the tasks of that id: it may be given by several, and taken and given.
func (a *Agent) Task(id string) []tasks.Record { return a.ledger.Find(id) }

// watchDeadlines ends what has run out of time, on both sides: who crashed in a
// task sends nothing.
func (a *Agent) watchDeadlines(ctx context.Context) error {
	for {
		hint := a.ledger.Changed()
		due, failed := a.ledger.Expire(time.Now())
		for _, r := range due {
			if r.Direction == tasks.Sent {
				a.notify(ctx, r)
				continue
			}
			a.changed()
			a.ready.reopen(r.Peer, r.MessageID)
			e := a.step(r, mailbox.Failed, r.Reason, nil, "")
			e.Metadata.Extra = map[string]json.RawMessage{metaOverdue: json.RawMessage("true")}
			if err := a.send(ctx, e); err != nil {
				a.log.Warn("the giver of a task is not sent that its deadline passed; it sees that by its own clock", "task_id", r.ID, "err", err)
			}
		}
		if failed != nil {
			return failed
		}
		next, _ := a.ledger.NextDue() // zero: never
		if err := idle(ctx, next, hint); err != nil {
			return err
		}
	}
}
