package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"feishu-relay/internal/delivery"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mail is the agent's mailbox.
type mail struct {
	*base
	chats   *chats
	app     *app
	lanes   *lanes
	watch   *watch
	deliver *deliverer
	agent   *agent.Agent
	doors   *mailDoors
}

// openMail returns nil with MAILBOX=off.
func openMail(b *base, ch *chats, a *app, l *lanes, w *watch, d *deliverer, p *presence) (*mail, error) {
	c := b.cfg.Mailbox
	if !c.On {
		return nil, nil
	}
	m := &mail{base: b, chats: ch, app: a, lanes: l, watch: w, deliver: d, doors: newMailDoors(a, d)}
	self := mailbox.AgentID(m.cfg.Agent)
	shared, err := safefile.OpenDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	m.onClose(shared.Close)
	own, err := safefile.OpenSub(shared, string(self))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	m.onClose(own.Close)
	if err := m.lock(own, "lock", c.Dir); err != nil {
		return nil, err
	}
	m.agent, err = agent.New(agent.Options{Self: self, Description: m.cfg.Role, Capabilities: m.cfg.Capabilities,
		AllowFrom: c.AllowFrom,
		Delegates: c.Delegates, MaxTasks: c.MaxTasks, Store: p.store, State: own, Channels: m.doors,
		Signing:   m.signing(),
		Hears:     func(channel, chat string) bool { return m.chats.hears(channel, relay.ChatID(chat)) },
		Heartbeat: c.Heartbeat, HeartbeatTimeout: c.HeartbeatTimeout, AckTimeout: c.AckTimeout, RetryBase: c.RetryBase,
		MaxRetries: c.MaxRetries, MaxExchanges: c.MaxExchanges, Logger: m.log, Trace: m.trace,
		DeliveryTimeout: m.cfg.DeliveryTimeout, MaxAge: m.cfg.MaxAge,
		Failed:  func(part string, err error) { m.problems.set("mailbox "+part, err) },
		Observe: m.watch.mailed,
		Complete: func(c *mailbox.Card) {
			p.complete(c)
			c.Queues = new(m.lanes.queues())
		}})
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	m.onClose(m.agent.Close)
	d.lateMail = m.ackLate
	return m, nil
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
func (m *mail) ackLate(late delivery.Ref) {
	ctx, cancel := context.WithTimeout(context.Background(), ackLateWithin)
	defer cancel()
	if err := m.agent.Ack(ctx, string(late.ID)); err != nil {
		m.log.Warn("mail that was answered late cannot be removed from the inbox", keyMsg, late.Key, keyErr, err)
	}
}
