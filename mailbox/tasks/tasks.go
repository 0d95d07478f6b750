// Package tasks keeps the tasks that an agent took from others and gave to
// others, and says which steps a task may take.
package tasks

import (
	"time"

	"feishu-relay/mailbox"
)

// Direction tells whether the agent took a task or gave it.
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
