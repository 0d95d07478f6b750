// Package tasks keeps the tasks that an agent took from others and gave to
// others, and says which steps a task may take.
package tasks

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
)

// Direction is whether the agent took a task or gave it.
type Direction string

// The directions.
const (
	Received Direction = "received"
	Sent     Direction = "sent"
)

// Record is what is known of a task.
type Record struct {
	ID        string            `json:"id"`
	Direction Direction         `json:"direction"`
	Peer      mailbox.AgentID   `json:"peer"` // who gave it, or who was given it
	State     mailbox.TaskState `json:"state"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Overdue   bool              `json:"overdue,omitempty"` // failed because the deadline passed, or for silence
	Text      string            `json:"text,omitempty"`    // what is to be done, cut
	Reason    string            `json:"reason,omitempty"`  // of the last step: why rejected or failed
	Type      mailbox.Type      `json:"type,omitempty"`    // of the envelope that gave it: task or task_assign
	MessageID string            `json:"message_id"`        // of the envelope that gave it
	Callback  *mailbox.Callback `json:"callback,omitempty"`
	Hops      int               `json:"ttl"`   // of that envelope: forwardings left
	Trace     []mailbox.AgentID `json:"trace"` // of that envelope
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// maxText is the most bytes of a text or reason; the rest is cut off.
const maxText = 4 << 10

// tidy brings r into the form in which it is kept, so that what is written is what is read,
// and returns why it cannot be kept.
func tidy(r Record) (Record, error) {
	r.Text, r.Reason = cut(r.Text), cut(r.Reason)
	r.Trace = append([]mailbox.AgentID{}, r.Trace...)
	if r.Callback != nil {
		r.Callback = new(*r.Callback)
	}
	for _, t := range []*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} {
		if *t = t.Round(0).UTC(); t.Year() < 0 || t.Year() > 9999 {
			return r, mailbox.Invalid("task.deadline", "the year %d is out of range", t.Year())
		}
	}
	peer, _ := errors.AsType[*mailbox.Error](mailbox.CheckAgent(r.Peer))
	switch {
	case r.Direction != Received && r.Direction != Sent:
		return r, mailbox.Invalid("direction", "want %s or %s", Received, Sent)
	case peer != nil:
		return r, mailbox.Invalid("peer", "%s", peer.Message)
	case !r.State.Known():
		return r, mailbox.Invalid("task.state", "want one of %s", join(states, ", "))
	case r.ID == "":
		return r, mailbox.Invalid("task.id", "required")
	}
	for field, id := range map[string]string{"task.id": r.ID, "id": r.MessageID} {
		if len(id) > mailbox.MaxID || !utf8.ValidString(id) {
			return r, mailbox.Invalid(field, "want UTF-8, at most %d bytes", mailbox.MaxID)
		}
	}
	return r, nil
}

func cut(text string) string {
	const mark = "…"
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) > maxText {
		text = runes.Cut(text, maxText-len(mark)) + mark
	}
	return text
}

// open reports whether r has not ended.
func (r *Record) open() bool { return !Terminal(r.State) }

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
		if !state.Known() {
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
	case r.Direction == Sent && to.Known(): // ahead: nearer to the task's end
		return !Terminal(r.State) && slices.Index(states, to) > slices.Index(states, r.State), nil
	}
	return false, err
}
