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

// tidy brings r into the form in which it is kept: what is written is what is read.
func tidy(r Record) Record {
	r.Text, r.Reason = cut(r.Text), cut(r.Reason)
	r.Trace = append([]mailbox.AgentID{}, r.Trace...)
	if r.Callback != nil {
		r.Callback = new(*r.Callback)
	}
	for _, t := range r.times() {
		*t = t.Round(0).UTC()
	}
	return r
}

func (r *Record) times() []*time.Time { return []*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} }

func cut(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	const mark = "…"
	return runes.Cut(text, maxText-len(mark)) + mark
}

// check reports why r is no task that could be kept.
func check(r Record) error {
	if r.Direction != Received && r.Direction != Sent {
		return mailbox.Invalid("direction", "want %s or %s", Received, Sent)
	}
	if err := mailbox.CheckAgent(r.Peer); err != nil {
		if e, ok := errors.AsType[*mailbox.Error](err); ok {
			e.Field = "peer"
		}
		return err
	}
	if !slices.Contains(states, r.State) {
		return mailbox.Invalid("task.state", "want one of %s", join(states, ", "))
	}
	if r.ID == "" {
		return mailbox.Invalid("task.id", "required")
	}
	for _, id := range [][2]string{{"task.id", r.ID}, {"id", r.MessageID}} {
		if len(id[1]) > mailbox.MaxID || !utf8.ValidString(id[1]) {
			return mailbox.Invalid(id[0], "want UTF-8, at most %d bytes", mailbox.MaxID)
		}
	}
	for _, t := range r.times() {
		if y := t.Year(); y < 0 || y > 9999 {
			return mailbox.Invalid("task.deadline", "the year %d is out of range", y)
		}
	}
	return nil
}
