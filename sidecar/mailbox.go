package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mail is the agent's mailbox.
type mail struct {
	*Sidecar
	agent *agent.Agent
	doors *mailDoors
}

func (s *Sidecar) openMail() error {
	b, c := s.base, s.cfg.Mailbox
	if !c.On {
		return nil
	}
	m, p := &mail{Sidecar: s}, s.presence
	m.doors = newMailDoors(m)
	self := mailbox.AgentID(m.cfg.Agent)
	shared, err := safefile.OpenDir(c.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	m.onClose(shared.Close)
	own, err := safefile.OpenSub(shared, string(self))
	if err != nil {
		return fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	m.onClose(own.Close)
	m.agent, err = agent.New(agent.Options{Self: self, Description: m.cfg.Role, Capabilities: m.cfg.Capabilities,
		AllowFrom: c.AllowFrom,
		Delegates: c.Delegates, MaxTasks: c.MaxTasks, Store: p.store, State: own, Channels: m.doors,
		Signing: m.signing(),
		Hears: func(channel, chat string) bool {
			return m.chats.enforced() && m.in(channel, relay.ChatID(chat))
		},
		Heartbeat: c.Heartbeat, HeartbeatTimeout: c.HeartbeatTimeout, AckTimeout: c.AckTimeout, RetryBase: c.RetryBase,
		MaxRetries: c.MaxRetries, MaxExchanges: c.MaxExchanges, Logger: m.log, Trace: m.trace,
		DeliveryTimeout: m.cfg.DeliveryTimeout, MaxAge: m.cfg.MaxAge,
		Failed:  func(part string, err error) { m.problems.set("mailbox "+part, err) },
		Observe: m.mailed,
		Complete: func(c *mailbox.Card) {
			p.complete(c)
			c.Queues = new(m.queues())
		}})
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	m.onClose(m.agent.Close)
	s.mail = m
	return nil
}

// run works until ctx is done.
func (m *mail) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { m.doors.watch(ctx) })
	m.agent.Run(ctx)
	parts.Wait()
}

// ackLateWithin bounds the work for a late answer to mail, whose store may be away.
const ackLateWithin = 30 * time.Second

// ackLate takes mail out of the inbox whose answer came late. Where that fails the
// mail stays there and is not handed over again.
func (m *mail) ackLate(id relay.MessageID) {
	ctx, cancel := context.WithTimeout(context.Background(), ackLateWithin)
	defer cancel()
	if err := m.agent.Ack(ctx, string(id)); err != nil {
		m.log.Warn("mail that was answered late cannot be removed from the inbox", keyMsg, id, keyErr, err)
	}
}

// queues is what waits in the relay's queues, for the agent's card.
func (s *Sidecar) queues() (q mailbox.Queues) {
	waits, _ := s.deliveryCounts()
	q.Unsettled = waits.Items
	for _, name := range laneNames[:2] {
		st := s.lanes[name].Status()
		q.Lag += st.Lag
		q.Unsettled += st.Unsettled
		q.Outbox += s.core.Lane(name).Pending
	}
	return q
}
