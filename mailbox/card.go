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
	// Sidecar is what the agent's sidecar is set to; nil: it does not tell, or there is none.
	Sidecar *Settings `json:"sidecar,omitempty"`
}

// TellsSettings reports whether c's sidecar says what it is set to; older ones do not.
func (c *Card) TellsSettings() bool { return c.Sidecar != nil && c.Sidecar.Backend != "" }

// Settings are those of a sidecar that the other sidecars of its groups should have, too. None
// is a secret.
type Settings struct {
	Version      string `json:"version,omitempty"`
	Secret       string `json:"secret,omitempty"` // the fingerprint of RELAY_SECRET; "": there is none
	Backend      string `json:"backend,omitempty"`
	RelayChannel string `json:"relay_channel,omitempty"`
	RelayDir     Folder `json:"relay_dir,omitzero"`
	Transcripts  Folder `json:"transcript_dir,omitzero"`
	MaxDepth     int    `json:"max_bot_reply_depth"`
	Threshold    int    `json:"bot_reply_llm_threshold"`
	Check        bool   `json:"bot_reply_llm_check"`
	DepthCount   string `json:"bot_reply_depth_count,omitempty"`
	MaxAge       int64  `json:"relay_max_age_ms,omitempty"`
}

// Meets reports whether two sidecars read and write the same queue of bots' messages.
func (s *Settings) Meets(o *Settings) bool {
	return s.Backend == o.Backend && s.RelayChannel == o.RelayChannel && s.RelayDir.Same(o.RelayDir)
}

// Folder is a folder as its sidecar sees it.
type Folder struct {
	Path string `json:"path,omitempty"`
	ID   string `json:"id,omitempty"` // the same for one folder of a host, under whatever path; "": not known
}

// Same reports whether f and o are one folder, by their ids if these are known, else by their paths.
func (f Folder) Same(o Folder) bool {
	if f.ID != "" && o.ID != "" {
		return f.ID == o.ID
	}
	return f.Path == o.Path
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
