package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/sidecar"
)

// mailbox reads what has to do with direct messages between agents. A value is
// looked at also while the mailbox is off: it is a mistake all the same.
func (p *problems) mailbox(e env, c *sidecar.Config) {
	c.Mailbox = sidecar.MailboxConfig{
		On:               p.boolean("MAILBOX", e.Mailbox),
		Dir:              p.dir("MAILBOX_DIR", or(e.MailboxDir, filepath.Join(c.DataDir, "mailboxes"))),
		Backend:          c.Backend,
		AllowFrom:        p.agents("ALLOW_FROM", e.AllowFrom),
		Delegates:        p.agents("ALLOWED_DELEGATES", e.AllowedDelegates),
		MaxTasks:         p.number("MAX_CONCURRENT_TASKS", e.MaxConcurrentTasks, 0, 1000),
		Heartbeat:        p.duration("HEARTBEAT_INTERVAL", e.HeartbeatInterval, 100*time.Millisecond, 10*time.Minute),
		HeartbeatTimeout: p.duration("HEARTBEAT_TIMEOUT", e.HeartbeatTimeout, 100*time.Millisecond, time.Hour),
		AckTimeout:       p.duration("ACK_TIMEOUT", e.AckTimeout, 100*time.Millisecond, time.Hour),
		RetryBase:        p.duration("RETRY_BASE", e.RetryBase, 10*time.Millisecond, time.Minute),
		MaxRetries:       p.number("MAX_RETRIES", e.MaxRetries, 0, 10),
		MaxExchanges:     p.number("PEER_MAX_EXCHANGES", e.PeerMaxExchanges, 0, 10_000),
	}
	m := &c.Mailbox
	if m.On && isAgentName(string(c.Agent)) { // else told already
		if err := mailbox.CheckAgent(mailbox.AgentID(c.Agent)); err != nil {
			*p = append(*p, fmt.Errorf("AGENT_NAME: %s; choose another, or set MAILBOX=off; got %.60q", sentence(err), c.Agent))
		}
	}
	if m.Heartbeat >= m.HeartbeatTimeout {
		*p = append(*p, fmt.Errorf("HEARTBEAT_TIMEOUT: want more than HEARTBEAT_INTERVAL=%s, such as %s; "+
			"else the agent counts as offline between two heartbeats; got %s", m.Heartbeat, 3*m.Heartbeat, m.HeartbeatTimeout))
	}
	if e.MailboxBackend != "" {
		m.Backend = p.oneOf("MAILBOX_BACKEND", e.MailboxBackend, "file", "redis")
		if m.On && m.Backend == "redis" && c.Backend != "redis" && e.RedisURL == "" {
			*p = append(*p, errors.New("REDIS_URL: required by MAILBOX_BACKEND=redis, such as redis://127.0.0.1:6379/0"))
		}
	}
}

// agents reads a list of agents, of which one that ends with * is all whose name
// begins so (mailbox.InList): nil is everybody, an empty one nobody.
func (p *problems) agents(name, value string) []mailbox.AgentID {
	if strings.TrimSpace(value) == "none" {
		return []mailbox.AgentID{}
	}
	names := list(value)
	if len(names) == 0 {
		p.add(name, value, "names of agents with commas between them, res* for all whose name begins so, * for all, or none for nobody")
	}
	everybody := false
	out := make([]mailbox.AgentID, 0, len(names))
	for _, agent := range names {
		if agent == "*" {
			everybody = true
			continue
		}
		if agent == "none" {
			p.add(name, value, "none alone, or names of agents without it")
		} else if err := mailbox.CheckAgent(mailbox.AgentID(strings.TrimSuffix(agent, "*"))); err != nil {
			*p = append(*p, fmt.Errorf("%s: %s; got %.60q", name, sentence(err), agent))
		}
		out = append(out, mailbox.AgentID(agent))
	}
	if everybody {
		return nil
	}
	return out
}

// sentence is what an error of the mailbox says, without its code.
func sentence(err error) string {
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
