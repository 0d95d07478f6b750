package sidecar

import (
	"time"

	"feishu-relay/mailbox"
)

// MailboxConfig configures the mailbox: direct messages and tasks between agents.
// The zero value is a mailbox that is off.
type MailboxConfig struct {
	On  bool   `envconfig:"MAILBOX" default:"on" desc:"direct messages and tasks between agents"`
	Dir string `envconfig:"MAILBOX_DIR" is:"path" unset:"$DATA_DIR/mailboxes" desc:"the mailboxes of all agents"`

	// Gateway brings mail as private chats of Feishu's.
	Gateway bool `envconfig:"MAILBOX_GATEWAY" default:"off" oneof:"off|on" desc:"gives a bot behind the gateway its mail as private chats"`

	// AllowFrom and Delegates: nil is everybody, empty is nobody.
	AllowFrom []mailbox.AgentID `envconfig:"ALLOW_FROM" default:"*" desc:"agents whose mail is accepted; res*: all whose name begins with res; none: nobody"`
	Delegates []mailbox.AgentID `envconfig:"ALLOWED_DELEGATES" default:"*" desc:"agents that this one may write to, as in ALLOW_FROM"`

	MaxTasks         int           `envconfig:"MAX_CONCURRENT_TASKS" default:"3" range:"0..1000" desc:"tasks that the bot works on at a time; 0: none"`
	Heartbeat        time.Duration `envconfig:"HEARTBEAT_INTERVAL" default:"30s" range:"100ms..10m" desc:"how often the agent announces that it is online"`
	HeartbeatTimeout time.Duration `envconfig:"HEARTBEAT_TIMEOUT" default:"90s" range:"100ms..1h" desc:"how long an agent may be silent before it is offline; more than HEARTBEAT_INTERVAL"`
	AckTimeout       time.Duration `envconfig:"ACK_TIMEOUT" default:"30s" range:"100ms..1h" desc:"how long mail waits for its acknowledgement"`
	RetryBase        time.Duration `envconfig:"RETRY_BASE" default:"1s" range:"10ms..1m" desc:"the pause before the first repeat; it doubles each time, up to 60s"`
	MaxRetries       int           `envconfig:"MAX_RETRIES" default:"3" range:"0..10" desc:"repeats of a message before it becomes a dead letter"`
	MaxExchanges     int           `envconfig:"PEER_MAX_EXCHANGES" default:"10" range:"0..10000" desc:"messages between two agents in 10 minutes; 0: no limit"`
}
