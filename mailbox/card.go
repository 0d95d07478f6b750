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
	AllowFrom     []AgentID `json:"allow_from"` // "*": everybody
	MaxTasks      int       `json:"max_concurrent_tasks"`
	CurrentTasks  []string  `json:"current_tasks"` // ids
	Goals         []string  `json:"goals,omitempty"`
	RegisteredAt  time.Time `json:"registered_at"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
}
