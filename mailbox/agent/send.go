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

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/outgoing"
	"feishu-relay/mailbox/tasks"
)

// Send sends an envelope. What is left out is filled in; a repeat of an id that
// was sent is answered the same and sent once. A step of a task that this agent took
// moves that task ([Agent.UpdateTask]); an ack or nack settles waiting mail.
func (a *Agent) Send(ctx context.Context, d Draft) (Sent, error) {
	e := d.Envelope
	if e.From != "" && e.From != a.opts.Self {
		return Sent{}, mailbox.Invalid("from", "this sidecar speaks for %q only", a.opts.Self)
	}
	now := time.Now()
	e.From, e.Timestamp = a.opts.Self, now.UTC()
	e.Type = cmp.Or(e.Type, mailbox.TypeMessage)
	switch e.Type {
	case mailbox.TypeAck:
		return Sent{ID: mailbox.Original(e)}, a.Ack(ctx, mailbox.Original(e))
	case mailbox.TypeNack:
		code, message := mailbox.Refusal(e)
		return Sent{ID: mailbox.Original(e)}, a.Nack(ctx, mailbox.Original(e), code, message)
	}
	if e.ID != "" && a.opts.Seen.Seen("sent/"+e.ID) {
		return Sent{ID: e.ID, TaskID: idOf(e.Task)}, nil
	}
	if err := a.addressee(e.To); err != nil {
		return Sent{}, err
	}
	switch e.Type {
	case mailbox.TypeTaskUpdate, mailbox.TypeTaskComplete, mailbox.TypeTaskFailed:
		return a.sendStep(ctx, e)
	}
	e.ID = cmp.Or(e.ID, mailbox.NewID(a.opts.Self, now))
	e.Priority = cmp.Or(e.Priority, e.Type.DefaultPriority())
	if e.Type.GivesTask() {
		e.Task = giving(e.Task)
		e.Metadata.RequiresAck = true
	}
	if err := a.route(&e, d.ForwardOf); err != nil {
		return Sent{}, err
	}
	if err := check(e); err != nil {
		return Sent{}, err
	}
	if e.Type.GivesTask() && !e.Task.Deadline.IsZero() && !now.Before(e.Task.Deadline) {
		return Sent{}, mailbox.Invalid("task.deadline", "has passed already")
	}
	if err := a.post(ctx, e); err != nil {
		return Sent{}, err
	}
	if err := a.opts.Seen.Add("sent/" + e.ID); err != nil {
		a.log.Warn("a send is not remembered; a repeat of it is sent again", "message_id", e.ID, "err", err)
	}
	return Sent{ID: e.ID, TaskID: idOf(e.Task), Note: a.whereabouts(ctx, e.To)}, nil
}

func idOf(t *mailbox.Task) string {
	if t == nil {
		return ""
	}
	return t.ID
}

// giving is a task as it is given: pending, with an id.
func giving(t *mailbox.Task) *mailbox.Task {
	out := mailbox.Task{State: mailbox.Pending}
	if t != nil {
		out.ID, out.Deadline = t.ID, t.Deadline
	}
	out.ID = cmp.Or(out.ID, "task_"+strings.ToLower(rand.Text()[:12]))
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
		return &mailbox.Error{Code: mailbox.Unauthorized, Field: "to", Message: fmt.Sprintf("%q is not among ALLOWED_DELEGATES", to)}
	}
	return nil
}

func (a *Agent) delegate(to mailbox.AgentID) bool {
	return a.opts.Delegates == nil || slices.Contains(a.opts.Delegates, "*") || slices.Contains(a.opts.Delegates, to)
}

// route sets hops and trace. A message that goes on the errand of another one
// goes on with that one's; anything but an answer may not go where it has been.
func (a *Agent) route(e *mailbox.Envelope, forwardOf string) error {
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
		return mailbox.Invalid("ttl", "no hops left: a message with a ttl of 0 goes nowhere; the default is %d", defaultHops)
	}
	if !e.Type.Answers() && e.ReplyTo == "" && slices.Contains(e.Trace, e.To) {
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

// origin is the task or message that e passes on: the one that is named, or the one of the
// same id that this agent took.
func (a *Agent) origin(e mailbox.Envelope, forwardOf string) (_ origin, found bool, err error) {
	for _, r := range a.ledger.List() {
		if r.Direction == tasks.Received && (forwardOf == "" && e.Task != nil && r.ID == e.Task.ID ||
			forwardOf != "" && (r.ID == forwardOf || r.MessageID == forwardOf)) {
			return origin{r.Hops, r.Trace}, true, nil
		}
	}
	if forwardOf == "" {
		return origin{}, false, nil
	}
	if was, ok := a.handed.Get(forwardOf); ok {
		return was, true, nil
	}
	return origin{}, false, mailbox.Invalid("forward_of", "no message or task %q was received; name the id of one", forwardOf)
}

// sendStep is for bots that write the envelopes of their tasks' steps themselves.
func (a *Agent) sendStep(ctx context.Context, e mailbox.Envelope) (Sent, error) {
	u := TaskUpdate{TaskID: idOf(e.Task), From: e.To}
	switch {
	case e.Type == mailbox.TypeTaskComplete:
		u.State = mailbox.Completed
	case e.Type == mailbox.TypeTaskFailed:
		u.State = mailbox.Failed
	case e.Task != nil:
		u.State = e.Task.State
	}
	u.Parts = e.Content.Parts
	r, id, err := a.update(ctx, u)
	if err != nil {
		return Sent{}, err
	}
	return Sent{ID: cmp.Or(e.ID, id), TaskID: r.ID}, nil
}

// SendTask gives a task to another agent.
func (a *Agent) SendTask(ctx context.Context, d TaskDraft) (Sent, error) {
	e := mailbox.Envelope{To: d.To, Type: mailbox.TypeTask, Priority: d.Priority, Hops: defaultHops, Callback: d.Callback,
		Task: &mailbox.Task{ID: d.TaskID, Deadline: d.Deadline}}
	if d.Text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "text", Text: d.Text})
	}
	e.Content.Parts = append(e.Content.Parts, d.Data...)
	return a.Send(ctx, Draft{Envelope: e, ForwardOf: d.ForwardOf})
}

// post counts e and lets it go; a task is noted before.
func (a *Agent) post(ctx context.Context, e mailbox.Envelope) error {
	if limited(e.Type) {
		if ok, next := a.pairs.allow(e.To, time.Now()); !ok {
			return a.tooMany(e.To, next)
		}
	}
	if e.Type.GivesTask() {
		_, added, err := a.ledger.Add(tasks.Record{ID: e.Task.ID, Direction: tasks.Sent, Peer: e.To, Type: e.Type, State: mailbox.Pending,
			Deadline: e.Task.Deadline, Text: e.Text(), MessageID: e.ID, Callback: e.Callback, Hops: e.Hops, Trace: e.Trace})
		if err == nil && !added {
			err = mailbox.Invalid("task.id", "%s was given a task of this id before; give each task an id of its own", e.To)
		}
		if err != nil {
			a.pairs.takeBack(e.To)
			return err
		}
		a.trace("noted")
	}
	if err := a.send(ctx, e); err != nil {
		if limited(e.Type) {
			a.pairs.takeBack(e.To)
		}
		if e.Type.GivesTask() {
			_, _, _ = a.ledger.Move(tasks.Sent, e.To, e.Task.ID, mailbox.Rejected, "it could not be sent", time.Now())
		}
		return err
	}
	return nil
}

// limited tells the types that count as an exchange of a pair.
func limited(t mailbox.Type) bool {
	switch t {
	case mailbox.TypePing, mailbox.TypeHeartbeat, mailbox.TypeRegister, mailbox.TypeCodeReviewResult, mailbox.TypeTestResult:
		return false
	}
	return !t.Result() && !t.Answers()
}

// limitError is a refusal that says when the next try may succeed.
type limitError struct {
	refusal *mailbox.Error
	after   time.Duration
}

func (e *limitError) Error() string { return e.refusal.Error() }
func (e *limitError) Unwrap() error { return e.refusal }

// RetryAfter is how long to wait.
func (e *limitError) RetryAfter() time.Duration { return e.after }

func (a *Agent) tooMany(to mailbox.AgentID, next time.Time) error {
	return &limitError{&mailbox.Error{Code: mailbox.RateLimited, Message: fmt.Sprintf("%s and %s have exchanged %d messages in %s, the most that is allowed (PEER_MAX_EXCHANGES); "+
		"the next is possible at %s. Results of tasks always go", a.opts.Self, to, a.pairs.most, pairWindow, next.Format("15:04:05"))}, time.Until(next)}
}

// check holds an envelope against the schema.
func check(e mailbox.Envelope) error {
	data, err := mailbox.Encode(e)
	if err != nil {
		return mailbox.Invalid("content", "cannot be written as JSON: %v", err)
	}
	_, err = mailbox.Decode(data)
	return err
}

// asRefusal is err as a refusal.
func asRefusal(err error) *mailbox.Error {
	if no, ok := errors.AsType[*mailbox.Error](err); ok {
		return no
	}
	return mailbox.Invalid("", "%v", err)
}

// whereabouts is what the sender should know of the receiver.
func (a *Agent) whereabouts(ctx context.Context, to mailbox.AgentID) string {
	c, ok, err := a.cards.get(ctx, to)
	switch {
	case err != nil:
		return ""
	case !ok:
		return fmt.Sprintf("no agent %q has registered yet; the message waits for it", to)
	case c.At(time.Now(), a.opts.HeartbeatTimeout) == mailbox.Offline:
		return fmt.Sprintf("%s is offline; the message waits for it", to)
	}
	return ""
}

// DeadLetters returns what could not be delivered, the newest first.
func (a *Agent) DeadLetters() ([]outgoing.DeadLetter, error) { return a.out.DeadLetters() }

// Replay sends a dead letter again, as if for the first time. A task of it is open again.
func (a *Agent) Replay(ctx context.Context, id string) error { return a.out.Replay(ctx, id) }
