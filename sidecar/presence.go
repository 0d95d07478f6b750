package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/redisbox"
	"feishu-relay/relay"
)

// presence tells which agents are online, by the heartbeat of their cards, and writes this
// agent's card where no mailbox does.
type presence struct {
	*base
	store mailbox.Store
	own   bool // there is no mailbox: the card is written here

	shared  *mailbox.Settings   // for the card
	bot     func() *mailbox.Bot // for the card
	botName func() string       // for the card
	again   chan struct{}       // has the card written; room for one

	reading context.Context // ends when the sidecar closes
	readers sync.WaitGroup

	mu    sync.Mutex
	at    time.Time     // when known was read; guarded by mu, as the rest is
	fresh chan struct{} // closed when the reading under way has ended; nil: none is
	known map[relay.AgentName]bool
	bots  map[relay.AgentName]*mailbox.Bot // of those online whose card says so. The map is not changed
	names map[relay.AgentName]string       // of the bots whose card has one. The map is not changed
	// secrets are the agents online that have another RELAY_SECRET. The map is not changed.
	secrets map[relay.AgentName]*SecretError
	clocks  clocks // guarded by mu
}

// presenceFresh is how long cards that were read are believed.
const presenceFresh = 2 * time.Second

// presenceTime bounds one call to the registry.
const presenceTime = 5 * time.Second

// presenceWait is how long a message waits for the registry; then what was read before counts.
const presenceWait = 200 * time.Millisecond

func openPresence(b *base, bot func() *mailbox.Bot, botName func() string) (*presence, error) {
	c := &b.cfg.Mailbox
	if !c.On && (c.Heartbeat == 0 || mailbox.CheckAgent(mailbox.AgentID(b.cfg.Agent)) != nil) {
		return &presence{base: b}, nil // a name that no registry takes
	}
	store, err := b.openMailStore()
	if err != nil {
		return nil, err
	}
	p := &presence{base: b, store: store, own: !b.cfg.Mailbox.On, shared: b.cfg.Shared(b.version), bot: bot,
		botName: botName, again: make(chan struct{}, 1)}
	var stop context.CancelFunc
	p.reading, stop = context.WithCancel(context.Background())
	b.onClose(func() error {
		stop()
		p.readers.Wait()
		return store.Close()
	})
	return p, nil
}

// signing is how mail is signed and verified.
func (b *base) signing() mailbox.Signing {
	return mailbox.Signing{Secret: string(b.cfg.RelaySecret)}
}

func (b *base) openMailStore() (mailbox.Store, error) {
	c := b.cfg.Mailbox
	if b.cfg.Backend == "redis" {
		store, err := redisbox.Open(redisbox.Options{URL: string(b.cfg.RedisURL), Logger: b.log,
			HeartbeatTimeout: c.HeartbeatTimeout,
			Self:             mailbox.AgentID(b.cfg.Agent), Signing: b.signing()})
		if err != nil {
			return nil, &setting{fmt.Errorf("mailbox on Redis: %w", err)}
		}
		b.metrics.counter("mailbox_foreign_dropped_total",
			"Messages on the peer channels of Redis that could not be taken.",
			nil, func() float64 { return float64(store.Dropped()) })
		return store, nil
	}
	if fs := safefile.NetworkFS(c.Dir); fs != "" {
		b.log.Warn("the mailbox folder is on a network file system, where locks and change events are not reliable; set RELAY_BACKEND=redis instead",
			"folder", c.Dir, "filesystem", fs)
	}
	store, err := filebox.Open(c.Dir, b.log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	return store, nil
}

// online is which agents are online; nil where the registry cannot be read.
func (p *presence) online() map[relay.AgentName]bool {
	p.mu.Lock()
	if p.store == nil || time.Since(p.at) < presenceFresh || p.reading.Err() != nil {
		defer p.mu.Unlock()
		return p.known
	}
	if p.fresh == nil {
		p.fresh = make(chan struct{})
		p.readers.Go(p.read)
	}
	fresh := p.fresh
	p.mu.Unlock()
	wait.Closed(fresh, presenceWait)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

// beatSince reports whether an agent's heartbeat was read that is later than a time.
func (p *presence) beatSince(agent relay.AgentName, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clocks.beats[agent].After(at)
}

// cards are the bots of the agents online, and the display names of the agents' bots, as far as their cards have them.
func (p *presence) cards() (bots map[relay.AgentName]*mailbox.Bot, names map[relay.AgentName]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bots, p.names
}

// read reads who is online; nobody waits for a registry that does not answer.
func (p *presence) read() {
	ctx, cancel := context.WithTimeout(p.reading, presenceTime)
	defer cancel()
	cards, err := p.store.Cards(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = time.Now()
	close(p.fresh)
	p.fresh = nil
	if err != nil {
		p.problems.set("presence", err)
		return
	}
	p.known, p.bots = make(map[relay.AgentName]bool, len(cards)), map[relay.AgentName]*mailbox.Bot{}
	p.names = map[relay.AgentName]string{}
	for _, c := range cards {
		agent, online := relay.AgentName(c.AgentID), c.At(p.at, p.cfg.Mailbox.HeartbeatTimeout) != mailbox.Offline
		if p.known[agent] = online; online && c.Bot != nil {
			p.bots[agent] = c.Bot
		}
		if c.BotName != "" {
			p.names[agent] = c.BotName
		}
	}
	p.learnSecrets(cards)
	p.compareClocks(cards)
}

// run keeps the card in the registry, and compares the others' with it, until ctx is done.
func (p *presence) run(ctx context.Context) error {
	if p.store == nil {
		<-ctx.Done()
		return nil
	}
	started := time.Now().UTC()
	card := mailbox.Card{AgentID: mailbox.AgentID(p.cfg.Agent), Description: p.cfg.Role, Capabilities: p.cfg.Capabilities,
		Status: mailbox.Idle, AllowFrom: []mailbox.AgentID{}, CurrentTasks: []string{}, RegisteredAt: started}
	beat := time.NewTicker(p.cfg.Mailbox.Heartbeat)
	defer beat.Stop()
	for {
		p.complete(&card)
		card.LastHeartbeat = time.Now().UTC()
		if ctx.Err() != nil {
			card.Status = mailbox.Offline
		}
		if p.own {
			writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceTime)
			err := p.store.SetCard(writing, card)
			cancel()
			if err != nil {
				p.problems.set("presence", err)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		p.online()
		select {
		case <-beat.C:
		case <-p.again:
		case <-ctx.Done():
		}
	}
}

// complete adds to a card of this agent what the sidecar knows of itself and its bot.
func (p *presence) complete(c *mailbox.Card) {
	c.Sidecar, c.Bot, c.BotName = p.shared, p.bot(), p.botName()
}

// announce has this agent's card written soon: something on it has changed.
func (s *Sidecar) announce() {
	if s.mail != nil {
		s.mail.agent.Announce()
		return
	}
	wait.Wake(s.presence.again)
}
