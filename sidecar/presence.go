package sidecar

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/redisbox"
	"feishu-relay/relay"
)

// presence tells which agents are online, by the heartbeat of their cards, and has this agent's card written when
// something on it changes. Where there is no mailbox it writes the card itself.
type presence struct {
	*Sidecar
	store  mailbox.Store     // nil: no registry takes the agent's name
	shared *mailbox.Settings // for the card
	seen   atomic.Pointer[seenCards]
	first  chan struct{} // closed after the first reading
	clocks clocks        // used by read alone
}

// seenCards is what the cards of the registry say. It is not changed.
type seenCards struct {
	online  map[relay.AgentName]bool // nil: the registry was not read yet
	bots    map[relay.AgentName]*mailbox.Bot
	names   map[relay.AgentName]string
	beats   map[relay.AgentName]time.Time
	secrets map[relay.AgentName]*SecretError // of the agents online that have another RELAY_SECRET
}

const (
	presenceLook  = time.Second            // how often it is looked whether the bot is connected
	presenceFresh = 2 * time.Second        // how often the cards are read
	presenceTime  = 5 * time.Second        // bounds one call to the registry
	presenceWait  = 200 * time.Millisecond // how long the start waits for the first reading
)

func (s *Sidecar) openPresence() (err error) {
	p, c := &presence{Sidecar: s, first: make(chan struct{})}, &s.cfg.Mailbox
	s.presence = p
	p.seen.Store(&seenCards{})
	if !c.On && (c.Heartbeat == 0 || mailbox.CheckAgent(mailbox.AgentID(s.cfg.Agent)) != nil) {
		close(p.first)
		return nil
	}
	if p.store, err = s.openMailStore(); err != nil {
		return err
	}
	p.shared = s.cfg.Shared(s.version)
	s.onClose(p.store.Close)
	return nil
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
		return store, nil
	}
	if fs := safefile.NetworkFS(c.Dir); fs != "" {
		b.log.Warn("the mailbox folder is on a network file system, where locks and change events are not reliable; "+
			"set RELAY_BACKEND=redis instead", "folder", c.Dir, "filesystem", fs)
	}
	store, err := filebox.Open(c.Dir, b.log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.setBy("MAILBOX_DIR", c.Dir), err)
	}
	return store, nil
}

// online is which agents are online; nil where the registry was not read yet.
func (p *presence) online() map[relay.AgentName]bool { return p.seen.Load().online }

// read reads the cards.
func (p *presence) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, presenceTime)
	defer cancel()
	cards, err := p.store.Cards(ctx)
	if err != nil {
		p.problems.set("presence", err)
		return
	}
	now := &seenCards{online: make(map[relay.AgentName]bool, len(cards)), bots: map[relay.AgentName]*mailbox.Bot{},
		names: map[relay.AgentName]string{}, beats: map[relay.AgentName]time.Time{},
		secrets: map[relay.AgentName]*SecretError{}}
	read := time.Now()
	for _, c := range cards {
		agent, online := relay.AgentName(c.AgentID), c.At(read, p.cfg.Mailbox.HeartbeatTimeout) != mailbox.Offline
		if now.online[agent] = online; online && c.Bot != nil {
			now.bots[agent] = c.Bot
		}
		if c.BotName != "" {
			now.names[agent] = c.BotName
		}
		if agent == p.cfg.Agent || c.Sidecar == nil { // a foreign program may write its local time
			continue
		}
		now.beats[agent] = c.LastHeartbeat
		if online && c.HasSettings() && c.Sidecar.Meets(p.shared) && c.Sidecar.Secret != p.shared.Secret {
			now.secrets[agent] = &SecretError{agent, p.shared.Secret, c.Sidecar.Secret}
		}
	}
	before := p.seen.Swap(now)
	p.reportSecrets(before.secrets, now.secrets)
	p.reportClocks(before.beats, now.beats, read)
}

// run reads the registry and keeps this agent's card right until ctx is done.
func (p *presence) run(ctx context.Context) {
	if p.store == nil {
		return
	}
	card := mailbox.Card{AgentID: mailbox.AgentID(p.cfg.Agent), Description: p.cfg.Role, Capabilities: p.cfg.Capabilities,
		Status: mailbox.Idle, AllowFrom: []mailbox.AgentID{}, CurrentTasks: []string{}, RegisteredAt: time.Now().UTC()}
	var bot *mailbox.Bot
	var wrote, read time.Time
	for look := min(presenceLook, p.cfg.Mailbox.Heartbeat); ctx.Err() == nil; _ = wait.Sleep(ctx, look) {
		now := p.botIs()
		changed := !reflect.DeepEqual(now, bot)
		bot = now
		switch {
		case p.mail == nil && (changed || time.Since(wrote) >= p.cfg.Mailbox.Heartbeat):
			p.write(ctx, &card)
			wrote = time.Now()
		case p.mail != nil && changed:
			p.mail.agent.Announce()
		}
		if time.Since(read) >= presenceFresh {
			p.read(ctx)
			if read.IsZero() {
				close(p.first)
			}
			read = time.Now()
		}
	}
	if p.mail == nil {
		card.Status = mailbox.Offline
		p.write(context.WithoutCancel(ctx), &card)
	}
}

// write writes the card of an agent without a mailbox.
func (p *presence) write(ctx context.Context, card *mailbox.Card) {
	ctx, cancel := context.WithTimeout(ctx, presenceTime)
	defer cancel()
	p.complete(card)
	card.LastHeartbeat = time.Now().UTC()
	if err := p.store.SetCard(ctx, *card); err != nil {
		p.problems.set("presence", err)
	}
}

// complete adds to a card of this agent what the sidecar knows of itself and its bot.
func (p *presence) complete(c *mailbox.Card) {
	c.Sidecar, c.Bot, c.BotName = p.shared, p.botIs(), p.app.self().Name
}

// reportSecrets reports the agents whose RELAY_SECRET is found to differ.
func (p *presence) reportSecrets(before, now map[relay.AgentName]*SecretError) {
	for agent, err := range now {
		p.problems.set("secret", err)
		if was := before[agent]; was == nil || *was != *err {
			p.log.Warn("RELAY_SECRET differs from another agent's", keySender, agent, keyErr, err)
		}
	}
}

// clocks compares the clocks of other sidecars with this one's, by the heartbeats on their cards. A card that has
// changed since the last reading was written since then, whatever time is on it.
type clocks struct {
	read   time.Time                // the last reading
	differ map[relay.AgentName]bool // the clocks that differed then
}

// reportClocks reports the other sidecars whose clocks have begun to differ from this one's by more than
// [relay.MaxAhead].
func (p *presence) reportClocks(before, beats map[relay.AgentName]time.Time, now time.Time) {
	c, since, differ := &p.clocks, now.Sub(p.clocks.read), map[relay.AgentName]bool{}
	for agent, beat := range beats {
		was, known := before[agent]
		if !known || was.Equal(beat) { // nothing new is known of its clock
			differ[agent] = c.differ[agent]
			continue
		}
		ahead, side := beat.Sub(now), "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		differ[agent] = ahead < -since-relay.MaxAhead || ahead > relay.MaxAhead
		if !differ[agent] || c.differ[agent] {
			continue
		}
		err := fmt.Errorf("the clock of %s's host is %s %s this one's: one of the two is wrong; messages may expire before "+
			"they are delivered. Set the clocks by NTP", agent, ahead.Abs().Round(time.Second), side)
		p.problems.set("clock", err)
		p.log.Warn("another sidecar's clock differs from this one's", keySender, agent, keyErr, err)
	}
	c.read, c.differ = now, differ
}
