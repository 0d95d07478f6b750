package sidecar

import (
	"context"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
)

// How long a bot's message that Feishu delivered itself waits for the relay's
// copy of it, which has the final text where the native event may hold a
// placeholder or a card's first draft (docs/feishu.md 3.4).
const (
	waitHeard     = time.Minute      // from a bot that the relay was heard of before
	waitStreaming = 10 * time.Minute // its card is still being written; Feishu ends that after as long
	waitText      = 3 * time.Second  // texts and posts of other bots
	waitCard      = time.Minute      // their cards
)

// metaNative marks a spooled message; it stays in the sidecar.
const metaNative = "feishu_relay_native"

// What a spooled message is.
const (
	nativeText      = "text"
	nativeCard      = "card"
	nativeStreaming = "streaming"
	nativePerson    = "person" // a person's; the connector's
)

func nativeKind(m feishu.Message, streaming bool) string {
	switch {
	case streaming:
		return nativeStreaming
	case m.Type == "interactive":
		return nativeCard
	}
	return nativeText
}

// nativeSpool is the queue of what Feishu's events brought: acknowledged to
// Feishu, on disk here, and not dealt with yet.
type nativeSpool struct {
	queue  *filerelay.Queue
	bots   way
	people way
	wait   *chats // per chat and sender, so that a card that is awaited holds up nobody else
	copies *copies
	passed *lru.Cache[string, struct{}] // messages that the bot has from Feishu, though they are stored here
}

// nativesWay is the way of another bot's message that Feishu delivered itself.
func (s *Sidecar) nativesWay() way {
	return way{queue: nativeQueue,
		arrive: relay.Pipeline[*passage]{
			{Name: "final", Apply: s.stopUnfinished},
			{Name: ownStage, Apply: s.stopOwn},
			{Name: "member", Apply: s.stopOtherChats},
			{Name: "dedup", Apply: s.stopRepeats},
			{Name: "transcript", Apply: s.record},
		},
		decide: s.botsWay().decide,
	}
}

// peoplesWay is the way of a person's message that the connector received: the
// policy is for bots, and a private chat leaves no trace.
func (s *Sidecar) peoplesWay() way {
	return way{queue: nativeQueue,
		arrive: relay.Pipeline[*passage]{
			{Name: "dedup", Apply: s.stopRepeats},
			{Name: "transcript", Apply: s.hearPerson},
		},
		decide: relay.Pipeline[*passage]{
			{Name: "mention", Apply: s.noteMentions},
			{Name: "inject", Apply: s.inject},
		},
	}
}

// nativeQueue is the spool's name in its folder, in logs and in metrics.
const nativeQueue = "native"

func (s *Sidecar) openSpool() error {
	if s.cfg.Gateway.Addr == "" && !s.cfg.Connector {
		return nil
	}
	root, err := s.folder(nativeQueue, safefile.Name(string(s.cfg.Agent)))
	if err != nil {
		return err
	}
	queue, err := filerelay.New(filerelay.Options{Dir: root.Name(), Queue: nativeQueue, Agent: string(s.cfg.Agent), Logger: s.log})
	if err != nil {
		return err
	}
	s.onClose(queue.Close)
	s.native = &nativeSpool{queue: queue, bots: s.metrics.measured(s.nativesWay()), people: s.metrics.measured(s.peoplesWay()), wait: newChats(), copies: newCopies()}
	s.native.passed, _ = lru.New[string, struct{}](maxCopies)
	return nil
}

// receiveNative takes a spooled line to its way, a bot's once the relay's copy
// has come first or has been waited for.
func (s *Sidecar) receiveNative(ctx context.Context, d relay.Delivery) {
	d.History = false // nobody else writes here
	p := newPassage(d)
	s.guard(p, func() { s.awaitCopy(ctx, p) })
}

func (s *Sidecar) awaitCopy(ctx context.Context, p *passage) {
	m, err := relay.Decode(p.Line)
	if err != nil || m.Role == relay.RoleUser {
		s.receive(ctx, s.native.people, p.Delivery)
		return
	}
	came, forget := s.native.copies.expect(string(m.ID()))
	key := chatKey(m.Channel, m.ChatID) + "/" + string(m.SenderBotOpenID)
	s.native.wait.do(ctx, key, func(ctx context.Context) {
		defer forget()
		s.guard(p, func() { s.afterCopy(ctx, p.Delivery, &m, p.arrived, came) })
	})
}

// afterCopy takes d, which holds a bot's native message m, along its way once came is
// closed or the copy has been waited for.
func (s *Sidecar) afterCopy(ctx context.Context, d relay.Delivery, m *relay.Message, arrived time.Time, came <-chan struct{}) {
	if !s.here(string(m.ID())) {
		select {
		case <-time.After(time.Until(arrived.Add(s.waitForCopy(m)))):
		case <-came:
		case <-ctx.Done():
			return
		}
	}
	if feishu.Placeholder(m.Content) {
		d.Line = s.readAgain(ctx, *m, d.Line)
	}
	if agent, ok := s.native.copies.sender(string(m.ID())); ok {
		s.matched(m, agent)
	}
	s.receive(ctx, s.native.bots, d)
}

// readAgain asks Feishu for what stands by now in place of a placeholder. A card
// that was streamed it does not show.
func (s *Sidecar) readAgain(ctx context.Context, m relay.Message, line []byte) []byte {
	if m.Metadata.Text(metaNative) != nativeText || !s.api.Ready() || s.here(string(m.ID())) {
		return line
	}
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	now, err := s.api.Message(ctx, m.MessageID)
	if err != nil {
		s.problems.set("native message", err)
		return line
	}
	m.Content = now.Text()
	if again, err := m.Encode(); err == nil {
		return again
	}
	return line
}

// stopUnfinished stops what only says that an answer is coming, of a bot whose
// finished text nobody told. Where the relay told it, this is a repeat.
func (s *Sidecar) stopUnfinished(_ context.Context, p *passage) (relay.Reason, error) {
	if feishu.Placeholder(p.msg.Content) && !s.here(p.key) {
		return relay.Expired, nil
	}
	return relay.Pass, nil
}

// here reports whether a message was handled already, or is on its way.
func (s *Sidecar) here(key string) bool {
	return s.dedup.Seen(key) || s.inFlight.has(key) || s.deliveries.Has(key)
}

func (s *Sidecar) waitForCopy(m *relay.Message) time.Duration {
	kind := m.Metadata.Text(metaNative)
	bot, _ := s.book.Bot(m.SenderBotOpenID)
	heard, wait := bot.Agent != "", waitText
	switch {
	case heard && kind == nativeStreaming:
		wait = waitStreaming
	case heard:
		wait = waitHeard
	case kind != nativeText:
		wait = waitCard
	}
	return min(wait, s.cfg.MaxAge/2) // beyond MaxAge it would be too old for the bot
}

// matched learns from one message seen in both ways which bot an id of this
// app's is.
func (s *Sidecar) matched(m *relay.Message, agent relay.AgentName) {
	if agent == "" || m.SenderBotOpenID == "" {
		return
	}
	bot := feishu.Bot{OpenID: m.SenderBotOpenID, Agent: agent}
	if known, ok := s.book.Agent(agent, "", ""); ok {
		bot.AppID, bot.Name = known.AppID, known.Name
	}
	s.book.LearnBot(bot)
}

// named gives a message that Feishu delivered the name under which its sender
// is known on the relay.
func (s *Sidecar) named(m *relay.Message) {
	if m.SenderAgentName != "" {
		return
	}
	if bot, ok := s.book.Bot(m.SenderBotOpenID); ok {
		m.SenderAgentName = bot.Agent
		if m.SenderName == "" {
			m.SenderName = bot.Name
		}
		if m.SenderAppID == "" {
			m.SenderAppID = bot.AppID
		}
	}
}

// maxCopies is how many relayed messages are remembered with their senders, so
// that a native event that comes later tells who its sender is.
const maxCopies = 1000

// copies tells who waits for the relay's copy of a message that it came, and
// whose it was.
type copies struct {
	senders *lru.Cache[string, relay.AgentName] // by message

	mu      sync.Mutex
	waiting map[string]chan struct{} // guarded by mu; at most as many as the spool holds unsettled
}

func newCopies() *copies {
	senders, _ := lru.New[string, relay.AgentName](maxCopies) // fails only for a size below 1
	return &copies{senders: senders, waiting: map[string]chan struct{}{}}
}

func (c *copies) sender(key string) (relay.AgentName, bool) { return c.senders.Get(key) }

// expect waits for the message key; came is closed once it is there.
func (c *copies) expect(key string) (came <-chan struct{}, forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, ok := c.waiting[key]
	if !ok {
		ch = make(chan struct{})
		c.waiting[key] = ch
	}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[key] == ch {
			delete(c.waiting, key)
		}
	}
}

// came tells that the relay's copy of key has been dealt with on arrival.
func (c *copies) came(key string, agent relay.AgentName) {
	c.senders.Add(key, agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.waiting[key]; ok {
		close(ch)
		delete(c.waiting, key)
	}
}
