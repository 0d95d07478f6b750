package tasks

import (
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
)

var states = mailbox.TaskStates()

// next is which states may follow one. Working follows itself: that is
// progress. An agent that ends what it had only accepted has worked in between,
// and need not have said so.
var next = map[mailbox.TaskState][]mailbox.TaskState{
	mailbox.Pending:  {mailbox.Accepted, mailbox.Rejected},
	mailbox.Accepted: {mailbox.Working, mailbox.Rejected, mailbox.Completed, mailbox.Failed},
	mailbox.Working:  {mailbox.Working, mailbox.Completed, mailbox.Failed},
}

// Step reports why a task cannot go from one state to another (docs/mailbox.md, Rules), as a
// [*mailbox.Error] about the field "state". It knows nothing of tasks that are
// overdue: see [Ledger.Move].
func Step(from, to mailbox.TaskState) error {
	for _, state := range []mailbox.TaskState{from, to} {
		if !slices.Contains(states, state) {
			return mailbox.Invalid("state", "there is no state %.40q: want one of %s", state, join(states, ", "))
		}
	}
	switch {
	case slices.Contains(next[from], to):
		return nil
	case Terminal(from):
		return mailbox.Invalid("state", "the task is %s, which is its end: it cannot become %s", from, to)
	}
	return mailbox.Invalid("state", "the task is %s and cannot become %s: want %s", from, to, join(next[from], " or "))
}

// Terminal reports whether a task in that state has ended.
func Terminal(state mailbox.TaskState) bool {
	return state == mailbox.Completed || state == mailbox.Failed || state == mailbox.Rejected
}

func join(states []mailbox.TaskState, between string) string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return strings.Join(names, between)
}

// Takes reports whether going to a state changes r, and why it is refused.
func (r *Record) Takes(to mailbox.TaskState, now time.Time) (bool, error) {
	err := Step(r.State, to)
	silent := r.Direction == Sent && r.Overdue && (r.Deadline.IsZero() || now.Before(r.Deadline))
	switch {
	case silent && (to == mailbox.Accepted || to == mailbox.Working):
		return true, nil
	case err == nil, r.Overdue && (to == mailbox.Completed || to == mailbox.Failed):
		return true, nil
	case r.State == to && Terminal(to):
		return false, nil
	case r.Direction == Sent && slices.Contains(states, to): // ahead: nearer to the task's end
		return !Terminal(r.State) && slices.Index(states, to) > slices.Index(states, r.State), nil
	}
	return false, err
}
