package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/book"
	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	keepEnded   = 7 * 24 * time.Hour // how long a task is kept after its end
	maxEnded    = 1000               // ended tasks kept; beyond it the one that ended first is removed
	maxOpen     = 10_000             // tasks that have not ended, taken and given together; a further one is refused
	maxSilence  = 24 * time.Hour     // for which nothing may be heard of a task without a deadline
	maxTaskText = 4 << 10            // bytes of a text, reason or result; the rest is cut off
)

// Direction is whether the agent took a task or gave it.
type Direction string

// The directions.
const (
	Received Direction = "received"
	Given    Direction = "sent"
)

// TaskRecord is what is known of a task.
type TaskRecord struct {
	ID        string            `json:"id"`
	Direction Direction         `json:"direction"`
	Peer      mailbox.AgentID   `json:"peer"` // who gave it, or who was given it
	State     mailbox.TaskState `json:"state"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Overdue   bool              `json:"overdue,omitempty"` // failed because the deadline passed, or for silence
	Text      string            `json:"text,omitempty"`    // what is to be done, cut
	Reason    string            `json:"reason,omitempty"`  // of the last step: why rejected or failed
	Result    string            `json:"result,omitempty"`  // of a completed task, cut
	Type      mailbox.Type      `json:"type,omitempty"`    // of the envelope that gave it: task or task_assign
	MessageID string            `json:"message_id"`        // of the envelope that gave it
	Callback  *mailbox.Callback `json:"callback,omitempty"`
	Hops      int               `json:"ttl"`   // of that envelope: forwardings left
	Trace     []mailbox.AgentID `json:"trace"` // of that envelope
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// task is a task as the book has it.
type task struct {
	TaskRecord
	Said string            `json:"said,omitempty"` // a fingerprint of what this agent sent when it ended the task
	Told mailbox.TaskState `json:"told,omitempty"` // the end that the bot was given of a task that it gave
}

// newTask is a pending task that e gives.
func newTask(dir Direction, peer mailbox.AgentID, e mailbox.Envelope) task {
	now := time.Now().Round(0).UTC()
	t := TaskRecord{ID: e.Task.ID, Direction: dir, Peer: peer, Type: e.Type, State: mailbox.Pending,
		Deadline: e.Task.Deadline, Text: cutText(e.Text()), MessageID: e.ID, Callback: e.Callback, Hops: e.Hops,
		Trace: append([]mailbox.AgentID{}, e.Trace...), CreatedAt: now, UpdatedAt: now}
	return task{TaskRecord: t}
}

// taskKey is a task's key in the book: ids are their givers', so two may give the same one.
func taskKey(dir Direction, peer mailbox.AgentID, id string) string {
	return string(dir) + "/" + string(peer) + "/" + id
}

func (t *task) key() string { return taskKey(t.Direction, t.Peer, t.ID) }

func (t task) record() book.Record { return book.Record{Kind: kindTask, Key: t.key(), Value: t} }

// open reports whether t has not ended.
func (t *task) open() bool { return !t.State.Ended() }

// due is when an open task has run out of time, and an ended one is removed.
func (t *task) due() time.Time {
	if !t.open() {
		return t.UpdatedAt.Add(keepEnded)
	}
	return cmp.Or(t.Deadline, t.UpdatedAt.Add(maxSilence))
}

// moved is t in another state, and whether that changes anything. The text is the result of a
// completed task, else the reason.
//
// A task taken follows [checkStep]. Of a task given, the other agent's word is
// believed as far as it goes on, also when updates in between are missing;
// one that comes late ("accepted" after "completed") changes nothing. In
// either, the state that a task ended in may be repeated, and one that is
// Overdue may still become completed or failed, once: a late result is better
// than a lost one. One that was given up before its deadline goes on when the
// other agent accepts it or works on it.
func (t task) moved(to mailbox.TaskState, text string, now time.Time) (_ task, changes bool, err error) {
	if changes, err = t.takes(to, now); err != nil || !changes {
		return t, false, err
	}
	t.State, t.Reason, t.Result, t.Overdue, t.UpdatedAt = to, cutText(text), "", false, now.Round(0).UTC()
	if to == mailbox.Completed {
		t.Reason, t.Result = "", t.Reason
	}
	return t, true, nil
}

// givenUp is t, failed for a reason that is not the other agent's word: its result still counts.
func (t task) givenUp(reason string, now time.Time) task {
	t.State, t.Reason, t.Overdue, t.UpdatedAt = mailbox.Failed, cutText(reason), true, now.Round(0).UTC()
	return t
}

// takes reports whether going to a state changes t, and why it is refused.
func (t *task) takes(to mailbox.TaskState, now time.Time) (bool, error) {
	err := checkStep(t.State, to)
	silent := t.Direction == Given && t.Overdue && (t.Deadline.IsZero() || now.Before(t.Deadline))
	switch {
	case silent && (to == mailbox.Accepted || to == mailbox.Working):
		return true, nil
	case err == nil, t.Overdue && (to == mailbox.Completed || to == mailbox.Failed):
		return true, nil
	case t.State == to && to.Ended():
		return false, nil
	case t.Direction == Given && to.Known(): // ahead: nearer to the task's end
		return !t.State.Ended() && slices.Index(taskStates, to) > slices.Index(taskStates, t.State), nil
	}
	return false, err
}

func cutText(text string) string {
	const mark = "…"
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) > maxTaskText {
		text = runes.Cut(text, maxTaskText-len(mark)) + mark
	}
	return text
}

var taskStates = mailbox.TaskStates()

// nextStates is which states may follow one. Working follows itself: that is
// progress. An agent that ends what it had only accepted has worked in between,
// and need not have said so.
var nextStates = map[mailbox.TaskState][]mailbox.TaskState{
	mailbox.Pending:  {mailbox.Accepted, mailbox.Rejected},
	mailbox.Accepted: {mailbox.Working, mailbox.Rejected, mailbox.Completed, mailbox.Failed},
	mailbox.Working:  {mailbox.Working, mailbox.Completed, mailbox.Failed},
}

// checkStep reports why a task cannot go from one state to another (docs/mailbox.md, Rules), as a
// [*mailbox.Error] about the field "state". It knows nothing of tasks that are
// overdue: see [task.moved].
func checkStep(from, to mailbox.TaskState) error {
	for _, state := range []mailbox.TaskState{from, to} {
		if !state.Known() {
			return mailbox.Invalid("state", "there is no state %.40q: want one of %s", state, joinStates(taskStates, ", "))
		}
	}
	switch {
	case slices.Contains(nextStates[from], to):
		return nil
	case from.Ended():
		return mailbox.Invalid("state", "the task is %s, which is its end: it cannot become %s", from, to)
	}
	return mailbox.Invalid("state", "the task is %s and cannot become %s: want %s", from, to,
		joinStates(nextStates[from], " or "))
}

func joinStates(states []mailbox.TaskState, between string) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(states), "[]"), " ", between)
}

// ledger is the tasks of the book in memory, by key. [Agent.commit] changes it.
// The Trace and Callback of a task are not to be changed.
type ledger map[string]task

// full is why no further task fits; nil: one does.
func (l ledger) full() *mailbox.Error {
	if open := len(l.list(func(t *task) bool { return t.open() })); open >= maxOpen {
		return mailbox.Refused(mailbox.AgentBusy, "", "%d tasks are open, which is the most: try again when some have ended",
			open)
	}
	return nil
}

// get returns one task.
func (l ledger) get(dir Direction, peer mailbox.AgentID, id string) (task, bool) {
	t, ok := l[taskKey(dir, peer, id)]
	return t, ok
}

// newest returns the newest task that want picks; the zero task: none.
func (l ledger) newest(want func(*task) bool) task {
	return append(l.list(want), task{})[0]
}

// byAge orders tasks, the newest first.
func byAge(x, y task) int {
	return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Peer, y.Peer),
		cmp.Compare(x.Direction, y.Direction))
}

// list returns the tasks that want picks, the newest first.
func (l ledger) list(want func(*task) bool) (all []task) {
	for _, t := range l {
		if want(&t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}

// taken returns the tasks that this agent took and has not ended, the newest first.
func (l ledger) taken() []task {
	return l.list(func(t *task) bool {
		return t.Direction == Received && (t.State == mailbox.Accepted || t.State == mailbox.Working)
	})
}

// due returns the open tasks that have run out of time, those that ended too long ago or are too many, and when
// the next is due; zero: never.
func (l ledger) due(now time.Time) (overdue, old []task, next time.Time) {
	var ended []task
	for _, t := range l.list(func(*task) bool { return true }) {
		switch late := !now.Before(t.due()); {
		case late && t.open():
			overdue = append(overdue, t)
		case late:
			old = append(old, t)
		default:
			next = sooner(next, t.due())
			if !t.open() {
				ended = append(ended, t)
			}
		}
	}
	slices.SortFunc(ended, func(x, y task) int { return x.UpdatedAt.Compare(y.UpdatedAt) })
	old = append(old, ended[:max(0, len(ended)-maxEnded)]...)
	slices.SortFunc(overdue, func(x, y task) int { return x.due().Compare(y.due()) })
	return overdue, old, next
}
