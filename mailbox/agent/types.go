package agent

import (
	"time"

	"feishu-relay/mailbox"
)

// Peer is another agent as list_peers shows it (docs/protocol.md 6.7).
type Peer struct {
	AgentID     mailbox.AgentID `json:"agent_id"`
	Description string          `json:"description"`
	Reachable   bool            `json:"reachable"` // allowed by ALLOWED_DELEGATES and alive
	Status      mailbox.Status  `json:"status"`
	Reason      string          `json:"reason,omitempty"` // why a message to it would not arrive
}

// Peers is the answer of list_peers.
type Peers struct {
	Peers []Peer `json:"peers"`
	Note  string `json:"note,omitempty"`
}

// PeerMessage is what send_to_peer is given. To may be "*".
type PeerMessage struct {
	To            mailbox.AgentID `json:"to"`
	Message       string          `json:"message"`
	CorrelationID string          `json:"correlation_id,omitempty"` // a UUID; anything else is left out
}

// PeerResult is the answer of send_to_peer: the goals that got it, and why others did not.
type PeerResult struct {
	DeliveredTo        []string `json:"delivered_to"`
	UnreachableReasons []string `json:"unreachable_reasons"`
}

// Draft is an envelope to send: what is left out is filled in. From may be
// empty or this agent; anybody else is refused.
type Draft struct {
	mailbox.Envelope
	ForwardOf string // id of a message or task received: its hops and trace go on
}

// Sent is the answer to what was accepted for sending.
type Sent struct {
	ID        string    `json:"id"`
	TaskID    string    `json:"task_id,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // until when it can be taken; zero: for ever
	Note      string    `json:"note,omitempty"`      // such as: the receiver is offline, it waits until then
}

// TaskDraft is a task to give to another agent.
type TaskDraft struct {
	To        mailbox.AgentID   `json:"to"`
	Text      string            `json:"text"`
	Data      []mailbox.Part    `json:"parts,omitempty"` // further parts
	TaskID    string            `json:"task_id,omitempty"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Priority  mailbox.Priority  `json:"priority,omitempty"`
	Callback  *mailbox.Callback `json:"callback,omitempty"` // where the result belongs
	ForwardOf string            `json:"forward_of,omitempty"`
}

// TaskUpdate is a step of a task that this agent took.
type TaskUpdate struct {
	TaskID string            `json:"task_id"`        // "": the only open one
	From   mailbox.AgentID   `json:"from,omitempty"` // who gave it; needed where two gave the same id
	State  mailbox.TaskState `json:"state"`
	Text   string            `json:"text,omitempty"` // the result, the reason or the progress
	Parts  []mailbox.Part    `json:"parts,omitempty"`
}

// Mail is a message that waits for the bot.
type Mail struct {
	mailbox.Envelope
	Goal string `json:"goal_id"`
}

// Drained is what read_inbox gives: from then on it counts as delivered.
type Drained struct {
	Messages []Mail `json:"messages"`
	Rendered string `json:"rendered"` // for a model: "# PEER MESSAGES …", escaped; "" when there are none
	Dropped  int    `json:"dropped"`  // older peer messages that the buffer had no room for
	Waiting  int    `json:"waiting"`  // still there, of those that were asked for
}
