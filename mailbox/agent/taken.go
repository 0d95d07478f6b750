package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// stepLife is how long a step of a task waits for who gave it: as long as that
// one knows the task. The usual hour is too short for a machine that is shut down
// over night.
const stepLife = 7 * 24 * time.Hour

// metaOverdue marks, in the metadata of a task's failure, that the deadline
// passed here and the bot said nothing: its result may still come.
const metaOverdue = "overdue"

// taskID is the id of the task that e, one of the types about tasks, is about.
func taskID(e mailbox.Envelope) string {
	if e.Task == nil {
		return ""
	}
	return e.Task.ID
}

// record is the ledger's record of the task that e gives.
func record(dir tasks.Direction, peer mailbox.AgentID, e mailbox.Envelope) tasks.Record {
	return tasks.Record{ID: e.Task.ID, Direction: dir, Peer: peer, Type: e.Type, State: mailbox.Pending, Deadline: e.Task.Deadline,
		Text: e.Text(), MessageID: e.ID, Callback: e.Callback, Hops: e.Hops, Trace: e.Trace}
}

// takeTask decides about a task, answers who gave it, and makes it ready for the bot
// when it is accepted.
func (a *Agent) takeTask(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	id := taskID(e)
	r, known := a.ledger.Get(tasks.Received, e.From, id)
	switch {
	case !known:
		r = record(tasks.Received, e.From, e)
		if no := a.unacceptable(e); no != nil {
			return a.reject(ctx, item, e, r, no)
		}
		if a.opts.Seen.Seen(rejectedItem(item)) {
			return a.reject(ctx, item, e, r, &mailbox.Error{Code: mailbox.AgentBusy, Message: rejectedBefore})
		}
		var err error
		if r, _, err = a.ledger.Add(r); err != nil {
			if full, ok := errors.AsType[*mailbox.Error](err); ok {
				return a.reject(ctx, item, e, r, full)
			}
			return err
		}
	case a.rejectedBefore(r):
		var err error
		if r, err = a.UpdateTask(ctx, TaskUpdate{TaskID: id, From: e.From, State: mailbox.Rejected, Text: rejectedBefore}); err != nil {
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
	again, over := r.MessageID != e.ID, tasks.Terminal(r.State)
	if again || !over { // else the end itself was sent, with what the bot said
		if err := a.answer(ctx, a.stepFor(ctx, a.step(r, r.State, r.Reason, nil, ""))); err != nil {
			return err
		}
	}
	if again || over {
		return a.finish(ctx, item, e, EventControl, "", a.receipt(e))
	}
	if err := a.answer(ctx, a.receipt(e)); err != nil {
		return err
	}
	return a.makeReady(item, e)
}

// unacceptable is why a task is not taken.
func (a *Agent) unacceptable(e mailbox.Envelope) *mailbox.Error {
	if no := a.unwelcome(e); no != nil {
		return no
	}
	now := time.Now()
	if deadline := e.Task.Deadline; !deadline.IsZero() && !now.Before(deadline) {
		return mailbox.Invalid("task.deadline", "the deadline has passed")
	}
	if expires := e.Expires(); !expires.IsZero() && !now.Before(expires) {
		return mailbox.Invalid("metadata.ttl", "its life in seconds is over")
	}
	if open := len(a.ledger.Open()); open >= a.opts.MaxTasks {
		return &mailbox.Error{Code: mailbox.AgentBusy, Message: fmt.Sprintf("%s works on %d of %d tasks; try again when one has ended",
			a.opts.Self, open, a.opts.MaxTasks)}
	}
	return nil
}

// rejectedBefore is the reason that the giver of a task gets where a crash lost
// the one that it was rejected for.
const rejectedBefore = "it was rejected before a restart"

// rejectedBefore reports whether a crash kept the rejection of r from being noted.
func (a *Agent) rejectedBefore(r tasks.Record) bool {
	return r.State == mailbox.Accepted && a.opts.Seen.Seen(rejectedKey(r))
}

// noteRejection is called before the giver gets the answer, with rejectedKey or rejectedItem.
func (a *Agent) noteRejection(r tasks.Record, key string) {
	a.remember(a.opts.Seen, r.MessageID, key)
	a.trace("rejecting")
}

// reject answers a task that the ledger does not keep.
func (a *Agent) reject(ctx context.Context, item mailbox.Item, e mailbox.Envelope, r tasks.Record, no *mailbox.Error) error {
	a.noteRejection(r, rejectedItem(item))
	if err := a.answer(ctx, new(a.step(r, mailbox.Rejected, no.Message, nil, no.Code))); err != nil {
		return err
	}
	a.trace("told")
	return a.finish(ctx, item, e, EventRefused, refusalReason(no), a.receipt(e))
}

// stepType is the type of the envelope about a state. Either set of types drives the
// life cycle; a task is answered in the set that it came in.
func stepType(gave mailbox.Type, state mailbox.TaskState) mailbox.Type {
	switch {
	case gave == mailbox.TypeTaskAssign && state == mailbox.Completed:
		return mailbox.TypeTaskComplete
	case gave == mailbox.TypeTaskAssign && state == mailbox.Failed:
		return mailbox.TypeTaskFailed
	}
	return mailbox.TypeTaskUpdate
}

// step is the envelope about r's state for the agent that gave it.
func (a *Agent) step(r tasks.Record, state mailbox.TaskState, text string, parts []mailbox.Part, code mailbox.Code) mailbox.Envelope {
	now := time.Now()
	e := mailbox.Envelope{ID: mailbox.NewID(a.opts.Self, now), From: a.opts.Self, To: r.Peer, Timestamp: now.UTC(), Type: stepType(r.Type, state),
		Hops: defaultHops, Trace: []mailbox.AgentID{a.opts.Self}, Task: &mailbox.Task{ID: r.ID, State: state, Deadline: r.Deadline},
		Callback: r.Callback, ReplyTo: r.MessageID,
		Metadata: mailbox.Metadata{CorrelationID: r.MessageID, RequiresAck: true, TTL: new(int(stepLife / time.Second))}}
	e.Priority = e.Type.DefaultPriority()
	e.Content.Parts = []mailbox.Part{}
	if code != "" {
		text = string(code) + ": " + text
	}
	if text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: mailbox.PartText, Text: text})
	}
	if code != "" {
		data, err := json.Marshal(map[string]mailbox.Code{"code": code})
		if err != nil {
			panic(err) // a string is always JSON
		}
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: mailbox.PartData, Data: data})
	}
	e.Content.Parts = append(e.Content.Parts, parts...)
	return e
}

// stepFor is a step as the mailbox of who gave the task gets it. One of another make hands
// all its mail to its model: it gets no step that says nothing (nil), and each other one
// with a text.
func (a *Agent) stepFor(ctx context.Context, e mailbox.Envelope) *mailbox.Envelope {
	card, ok, err := a.cards.get(ctx, e.To)
	if err == nil && ok && card.Protocol == "" && strings.TrimSpace(e.Text()) == "" {
		if silent(e) {
			return nil
		}
		says := fmt.Sprintf("%s: task %s is %s.", e.From, e.Task.ID, e.Task.State)
		e.Content.Parts = slices.Insert(slices.Clone(e.Content.Parts), 0, mailbox.Part{Type: mailbox.PartText, Text: says})
	}
	return &e
}

// silent reports whether a step says nothing but that the task goes on.
func silent(e mailbox.Envelope) bool {
	said := slices.ContainsFunc(e.Content.Parts, func(p mailbox.Part) bool { return p.Type != mailbox.PartText })
	return !said && !tasks.Terminal(e.Task.State) && strings.TrimSpace(e.Text()) == ""
}

// UpdateTask moves a task that this agent took, and sends that to who gave it. The news
// is safe before the step is noted: after a crash in between it is sent again.
func (a *Agent) UpdateTask(ctx context.Context, u TaskUpdate) (tasks.Record, error) {
	return a.update(ctx, u, "")
}

// update is UpdateTask with an id for the news; "": a new one.
func (a *Agent) update(ctx context.Context, u TaskUpdate, id string) (tasks.Record, error) {
	a.moving.Lock()
	defer a.moving.Unlock()
	r, err := a.taken(u.TaskID, u.From)
	if err != nil {
		return tasks.Record{}, err
	}
	late := r.Overdue && len(u.Text)+len(u.Parts) > 0
	if r.State == u.State && u.State != mailbox.Working && !late {
		return r, nil // a repeat
	}
	e := a.step(r, u.State, u.Text, u.Parts, "")
	e.ID = cmp.Or(id, e.ID)
	if _, err = r.Takes(u.State, time.Now()); err == nil {
		err = mailbox.Validate(e)
	}
	if err != nil {
		return tasks.Record{}, err
	}
	if u.State == mailbox.Rejected {
		a.noteRejection(r, rejectedKey(r))
	}
	if step := a.stepFor(ctx, e); step != nil {
		if err := a.send(ctx, *step); err != nil {
			return tasks.Record{}, err
		}
	}
	a.trace("told")
	r, _, err = a.ledger.Move(tasks.Received, r.Peer, r.ID, u.State, reasonOf(e), time.Now())
	a.changed()
	if tasks.Terminal(r.State) {
		a.ready.reopen(r.Peer, r.MessageID)
	}
	return r, err
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
