package mailbox

import "time"

// AgentID names an agent. [CheckAgent] tells which names are possible.
type AgentID string

// Status is what an agent can do now.
type Status string

// The statuses. A busy agent still takes messages, and tasks while it has room.
const (
	Idle    Status = "idle"
	Busy    Status = "busy"
	Offline Status = "offline"
)

// Card is an agent's entry in the registry.
type Card struct {
	AgentID       AgentID   `json:"agent_id"`
	Description   string    `json:"description"`
	Capabilities  []string  `json:"capabilities"`
	Status        Status    `json:"status"`
	AllowFrom     []AgentID `json:"allow_from"` // see InList
	MaxTasks      int       `json:"max_concurrent_tasks"`
	CurrentTasks  []string  `json:"current_tasks"` // ids
	Goals         []string  `json:"goals,omitempty"`
	RegisteredAt  time.Time `json:"registered_at"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	Queues        *Queues   `json:"queues,omitempty"` // nil: the agent does not tell
	// Protocol is the version of the mailbox protocol that the agent's mailbox
	// speaks: it handles acks, nacks and bare steps of tasks itself. An agent
	// without it may hand everything in its inbox to its model.
	Protocol string `json:"protocol,omitempty"`
}

// Protocol is the version of the mailbox protocol that this program speaks.
const Protocol = "1.1"

// Queues is what waits at an agent's sidecar, as of its last heartbeat.
type Queues struct {
	Lag            int64 `json:"lag"`            // of the relay, to be read: bytes of a file, entries of a stream
	Unsettled      int   `json:"unsettled"`      // relay messages read, and not delivered or stopped yet
	Outbox         int64 `json:"outbox"`         // own relay messages that the backend does not have yet
	Inbox          int   `json:"inbox"`          // direct messages that the agent has not taken
	Unacknowledged int   `json:"unacknowledged"` // direct messages sent and not acknowledged
}
