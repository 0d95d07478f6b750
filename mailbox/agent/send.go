package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/book"
	"feishu-relay/mailbox"
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
	a.refreshCards(ctx)
	sent, err := a.sendOnce(e, d.ForwardOf)
	if err == nil && !e.Type.TaskStep() {
		sent.Note = a.receiverNote(ctx, e.To, sent.ExpiresAt)
	}
	return sent, err
}

// senderID is the id that a message has for its sender, to, which the bot was given as id.
func (a *Agent) senderID(id string, to mailbox.AgentID) string {
	if m := a.queue.byName[id]; m != nil {
		return m.id
	}
	// Of one that was delivered: an id and the fingerprint behind it ([mailbox.Envelope.UniqueID]).
	if i := strings.LastIndexByte(id, '_'); i > 0 && a.seen(string(to)+"/"+id[:i]+"#"+id[i+1:]) {
		return id[:i]
	}
	return id
}

// sendOnce sends e, unless the bot has sent it under its id before.
func (a *Agent) sendOnce(e mailbox.Envelope, forwardOf string) (Sent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var noted []book.Record
	if e.ID == "" {
		e.ID = mailbox.NewID(a.opts.Self, e.Timestamp)
	} else {
		said, other := sentKey(e.ID)+"#"+e.Fingerprint(), e.UniqueID()
		repeat := a.seen(said)
		if repeat && a.seen(sentKey(other)) || !repeat && a.seen(sentKey(e.ID)) {
			e.ID = other // the bot gave another message this id
		}
		if repeat {
			return Sent{ID: e.ID, TaskID: cmp.Or(taskID(e), a.taskOf(e.ID).ID)}, nil
		}
		noted = marks(kindSeen, said, sentKey(e.ID))
	}
	e.ReplyTo, e.Metadata.CorrelationID = a.senderID(e.ReplyTo, e.To), a.senderID(e.Metadata.CorrelationID, e.To)
	if e.Type.TaskStep() { // who gave the task gets it, whomever else this agent may write to
		return a.sendStep(e, noted)
	}
	if err := a.checkReceiver(e.To); err != nil {
		return Sent{}, err
	}
	if n := e.Metadata.MaxRetries; n != nil && *n > maxRetries {
		return Sent{}, mailbox.Invalid("metadata.maxRetries", "is %d, and %d is the most", *n, maxRetries)
	}
	e.Priority = cmp.Or(e.Priority, e.Type.DefaultPriority())
	if e.Type.GivesTask() {
		e.Task = a.taskToGive(e)
		e.Metadata.RequiresAck = true
	}
	if err := a.route(&e, forwardOf); err != nil {
		return Sent{}, err
	}
	late := e.Type.GivesTask() && passed(e.Task.Deadline)
	if e.Type.GivesTask() && e.Metadata.TTL == nil && !late {
		e.Metadata.TTL = new(taskLife(e))
	}
	m, err := a.opts.Signing.Seal(e) // before it counts as an exchange, and its task is noted
	if err != nil {
		return Sent{}, err
	}
	if late {
		return Sent{}, mailbox.Invalid("task.deadline", "has passed already")
	}
	if err := a.postOwn(m, noted); err != nil {
		return Sent{}, err
	}
	return Sent{ID: e.ID, TaskID: taskID(e), ExpiresAt: e.Expires()}, nil
}

// taskLife is how many seconds a task waits to be taken: until its deadline, and
// without one as long as its sender waits for news of it. The deadline passes
// first, so that it is what both sides report.
func taskLife(e mailbox.Envelope) int {
	wait := maxSilence
	if !e.Task.Deadline.IsZero() {
		wait = e.Task.Deadline.Sub(e.Timestamp)
	}
	return min(int(wait/time.Second)+1, mailbox.MaxLife)
}

// taskToGive is the task that e gives, as it is given: pending, with an id. Where a
// crash came before the answer to the same e, it is the id of then.
func (a *Agent) taskToGive(e mailbox.Envelope) *mailbox.Task {
	out := mailbox.Task{State: mailbox.Pending}
	if e.Task != nil {
		out.ID, out.Deadline = e.Task.ID, e.Task.Deadline
	}
	if out.ID == "" {
		out.ID = cmp.Or(a.taskOf(e.ID).ID, "task_"+strings.ToLower(rand.Text()[:12]))
	}
	return &out
}

// checkReceiver reports why nothing may be sent to an agent.
func (a *Agent) checkReceiver(to mailbox.AgentID) error {
	if to == "" {
		return mailbox.Invalid("to", "required: the agent_id of another agent")
	}
	if to == a.opts.Self {
		return mailbox.Invalid("to", "is this agent itself")
	}
	if !a.delegate(to) {
		return mailbox.Refused(mailbox.Unauthorized, "to", "%q is not among ALLOWED_DELEGATES", to)
	}
	return nil
}

func (a *Agent) delegate(to mailbox.AgentID) bool {
	return a.opts.Delegates == nil || mailbox.InList(a.opts.Delegates, to)
}

// sendStep is for bots that write the envelopes of their tasks' steps themselves.
func (a *Agent) sendStep(e mailbox.Envelope, with []book.Record) (Sent, error) {
	u := TaskUpdate{TaskID: taskID(e), From: e.To, State: e.Type.State(), Parts: e.Content.Parts}
	if e.Task != nil {
		u.State = cmp.Or(u.State, e.Task.State)
	}
	u.State = cmp.Or(u.State, mailbox.Working) // it only reports progress
	r, err := a.update(u, e.ID, with)
	if err != nil {
		return Sent{}, err
	}
	return Sent{ID: e.ID, TaskID: r.ID}, nil
}

// postOwn counts a message of the bot and posts it, with a note of the task that it gives or the question that it
// answers.
func (a *Agent) postOwn(m mailbox.Sealed, with []book.Record) error {
	e, counts := m.Envelope, limited(m.Type)
	if botResult(e.Type) {
		answered := a.asked(e)
		with, counts = append(with, marks(kindSeen, answered)...), answered == ""
	}
	if e.Type.GivesTask() {
		t, known := a.tasks.get(Given, e.To, e.Task.ID)
		if known && (t.MessageID != e.ID || t.State != mailbox.Pending) {
			return mailbox.Invalid("task.id", "%s was given a task of this id before; give each task an id of its own", e.To)
		}
		if full := a.tasks.full(); full != nil {
			return full
		}
		if !known {
			with = append(with, newTask(Given, e.To, e).record())
		}
	}
	if counts {
		counted, err := a.countExchange(e.To, e.ID)
		if err != nil {
			a.observe(EventRefused, e, string(mailbox.RateLimited))
			return err
		}
		with = append(with, counted...)
	}
	return a.post(m, with...)
}

// asRefusal is err as a refusal.
func asRefusal(err error) *mailbox.Error {
	if no, ok := errors.AsType[*mailbox.Error](err); ok {
		return no
	}
	return mailbox.Invalid("", "%v", err)
}

// receiverNote is what the sender of a message that expires then should know of
// the receiver.
func (a *Agent) receiverNote(ctx context.Context, to mailbox.AgentID, expires time.Time) string {
	if a.whyNot(to, expires) == "" {
		return ""
	}
	a.forgetCards() // what keeps a message has to be true now
	a.refreshCards(ctx)
	return a.whyNot(to, expires)
}

// whyNot is what keeps a message from an agent, as far as is known.
func (a *Agent) whyNot(to mailbox.AgentID, expires time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := ""
	if !expires.IsZero() {
		until = " until " + expires.UTC().Format(time.RFC3339)
	}
	switch c := cardOf(a.cards, to); {
	case a.cards == nil:
		return ""
	case c == nil:
		return fmt.Sprintf("no agent %q has registered yet; the message waits for it%s", to, until)
	case !a.online(to):
		return fmt.Sprintf("%s is offline; the message waits for it%s", to, until)
	case !c.Allows(a.opts.Self):
		return fmt.Sprintf("%s takes no messages from %s, and will refuse it", to, a.opts.Self)
	case c.Protocol == "" && a.opts.Signing.Secret != "":
		return fmt.Sprintf("%s uses a mailbox of another program: without a signature its answer is refused "+
			"(RELAY_SECRET)", to)
	}
	return ""
}

// route sets hops and trace. A message that forwards another one
// continues that one's; anything but an answer may not go where it has been.
func (a *Agent) route(e *mailbox.Envelope, forwardOf string) error {
	if forwardOf == "" && a.asksGiver(*e) { // also where the bot repeats the hops and trace that the task came with
		e.Hops, e.Trace = mailbox.DefaultHops, nil
	}
	was, forwards, err := a.origin(*e, forwardOf)
	if err != nil {
		return err
	}
	if forwards {
		if was.hops <= 0 {
			return mailbox.Invalid("ttl", "the message has no hops left: it may not be forwarded")
		}
		e.Hops, e.Trace = was.hops-1, slices.Clone(was.trace)
	} else if e.Hops <= 0 {
		return mailbox.Invalid("ttl", "no hops left: a message with a ttl of 0 goes nowhere; the default is %d",
			mailbox.DefaultHops)
	}
	if !e.Type.Answers() && (forwards || e.ReplyTo == "") && slices.Contains(e.Trace, e.To) {
		return mailbox.Invalid("trace", "%s had it before: it would go in a circle", e.To)
	}
	if len(e.Trace) == 0 || e.Trace[len(e.Trace)-1] != a.opts.Self {
		e.Trace = append(slices.Clone(e.Trace), a.opts.Self)
	}
	return nil
}

// origin is what a message was that is passed on.
type origin struct {
	hops  int
	trace []mailbox.AgentID
}

// asksGiver reports whether e is a message about a task to the agent that gave it.
func (a *Agent) asksGiver(e mailbox.Envelope) bool {
	if e.Task == nil || e.Type.GivesTask() {
		return false
	}
	_, took := a.tasks.get(Received, e.To, e.Task.ID)
	return took
}

// origin is the task or message that e passes on: the one that is named, or where
// e gives a task the one of the same id that this agent took.
func (a *Agent) origin(e mailbox.Envelope, forwardOf string) (_ origin, found bool, err error) {
	if forwardOf == "" && (e.Task == nil || !e.Type.GivesTask()) {
		return origin{}, false, nil
	}
	r := a.tasks.newest(func(r *task) bool {
		return r.Direction == Received && (forwardOf == "" && r.ID == e.Task.ID ||
			forwardOf != "" && (r.ID == forwardOf || mailbox.Names(forwardOf, r.MessageID)))
	})
	if r.ID != "" || forwardOf == "" {
		return origin{r.Hops, r.Trace}, r.ID != "", nil
	}
	if was, ok := a.forwardable.Get(forwardOf); ok {
		return was, true, nil
	}
	return origin{}, false, mailbox.Invalid("forward_of", "no message or task %q was received; name the id of one",
		forwardOf)
}
