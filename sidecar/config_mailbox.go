package sidecar

import (
	"time"

	"feishu-relay/mailbox"
)

// MailboxConfig configures the mailbox: direct messages and tasks between agents.
// The zero value is a mailbox that is off.
type MailboxConfig struct {
	On      bool   `envconfig:"MAILBOX" default:"on" desc:"direct messages and tasks between agents: on or off"`
	Backend string `envconfig:"MAILBOX_BACKEND" oneof:"file|redis" desc:"file or redis; default: as RELAY_BACKEND"`
	Dir     string `envconfig:"MAILBOX_DIR" is:"path" desc:"the agents' mailboxes, shared by all; default: $DATA_DIR/mailboxes"`

	// Gateway brings mail as private chats of Feishu's; Explicit leaves the end of a task to update_task.
	Gateway  bool `envconfig:"MAILBOX_GATEWAY" default:"off" oneof:"off|on" desc:"on: a bot behind the gateway gets mail as private chats with the other agents, and answers there"`
	Explicit bool `envconfig:"MAILBOX_GATEWAY_DONE" default:"answer" oneof:"answer|explicit" desc:"what completes a task there: the bot's first finished answer, or explicit: only update_task"`

	// Unsigned takes mail without a signature, with a RelaySecret.
	Unsigned bool `envconfig:"MAILBOX_UNSIGNED" default:"refuse" oneof:"refuse|allow" desc:"with RELAY_SECRET, mail without a signature: refuse, or allow for programs of other makes"`
	// AllowFrom and Delegates: nil is everybody, empty is nobody.
	AllowFrom []mailbox.AgentID `envconfig:"ALLOW_FROM" default:"*" desc:"comma list of agents whose direct messages are accepted; res*: all whose name begins so, *: all, none: nobody's"`
	Delegates []mailbox.AgentID `envconfig:"ALLOWED_DELEGATES" default:"*" desc:"comma list of agents this one may send to; res*: all whose name begins so, *: all, none: nobody"`

	MaxTasks         int           `envconfig:"MAX_CONCURRENT_TASKS" default:"3" range:"0..1000" desc:"tasks of others accepted at once; 0: none"`
	Heartbeat        time.Duration `envconfig:"HEARTBEAT_INTERVAL" default:"30s" range:"100ms..10m" desc:"how often the agent tells that it is there"`
	HeartbeatTimeout time.Duration `envconfig:"HEARTBEAT_TIMEOUT" default:"90s" range:"100ms..1h" desc:"an agent not heard of for so long counts as offline"`
	AckTimeout       time.Duration `envconfig:"ACK_TIMEOUT" default:"30s" range:"100ms..1h" desc:"a direct message not acknowledged for so long is sent again"`
	RetryBase        time.Duration `envconfig:"RETRY_BASE" default:"1s" range:"10ms..1m" desc:"the pause before it is; doubles each time, at most 60s"`
	MaxRetries       int           `envconfig:"MAX_RETRIES" default:"3" range:"0..10" desc:"how often it is, before it becomes a dead letter"`
	MaxExchanges     int           `envconfig:"PEER_MAX_EXCHANGES" default:"10" range:"0..10000" desc:"messages between two agents in 10 minutes; one result for each task or question is exempt; 0: no limit"`
}
