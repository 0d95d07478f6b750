package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

// present keeps the agent's card in the registry: at the start, at each
// heartbeat and when something on it changes.
func (a *Agent) present(ctx context.Context) error {
	beat := time.NewTicker(a.opts.Heartbeat)
	defer beat.Stop()
	for {
		if err := a.register(ctx); err != nil {
			return err
		}
		select {
		case <-beat.C:
		case <-a.again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// register writes the card as it is now. Of two calls the later one writes the
// newer card; once the agent has left it stays offline.
func (a *Agent) register(ctx context.Context) error {
	return a.writeCard(ctx, false)
}

// leave says that the agent is gone for now; its mail waits.
func (a *Agent) leave(ctx context.Context) error { return a.writeCard(ctx, true) }

func (a *Agent) writeCard(ctx context.Context, last bool) error {
	select {
	case left := <-a.left:
		defer func() { a.left <- left || last }()
		c := a.currentCard(time.Now())
		if left || last {
			c.Status = mailbox.Offline
		}
		err := a.opts.Store.SetCard(ctx, c)
		a.cards.forget()
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changed has the card written soon.
func (a *Agent) changed() {
	select {
	case a.again <- struct{}{}:
	default: // it is on its way
	}
}

func (a *Agent) currentCard(now time.Time) mailbox.Card {
	a.mu.Lock()
	c := a.card
	c.Goals = slices.Clone(a.goals)
	a.mu.Unlock()
	c.CurrentTasks = []string{}
	for _, r := range a.ledger.Open() {
		c.CurrentTasks = append(c.CurrentTasks, r.ID)
	}
	c.Status = mailbox.Idle
	if len(c.CurrentTasks) > 0 {
		c.Status = mailbox.Busy
	}
	c.LastHeartbeat = now.UTC()
	if a.opts.Queues != nil {
		q := a.opts.Queues()
		n := a.Counts()
		q.Inbox, q.Unacknowledged = n.Waiting, n.Unacknowledged
		c.Queues = &q
	}
	return c
}

// Card is this agent's card as of now.
func (a *Agent) Card() mailbox.Card { return a.currentCard(time.Now()) }

// Agents returns the cards of all agents, this one's too, in order of agent_id
// and with the status as of now.
func (a *Agent) Agents(ctx context.Context) ([]mailbox.Card, error) {
	cards, err := a.opts.Store.Cards(ctx)
	if err != nil {
		return nil, err
	}
	now, found := time.Now(), false
	for i := range cards {
		if cards[i].AgentID == a.opts.Self {
			cards[i], found = a.currentCard(now), true
		}
		cards[i].Status = cards[i].At(now, a.opts.HeartbeatTimeout)
	}
	if !found {
		cards = append(cards, a.currentCard(now))
		slices.SortFunc(cards, func(c, d mailbox.Card) int { return cmp.Compare(c.AgentID, d.AgentID) })
	}
	return cards, nil
}

// online reports whether an agent lives, as far as the registry knows. An agent
// that is in no registry is not.
func (a *Agent) online(ctx context.Context, id mailbox.AgentID) bool {
	c, ok, err := a.cards.get(ctx, id)
	return err == nil && ok && c.At(time.Now(), a.opts.HeartbeatTimeout) != mailbox.Offline
}

// acknowledges reports whether an agent's mailbox acknowledges what its bot has.
func (a *Agent) acknowledges(ctx context.Context, id mailbox.AgentID) bool {
	c, ok, err := a.cards.get(ctx, id)
	return err == nil && ok && c.Protocol != ""
}

// cardCache spares the registry the many questions of retries.
type cardCache struct {
	read func(context.Context) ([]mailbox.Card, error)
	mu   sync.Mutex
	at   time.Time                        // guarded by mu, as byID is
	byID map[mailbox.AgentID]mailbox.Card // as of at
}

func (c *cardCache) get(ctx context.Context, id mailbox.AgentID) (mailbox.Card, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil || time.Since(c.at) > cardsFresh {
		cards, err := c.read(ctx)
		if err != nil {
			return mailbox.Card{}, false, err
		}
		c.at, c.byID = time.Now(), make(map[mailbox.AgentID]mailbox.Card, len(cards))
		for _, card := range cards {
			c.byID[card.AgentID] = card
		}
	}
	card, ok := c.byID[id]
	return card, ok, nil
}

func (c *cardCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID = nil
}

// Counts is how much waits, for metrics and the status.
type Counts struct {
	Waiting        int `json:"waiting"`        // for the bot
	Unacknowledged int `json:"unacknowledged"` // of what was sent
	OpenTasks      int `json:"open_tasks"`     // that were taken
}

// Counts returns how much waits.
func (a *Agent) Counts() Counts {
	_, waiting := a.ready.show(0)
	return Counts{Waiting: waiting, Unacknowledged: a.out.Pending(), OpenTasks: len(a.ledger.Open())}
}
