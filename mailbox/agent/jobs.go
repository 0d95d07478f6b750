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
	"feishu-relay/mailbox/tasks"
)

// defaultHops is how often a message may be forwarded (DESIGN 6).
const defaultHops = 3

// metaNotice marks, in the metadata of a result, that this side made it: the
// deadline passed, or the task could not be handed over.
const metaNotice = "notice"

// taskID is the id of the task that e is about: a task without one has its message's.
func taskID(e mailbox.Envelope) string {
	if e.Task == nil {
		return e.ID
	}
	return cmp.Or(e.Task.ID, e.ID)
}

// stepKey names a step that ends a task: the bot is told of it once, however
// many envelopes say it.
func stepKey(e mailbox.Envelope) string {
	if e.Task == nil || e.Type.GivesTask() || !tasks.Terminal(e.Task.State) {
		return ""
	}
	return fmt.Sprintf("step/%s/%s/%s", e.From, e.Task.ID, e.Task.State)
}

// takeTask decides about a task, tells who gave it, and lays it ready for the bot
// when it is accepted.
func (a *Agent) takeTask(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	id := taskID(e)
	var deadline time.Time
	if e.Task != nil {
		deadline = e.Task.Deadline
	}
	r, known := a.ledger.Get(tasks.Received, e.From, id)
	if !known {
		r = tasks.Record{ID: id, Direction: tasks.Received, Peer: e.From, Type: e.Type, State: mailbox.Pending, Deadline: deadline,
			Text: e.Text(), MessageID: e.ID, Callback: e.Callback, Hops: e.Hops, Trace: e.Trace}
		if no := a.unacceptable(e, deadline); no != nil {
			return a.reject(ctx, item, e, r, no)
		}
		var err error
		if r, _, err = a.ledger.Add(r); err != nil {
			if full, ok := errors.AsType[*mailbox.Error](err); ok {
				return a.reject(ctx, item, e, r, full)
			}
			return err
		}
	}
	if r.State == mailbox.Pending {
		var err error
		if r, _, err = a.ledger.Move(tasks.Received, e.From, id, mailbox.Accepted, "", time.Now()); err != nil {
			return err
		}
		a.changed()
	}
	a.trace("noted")
	if err := a.send(ctx, a.step(r, r.State, r.Reason, nil, "")); err != nil {
		return err
	}
	if err := a.acknowledge(ctx, e); err != nil {
		return err
	}
	if r.MessageID != e.ID || tasks.Terminal(r.State) { // given again, or over
		return a.handled(ctx, item, e)
	}
	return a.layReady(item, e)
}

// unacceptable is why a task is not taken.
func (a *Agent) unacceptable(e mailbox.Envelope, deadline time.Time) *mailbox.Error {
	if no := a.unwelcome(e); no != nil {
		return no
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return mailbox.Invalid("task.deadline", "the deadline has passed")
	}
	if open := len(a.ledger.Open()); open >= a.opts.MaxTasks {
		return &mailbox.Error{Code: mailbox.AgentBusy, Message: fmt.Sprintf("%s works on %d of %d tasks; try again when one has ended",
			a.opts.Self, open, a.opts.MaxTasks)}
	}
	return nil
}

// reject answers a task that leaves no trace here.
func (a *Agent) reject(ctx context.Context, item mailbox.Item, e mailbox.Envelope, r tasks.Record, no *mailbox.Error) error {
	a.observe(EventRefused, e, string(no.Code)+": "+no.Message)
	if err := a.send(ctx, a.step(r, mailbox.Rejected, no.Message, nil, no.Code)); err != nil {
		return err
	}
	if err := a.acknowledge(ctx, e); err != nil {
		return err
	}
	return a.settle(ctx, item.Key)
}

// step is the envelope that tells who gave r of its state. Either set of types
// drives the life cycle; a task is answered in the set that it came in.
func (a *Agent) step(r tasks.Record, state mailbox.TaskState, text string, parts []mailbox.Part, code mailbox.Code) mailbox.Envelope {
	now := time.Now()
	e := mailbox.Envelope{ID: mailbox.NewID(a.opts.Self, now), From: a.opts.Self, To: r.Peer, Timestamp: now.UTC(), Type: mailbox.TypeTaskUpdate,
		Hops: defaultHops, Trace: []mailbox.AgentID{a.opts.Self}, Task: &mailbox.Task{ID: r.ID, State: state, Deadline: r.Deadline},
		Callback: r.Callback, ReplyTo: r.MessageID, Metadata: mailbox.Metadata{CorrelationID: r.MessageID, RequiresAck: true}}
	if r.Type == mailbox.TypeTaskAssign {
		switch state {
		case mailbox.Completed:
			e.Type = mailbox.TypeTaskComplete
		case mailbox.Failed:
			e.Type = mailbox.TypeTaskFailed
		}
	}
	e.Priority = e.Type.DefaultPriority()
	e.Content.Parts = []mailbox.Part{}
	if code != "" {
		text = string(code) + ": " + text
	}
	if text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "text", Text: text})
	}
	if code != "" {
		data, err := json.Marshal(map[string]mailbox.Code{"code": code})
		if err != nil {
			panic(err) // a string is always JSON
		}
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "data", Data: data})
	}
	e.Content.Parts = append(e.Content.Parts, parts...)
	return e
}

// takeStep notes what another agent says of a task that it was given. The bot
// hears of it where it ends the task or says something; the bare news that it
// was accepted must not wake it.
func (a *Agent) takeStep(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	r, ok := a.given(e)
	if !ok {
		return a.refuse(ctx, item, e, &mailbox.Error{Code: mailbox.TaskNotFound, Field: "task.id",
			Message: fmt.Sprintf("%s gave %s no such task", a.opts.Self, e.From)})
	}
	if e.Task == nil {
		e.Task = &mailbox.Task{}
	}
	e.Task.ID, e.Task.State = r.ID, cmp.Or(e.Task.State, r.State)
	r, _, err := a.ledger.Move(tasks.Sent, e.From, r.ID, e.Task.State, reasonOf(e), time.Now())
	if no, ok := errors.AsType[*mailbox.Error](err); ok {
		return a.refuse(ctx, item, e, no)
	}
	if err != nil {
		return err
	}
	a.trace("noted")
	if e.Metadata.Extra[metaNotice] == nil {
		a.out.Acked(r.MessageID, e.From) // who reports of a task has received it
	}
	if err := a.acknowledge(ctx, e); err != nil {
		return err
	}
	stale := r.State != e.Task.State
	bare := !tasks.Terminal(e.Task.State) && len(e.Content.Parts) == 0
	if stale || bare || a.opts.Seen.Seen(stepKey(e)) {
		return a.handled(ctx, item, e)
	}
	return a.layReady(item, e)
}

// given finds the task that e is about among those that its sender was given.
func (a *Agent) given(e mailbox.Envelope) (tasks.Record, bool) {
	if e.Task != nil && e.Task.ID != "" {
		return a.ledger.Get(tasks.Sent, e.From, e.Task.ID)
	}
	for _, r := range a.ledger.List() {
		if r.Direction == tasks.Sent && r.Peer == e.From && (r.MessageID == e.ReplyTo || r.MessageID == e.Metadata.CorrelationID) {
			return r, true
		}
	}
	return tasks.Record{}, false
}

func reasonOf(e mailbox.Envelope) string {
	if e.Task.State == mailbox.Rejected || e.Task.State == mailbox.Failed {
		return e.Text()
	}
	return ""
}

// conversation is where a result belongs: a conversation that this agent named
// when it gave a task to the sender, or a group that the bot is in. Anything
// else would let another agent speak wherever it likes.
func (a *Agent) conversation(e mailbox.Envelope) *mailbox.Callback {
	if !e.Type.Result() {
		return nil
	}
	wanted := e.Callback
	if wanted == nil {
		if r, ok := a.given(e); ok && e.Task != nil {
			wanted = r.Callback
		}
	}
	if wanted == nil || wanted.Chat() == "" || wanted.Channel == "mailbox" {
		return nil
	}
	offered := slices.ContainsFunc(a.ledger.List(), func(r tasks.Record) bool {
		return r.Direction == tasks.Sent && r.Peer == e.From && r.Callback != nil &&
			r.Callback.Channel == wanted.Channel && r.Callback.Chat() == wanted.Chat()
	})
	if !offered && !a.opts.Hears(wanted.Channel, wanted.Chat()) {
		return nil
	}
	return wanted
}

// UpdateTask moves a task that this agent took, and tells who gave it. The news
// is safe before the step is noted: after a crash in between it is told again.
func (a *Agent) UpdateTask(ctx context.Context, u TaskUpdate) (tasks.Record, error) {
	r, _, err := a.update(ctx, u)
	return r, err
}

func (a *Agent) update(ctx context.Context, u TaskUpdate) (_ tasks.Record, sent string, _ error) {
	a.moving.Lock()
	defer a.moving.Unlock()
	r, err := a.taken(u.TaskID, u.From)
	if err != nil {
		return tasks.Record{}, "", err
	}
	late := r.Overdue && len(u.Text)+len(u.Parts) > 0
	if r.State == u.State && u.State != mailbox.Working && !late {
		return r, "", nil // said again
	}
	if !(r.Overdue && (u.State == mailbox.Completed || u.State == mailbox.Failed)) {
		if err := tasks.Step(r.State, u.State); err != nil {
			return tasks.Record{}, "", err
		}
	}
	e := a.step(r, u.State, u.Text, u.Parts, "")
	if err := check(e); err != nil {
		return tasks.Record{}, "", err
	}
	if err := a.send(ctx, e); err != nil {
		return tasks.Record{}, "", err
	}
	a.trace("told")
	r, _, err = a.ledger.Move(tasks.Received, r.Peer, r.ID, u.State, reasonOf(e), time.Now())
	a.changed()
	return r, e.ID, err
}

// taken finds a task that this agent took.
func (a *Agent) taken(id string, from mailbox.AgentID) (tasks.Record, error) {
	candidates := a.ledger.Open()
	if id != "" {
		candidates = a.ledger.Find(id)
	}
	candidates = slices.DeleteFunc(candidates, func(r tasks.Record) bool {
		return r.Direction != tasks.Received || from != "" && r.Peer != from
	})
	switch {
	case len(candidates) == 1:
		return candidates[0], nil
	case len(candidates) > 1 && id == "":
		return tasks.Record{}, mailbox.Invalid("task_id", "%d tasks are open; name one", len(candidates))
	case len(candidates) > 1:
		return tasks.Record{}, mailbox.Invalid("from", "several agents gave a task of this id; name one")
	case id == "":
		return tasks.Record{}, &mailbox.Error{Code: mailbox.TaskNotFound, Field: "task_id", Message: "no task is open"}
	}
	return tasks.Record{}, &mailbox.Error{Code: mailbox.TaskNotFound, Field: "task_id",
		Message: fmt.Sprintf("%s has taken no task %q", a.opts.Self, id)}
}

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
			if err := a.send(ctx, a.step(r, mailbox.Failed, r.Reason, nil, "")); err != nil {
				a.log.Warn("a deadline that passed is not told; its sender sees it by its own clock", "task_id", r.ID, "err", err)
			}
		}
		if failed != nil {
			return failed
		}
		wait := time.Hour
		if next, ok := a.ledger.NextDue(); ok {
			wait = max(time.Until(next), time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hint:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// giveUp ends a task that could not be handed over. Should it arrive after all,
// its result still counts.
func (a *Agent) giveUp(r tasks.Record, reason string) {
	r, err := a.ledger.GiveUp(r.Peer, r.ID, reason, time.Now())
	if err != nil {
		a.log.Error("a task that came to nothing is not noted", "task_id", r.ID, "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), retryMax)
	defer cancel()
	a.notify(ctx, r)
}

// notify tells the bot that a task it gave has ended without word from the other
// side. It goes the way of all results, so that it is not lost either.
func (a *Agent) notify(ctx context.Context, r tasks.Record) {
	sum := sha256.Sum256([]byte(string(r.Peer) + "\x00" + r.ID))
	const typ = mailbox.TypeTaskFailed
	text := fmt.Sprintf("%s did not finish the task: %s", r.Peer, r.Reason)
	e := mailbox.Envelope{ID: fmt.Sprintf("msg_%d_%s_%s", r.UpdatedAt.UnixMilli(), a.opts.Self, hex.EncodeToString(sum[:6])),
		From: r.Peer, To: a.opts.Self, Timestamp: time.Now().UTC(), Type: typ, Priority: typ.DefaultPriority(), Hops: defaultHops,
		Trace: []mailbox.AgentID{r.Peer}, Task: &mailbox.Task{ID: r.ID, State: r.State, Deadline: r.Deadline},
		Content:  mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: text}}},
		Callback: r.Callback, ReplyTo: r.MessageID,
		Metadata: mailbox.Metadata{CorrelationID: r.MessageID, TTL: new(0), Extra: map[string]json.RawMessage{metaNotice: json.RawMessage("true")}}}
	if err := a.send(ctx, e); err != nil {
		a.log.Error("the bot is not told that a task came to nothing", "task_id", r.ID, "err", err)
	}
}

// resume tells what a crash kept from being told.
func (a *Agent) resume() {
	for _, r := range a.ledger.List() {
		key := fmt.Sprintf("step/%s/%s/%s", r.Peer, r.ID, r.State)
		if r.Direction == tasks.Sent && r.Overdue && !a.opts.Seen.Seen(key) {
			ctx, cancel := context.WithTimeout(context.Background(), lastWords)
			a.notify(ctx, r)
			cancel()
		}
	}
	dead, err := a.out.DeadLetters()
	if err != nil {
		a.log.Warn("dead letters cannot be read", "err", err)
	}
	for _, d := range dead {
		if e := d.Envelope; e.Type.GivesTask() {
			if r, ok := a.ledger.Get(tasks.Sent, e.To, taskID(e)); ok && r.State == mailbox.Pending {
				a.giveUp(r, fmt.Sprintf("%s: %s", d.Code, d.Reason))
			}
		}
	}
}

// Tasks returns the tasks taken and given, the newest first.
func (a *Agent) Tasks() []tasks.Record { return a.ledger.List() }

// Task returns the tasks of that id: it may be given by several, and taken and given.
func (a *Agent) Task(id string) []tasks.Record { return a.ledger.Find(id) }
