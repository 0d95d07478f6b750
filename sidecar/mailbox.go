package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/redisbox"
	"feishu-relay/mcptools"
	"feishu-relay/relay"
)

// mailKeys is how many keys the mailbox remembers at most for each message: that it
// was delivered, under which id, that it asked for a result and has got it, and a rejection.
const mailKeys = 5

// maxSigned is how many signatures of mail are remembered, so that a copy is a
// duplicate; beyond it the oldest is forgotten.
const maxSigned = 50_000

// signing is how mail is signed and verified.
func (s *Sidecar) signing() mailbox.Signing {
	return mailbox.Signing{Secret: string(s.cfg.RelaySecret), Unsigned: s.cfg.Mailbox.Unsigned}
}

// openMailbox opens the agent's mailbox; with MAILBOX=off there is none.
func (s *Sidecar) openMailbox() error {
	c := s.cfg.Mailbox
	if !c.On {
		return nil
	}
	self := mailbox.AgentID(s.cfg.Agent)
	shared, err := safefile.OpenDir(c.Dir)
	if err != nil {
		return fmt.Errorf("MAILBOX_DIR: %w", err)
	}
	s.onClose(shared.Close)
	own, err := safefile.OpenSub(shared, string(self))
	if err != nil {
		return fmt.Errorf("MAILBOX_DIR: %w", err)
	}
	s.onClose(own.Close)
	if err := s.lock(own, "lock", c.Dir); err != nil {
		return err
	}
	store, err := s.openStore()
	if err != nil {
		return err
	}
	s.onClose(store.Close)
	processed, err := s.folder("processed")
	if err != nil {
		return err
	}
	seen, err := dedup.Open(processed, safefile.Name(string(self))+".mail.jsonl", mailKeys*s.cfg.DedupSize)
	if err != nil {
		return err
	}
	s.onClose(seen.Close)
	var signed *dedup.Window
	if s.cfg.RelaySecret != "" {
		if signed, err = dedup.Open(processed, safefile.Name(string(self))+".mail-signed.jsonl", maxSigned); err != nil {
			return err
		}
		s.onClose(signed.Close)
	}
	s.mailDoors = newMailDoors(s)
	s.mail, err = agent.New(agent.Options{Self: self, Description: s.cfg.Role, Capabilities: s.cfg.Capabilities, AllowFrom: c.AllowFrom,
		Delegates: c.Delegates, MaxTasks: c.MaxTasks, Store: store, State: own, Seen: seenMail{seen}, Doors: s.mailDoors,
		Signing: s.signing(), Signed: seenMail{signed},
		Hears:     func(channel, chat string) bool { return s.hears(channel, relay.ChatID(chat)) },
		Heartbeat: c.Heartbeat, HeartbeatTimeout: c.HeartbeatTimeout, AckTimeout: c.AckTimeout, RetryBase: c.RetryBase,
		MaxRetries: c.MaxRetries, MaxExchanges: c.MaxExchanges, Logger: s.log, Trace: s.trace,
		DeliveryTimeout: s.cfg.DeliveryTimeout, MaxAge: s.cfg.MaxAge,
		Failed:  func(part string, err error) { s.problems.set("mailbox "+part, err) },
		Observe: s.mailed, Queues: s.queues})
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	s.onClose(s.mail.Close)
	return nil
}

// mailed tells of what happened to a direct message.
func (s *Sidecar) mailed(e agent.Event) {
	s.metrics.mail.WithLabelValues(string(e.What)).Inc()
	shown := &httpapi.MailEvent{What: string(e.What), ID: e.Envelope.ID, Type: string(e.Envelope.Type),
		From: string(e.Envelope.From), To: string(e.Envelope.To), Reason: e.Reason}
	if t := e.Envelope.Task; t != nil {
		shown.TaskID, shown.State = t.ID, string(t.State)
	}
	s.events.Publish(httpapi.Event{Type: httpapi.EventMail, Mail: shown})
}

// queues is what waits in the relay's queues, for the agent's card.
func (s *Sidecar) queues() (q mailbox.Queues) {
	for _, l := range []*lane{&s.bots, &s.users} {
		st := l.queue.Status()
		q.Lag += st.Lag
		q.Unsettled += st.Unsettled
		q.Outbox += l.box.Stats().Pending
	}
	return q
}

func (s *Sidecar) openStore() (mailbox.Store, error) {
	c := s.cfg.Mailbox
	if c.Backend == "redis" {
		store, err := redisbox.Open(redisbox.Options{URL: string(s.cfg.RedisURL), Logger: s.log, HeartbeatTimeout: c.HeartbeatTimeout,
			Self: mailbox.AgentID(s.cfg.Agent), Signing: s.signing()})
		if err != nil {
			return nil, &setting{fmt.Errorf("mailbox on Redis: %w", err)}
		}
		s.metrics.counter("mailbox_foreign_dropped_total", "Messages on the peer channels of Redis that could not be taken.",
			nil, func() float64 { return float64(store.Dropped()) })
		return store, nil
	}
	if fs := safefile.NetworkFS(c.Dir); fs != "" {
		s.log.Warn("the mailbox folder is on a network file system, where locks and change events are not reliable; set MAILBOX_BACKEND=redis instead",
			"folder", c.Dir, "filesystem", fs)
	}
	return filebox.Open(c.Dir, &filebox.Options{Logger: s.log, Signing: s.signing()})
}

// hears reports whether a conversation is a group that this bot is known to be in.
func (s *Sidecar) hears(channel string, chat relay.ChatID) bool {
	return s.members.enforced() && s.members.in(orDefault(channel), chat)
}

// talkIn is what is known of a conversation. Where no person has spoken yet, its
// kind may be known all the same.
func (s *Sidecar) talkIn(channel string, chat relay.ChatID) talk {
	t, ok := s.talks.get(channel, chat)
	if !ok && channel == relay.DefaultChannel {
		t.ChatType = s.book.Chat(chat).Kind
	}
	return t
}

// seenMail is the window of what was handled, as the mailbox uses it.
type seenMail struct{ window *dedup.Window }

func (s seenMail) Seen(key string) bool { return s.window.Seen(key) }

func (s seenMail) Add(key string) error {
	if s.window.Claim(key) != dedup.New {
		return nil
	}
	if err := s.window.Settle(key, true); err != nil {
		return err
	}
	return s.window.Flush()
}

// runMailbox works until ctx is done.
func (s *Sidecar) runMailbox(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { s.mailDoors.watch(ctx) })
	s.mail.Run(ctx)
	parts.Wait()
}

// whoAmI is what the bot's model may know of itself.
func (s *Sidecar) whoAmI(context.Context) mcptools.Identity {
	self := s.self()
	out := mcptools.Identity{AgentID: mailbox.AgentID(s.cfg.Agent), BotName: self.Name, Description: s.cfg.Role, Capabilities: s.cfg.Capabilities,
		Limits: mcptools.Limits{MaxMessageBytes: mailbox.MaxBody, MaxConcurrentTasks: s.cfg.Mailbox.MaxTasks, MaxExchanges: s.cfg.Mailbox.MaxExchanges}}
	file := s.groups.Current()
	for _, t := range s.talks.list() {
		out.Conversations = append(out.Conversations, mcptools.Conversation{Channel: t.Channel, ChatID: string(t.ChatID), ChatType: t.ChatType,
			Name: file.Groups[string(t.ChatID)].Name, LastMessageAt: time.UnixMilli(int64(t.At)).UTC()})
	}
	return out
}
