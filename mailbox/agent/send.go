package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/outgoing"
	"feishu-relay/mailbox/tasks"
)

// Send sends an envelope. What is left out is filled in; a repeat of a message
// that was sent under its id is answered the same and sent once, and another
// message under that id gets one of its own. A step of a task that this agent took
// moves that task ([Agent.UpdateTask]); an ack or nack settles waiting mail.
func (a *Agent) Send(ctx context.Context, d Draft) (Sent, error) {
	e := d.Envelope
	if e.From != "" && e.From != a.opts.Self {
		return Sent{}, mailbox.Invalid("from", "this sidecar speaks for %q only", a.opts.Self)
	}
	e.From, e.Timestamp = a.opts.Self, time.Now().UTC()
	e.Type = cmp.Or(e.Type, mailbox.TypeMessage)
	switch e.Type {
	case mailbox.TypeAck:
		return Sent{ID: mailbox.Original(e)}, a.Ack(ctx, mailbox.Original(e))
	case mailbox.TypeNack:
		code, message := mailbox.Refusal(e)
		return Sent{ID: mailbox.Original(e)}, a.Nack(ctx, mailbox.Original(e), code, message)
	}
	if e.ID == "" {
		e.ID = mailbox.NewID(a.opts.Self, e.Timestamp)
		return a.sendOnce(ctx, e, d.ForwardOf)
	}
	key := sentKey(e.ID) + "#" + e.Fingerprint()
	sent, err, _ := a.sends.Do(key, func() (any, error) {
		if sent, ok := a.wasSent(e); ok {
			return sent, nil
		}
		if _, taken := a.sending.LoadOrStore(e.ID, true); taken || a.opts.Seen.Seen(sentKey(e.ID)) {
			if !taken {
				a.sending.Delete(e.ID)
			}
			e.ID = e.UniqueID() // the bot gave another message this id
		} else {
			defer a.sending.Delete(e.ID)
		}
		sent, err := a.sendOnce(ctx, e, d.ForwardOf)
		if err == nil {
			a.remember(a.opts.Seen, e.ID, key, sentKey(e.ID))
		}
		return sent, err
	})
	return sent.(Sent), err
}

// wasSent is the answer to a repeat of e.
func (a *Agent) wasSent(e mailbox.Envelope) (Sent, bool) {
	if !a.opts.Seen.Seen(sentKey(e.ID) + "#" + e.Fingerprint()) {
		return Sent{}, false
	}
	id := e.ID
	if a.opts.Seen.Seen(sentKey(e.UniqueID())) {
		id = e.UniqueID()
	}
	r, _ := a.gave(id)
	return Sent{ID: id, TaskID: cmp.Or(taskID(e), r.ID)}, true
}

// theirs is the id that a message has for its sender, to, which the bot was given as id.
func (a *Agent) theirs(id string, to mailbox.AgentID) string {
	if l := a.ready.find(id); l != nil {
		return l.id
	}
	if was, ok := a.handed.Get(id); ok {
		return was.id
	}
	// After a restart: an id and the fingerprint behind it ([mailbox.Envelope.UniqueID]).
	if i := strings.LastIndexByte(id, '_'); i > 0 && a.opts.Seen.Seen(string(to)+"/"+id[:i]+"#"+id[i+1:]) {
		return id[:i]
	}
	return id
}

// sendOnce sends e, which has an id.
func (a *Agent) sendOnce(ctx context.Context, e mailbox.Envelope, forwardOf string) (Sent, error) {
	e.ReplyTo, e.Metadata.CorrelationID = a.theirs(e.ReplyTo, e.To), a.theirs(e.Metadata.CorrelationID, e.To)
	if isStep(e.Type) { // who gave the task gets it, whomever else this agent may write to
		return a.sendStep(ctx, e)
	}
	if err := a.addressee(e.To); err != nil {
		return Sent{}, err
	}
	e.Priority = cmp.Or(e.Priority, e.Type.DefaultPriority())
	if e.Type.GivesTask() {
		e.Task = a.giving(e)
		e.Metadata.RequiresAck = true
	}
	if err := a.route(&e, forwardOf); err != nil {
		return Sent{}, err
	}
	if err := mailbox.Validate(e); err != nil {
		return Sent{}, err
	}
	if e.Type.GivesTask() && !e.Task.Deadline.IsZero() && !e.Timestamp.Before(e.Task.Deadline) {
		return Sent{}, mailbox.Invalid("task.deadline", "has passed already")
	}
	if e.Type.GivesTask() && e.Metadata.TTL == nil {
		e.Metadata.TTL = new(taskLife(e))
	}
	if err := a.post(ctx, e); err != nil {
		return Sent{}, err
	}
	return Sent{ID: e.ID, TaskID: taskID(e), ExpiresAt: e.Expires(), Note: a.whereabouts(ctx, e.To, e.Expires())}, nil
}

// taskLife is how many seconds a task waits to be taken: until its deadline, and
// without one as long as its sender waits for news of it. The deadline passes
// first, so that it is what both sides report.
func taskLife(e mailbox.Envelope) int {
	wait := tasks.DefaultSilence
	if !e.Task.Deadline.IsZero() {
		wait = e.Task.Deadline.Sub(e.Timestamp)
	}
	return min(int(wait/time.Second)+1, mailbox.MaxLife)
}

// giving is the task that e gives, as it is given: pending, with an id. Where a
// crash came before the answer to the same e, it is the id of then.
func (a *Agent) giving(e mailbox.Envelope) *mailbox.Task {
	out := mailbox.Task{State: mailbox.Pending}
	if e.Task != nil {
		out.ID, out.Deadline = e.Task.ID, e.Task.Deadline
	}
	if out.ID == "" {
		r, _ := a.gave(e.ID)
		out.ID = cmp.Or(r.ID, "task_"+strings.ToLower(rand.Text()[:12]))
	}
	return &out
}

// addressee reports why nothing may be sent to an agent.
func (a *Agent) addressee(to mailbox.AgentID) error {
	if to == "" {
		return mailbox.Invalid("to", "required: the agent_id of another agent")
	}
	if err := mailbox.CheckAgent(to); err != nil {
		no := asRefusal(err)
		return &mailbox.Error{Code: no.Code, Field: "to", Message: no.Message}
	}
	if to == a.opts.Self {
		return mailbox.Invalid("to", "is this agent itself")
	}
	if !a.delegate(to) {
		return &mailbox.Error{Code: mailbox.Unauthorized,
			Field: "to", Message: fmt.Sprintf("%q is not among ALLOWED_DELEGATES", to)}
	}
	return nil
}

func (a *Agent) delegate(to mailbox.AgentID) bool {
	return a.opts.Delegates == nil || mailbox.InList(a.opts.Delegates, to)
}

// sendStep is for bots that write the envelopes of their tasks' steps themselves.
func (a *Agent) sendStep(ctx context.Context, e mailbox.Envelope) (Sent, error) {
	u := TaskUpdate{TaskID: taskID(e), From: e.To, Parts: e.Content.Parts}
	switch {
	case e.Type == mailbox.TypeTaskComplete:
		u.State = mailbox.Completed
	case e.Type == mailbox.TypeTaskFailed:
		u.State = mailbox.Failed
	case e.Task != nil:
		u.State = e.Task.State
	}
	if u.State == "" {
		u.State = mailbox.Working // it says something, and no more
	}
	r, err := a.update(ctx, u, e.ID)
	if err != nil {
		return Sent{}, err
	}
	return Sent{ID: e.ID, TaskID: r.ID}, nil
}

// SendTask gives a task to another agent.
func (a *Agent) SendTask(ctx context.Context, d TaskDraft) (Sent, error) {
	e := mailbox.Envelope{To: trimmed(d.To), Type: mailbox.TypeTask, Priority: d.Priority, Hops: defaultHops,
		Callback: d.Callback,
		Task:     &mailbox.Task{ID: d.TaskID, Deadline: d.Deadline}}
	if d.Text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: mailbox.PartText, Text: d.Text})
	}
	e.Content.Parts = append(e.Content.Parts, d.Data...)
	return a.Send(ctx, Draft{Envelope: e, ForwardOf: d.ForwardOf})
}

// post counts e and lets it go; a task is noted before.
func (a *Agent) post(ctx context.Context, e mailbox.Envelope) error {
	counts, answered := limited(e.Type), ""
	if answers(e.Type) {
		a.moving.Lock()
		defer a.moving.Unlock()
		answered = a.asked(e)
		counts = answered == ""
	}
	if counts {
		if ok, next := a.pairs.allow(e.To, time.Now()); !ok {
			a.observe(EventRefused, e, string(mailbox.RateLimited))
			return a.tooMany(e.To, next)
		}
	}
	if e.Type.GivesTask() {
		known, added, err := a.ledger.Add(record(tasks.Sent, e.To, e))
		if err == nil && !added && (known.MessageID != e.ID || known.State != mailbox.Pending) {
			err = mailbox.Invalid("task.id", "%s was given a task of this id before; give each task an id of its own", e.To)
		}
		if err != nil {
			a.pairs.takeBack(e.To)
			return err
		}
		a.trace("noted")
	}
	if err := a.send(ctx, e); err != nil {
		if counts {
			a.pairs.takeBack(e.To)
		}
		if e.Type.GivesTask() {
			a.ledger.Forget(e.To, e.Task.ID)
		}
		return err
	}
	a.remember(a.opts.Seen, e.ID, answered)
	return nil
}

// asRefusal is err as a refusal.
func asRefusal(err error) *mailbox.Error {
	if no, ok := errors.AsType[*mailbox.Error](err); ok {
		return no
	}
	return mailbox.Invalid("", "%v", err)
}

// whereabouts is what the sender of a message that expires then should know of
// the receiver.
func (a *Agent) whereabouts(ctx context.Context, to mailbox.AgentID, expires time.Time) string {
	until := ""
	if !expires.IsZero() {
		until = " until " + expires.UTC().Format(time.RFC3339)
	}
	a.cards.forget() // what the bot gets has to be true now
	c, ok, err := a.cards.get(ctx, to)
	switch {
	case err != nil:
		return ""
	case !ok:
		return fmt.Sprintf("no agent %q has registered yet; the message waits for it%s", to, until)
	case c.At(time.Now(), a.opts.HeartbeatTimeout) == mailbox.Offline:
		return fmt.Sprintf("%s is offline; the message waits for it%s", to, until)
	case !c.Allows(a.opts.Self):
		return fmt.Sprintf("%s takes no messages from %s, and will refuse it", to, a.opts.Self)
	case c.Protocol == "" && a.opts.Signing.Secret != "" && !a.opts.Signing.Unsigned:
		return fmt.Sprintf("%s is of another make: without a signature its answer is refused (MAILBOX_UNSIGNED)", to)
	}
	return ""
}

// DeadLetters returns what could not be delivered, the newest first.
func (a *Agent) DeadLetters() ([]outgoing.DeadLetter, error) { return a.out.DeadLetters() }

// Replay sends a dead letter again, as if for the first time. A task of it stays
// failed until its result comes.
func (a *Agent) Replay(ctx context.Context, id string) error { return a.out.Replay(ctx, id) }
