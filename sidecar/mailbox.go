package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/internal/delivery"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mailKeys is how many keys the mailbox remembers at most for each message: that it was delivered, under which id, that
// the bot did not answer, that it asked for a result and has got it, a rejection, and what was said at a task's end.
const mailKeys = 7

// maxSigned is how many signatures of mail are remembered, so that a copy is a
// duplicate; beyond it the oldest is forgotten.
const maxSigned = 50_000

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
	seen, err := b.window(".mail.jsonl", mailKeys*m.cfg.DedupSize)
	if err != nil {
		return nil, err
	}
	var signed *dedup.Window
	if m.cfg.RelaySecret != "" {
		if signed, err = b.window(".mail-signed.jsonl", maxSigned); err != nil {
			return nil, err
		}
	}
	m.agent, err = agent.New(agent.Options{Self: self, Description: m.cfg.Role, Capabilities: m.cfg.Capabilities,
		AllowFrom: c.AllowFrom,
		Delegates: c.Delegates, MaxTasks: c.MaxTasks, Store: p.store, State: own, Seen: seenMail{seen}, Channels: m.doors,
		Signing: m.signing(), Signed: seenMail{signed},
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

// seenMail is the window of what was handled, as the mailbox uses it.
type seenMail struct{ window *dedup.Window }

func (s seenMail) Seen(key string) bool { return s.window.Seen(key) }

func (s seenMail) Add(keys ...string) (err error) {
	for _, key := range keys {
		if s.window.Claim(key) == dedup.New {
			err = errors.Join(err, s.window.Settle(key, true))
		}
	}
	return errors.Join(err, s.window.Flush())
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
