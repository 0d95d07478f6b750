package sidecar

import (
	"time"

	"feishu-relay/mailbox"
)

// MailboxConfig is the mailbox's: direct messages and tasks between agents
// (DESIGN 6). The zero value is one that is off.
type MailboxConfig struct {
	On      bool
	Dir     string // MAILBOX_DIR, the folder of the file backend
	Backend string // "file" or "redis"

	AllowFrom []mailbox.AgentID // whose messages are accepted; nil: everybody's, empty: nobody's
	Delegates []mailbox.AgentID // whom this agent may send to; nil: everybody, empty: nobody
	MaxTasks  int               // tasks at work at once; 0: it takes none

	Heartbeat        time.Duration
	HeartbeatTimeout time.Duration // longer than Heartbeat
	AckTimeout       time.Duration
	RetryBase        time.Duration
	MaxRetries       int
	MaxExchanges     int // messages with one agent in 10 minutes; 0: no limit
}
