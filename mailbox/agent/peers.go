package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// ListPeers returns the other agents (docs/protocol.md 6.7).
func (a *Agent) ListPeers(ctx context.Context) (Peers, error) {
	cards, err := a.Agents(ctx)
	if err != nil {
		return Peers{}, err
	}
	out := Peers{Peers: []Peer{}}
	for _, c := range cards {
		if c.AgentID == a.opts.Self {
			continue
		}
		why := a.unreachable(c)
		out.Peers = append(out.Peers, Peer{c.AgentID, describe(c), why == "", c.Status, why})
	}
	if len(out.Peers) == 0 {
		out.Note = "no other agent has registered yet"
	}
	return out, nil
}

// describe is what a card says of its agent, in one text.
func describe(c mailbox.Card) string {
	if len(c.Capabilities) == 0 {
		return c.Description
	}
	can := "can: " + strings.Join(c.Capabilities, ", ")
	if c.Description == "" {
		return can
	}
	return c.Description + " (" + can + ")"
}

// unreachable is why a message to c's agent would not arrive now; c.Status is as of now.
func (a *Agent) unreachable(c mailbox.Card) string {
	switch {
	case !a.delegate(c.AgentID):
		return fmt.Sprintf("agent_id `%s` is not among ALLOWED_DELEGATES", c.AgentID)
	case c.Status == mailbox.Offline:
		return fmt.Sprintf("no live goals for agent_id `%s`: it is offline", c.AgentID)
	case !c.Allows(a.opts.Self):
		return fmt.Sprintf("agent_id `%s` takes no messages from `%s`", c.AgentID, a.opts.Self)
	}
	return ""
}

// SendToPeer sends a message to each live goal of an agent, or of all with "*".
// It fails for what is wrong with the call; who cannot be reached is in the
// answer (docs/protocol.md 6.7). A correlation that is no UUID is left out: other programs
// drop a message with one.
func (a *Agent) SendToPeer(ctx context.Context, m PeerMessage) (PeerResult, error) {
	out := PeerResult{DeliveredTo: []string{}, UnreachableReasons: []string{}}
	m.To, m.CorrelationID = mailbox.AgentID(strings.TrimSpace(string(m.To))), mailbox.UUID(m.CorrelationID)
	switch {
	case m.To == "":
		return out, mailbox.Invalid("to", "must not be empty: name the agent_id of a peer")
	case m.To == a.opts.Self:
		return out, mailbox.Invalid("to", "cannot send a message to oneself")
	case strings.TrimSpace(m.Message) == "":
		return out, mailbox.Invalid("message", "must not be empty")
	case len(m.Message) > mailbox.MaxBody:
		return out, mailbox.Invalid("message", "has %d bytes; the limit is %d", len(m.Message), mailbox.MaxBody)
	}
	cards, err := a.Agents(ctx)
	if err != nil {
		return out, err
	}
	cards = slices.DeleteFunc(cards, func(c mailbox.Card) bool {
		return c.AgentID == a.opts.Self || m.To != "*" && c.AgentID != m.To
	})
	if len(cards) == 0 && m.To != "*" {
		out.UnreachableReasons = append(out.UnreachableReasons, fmt.Sprintf("unknown agent_id `%.64s`", m.To))
	}
	reached, call := 0, mailbox.NewID(a.opts.Self, time.Now())
	for _, c := range cards {
		why := a.unreachable(c)
		if why == "" && m.To == "*" && reached == maxBroadcast {
			why = fmt.Sprintf("a broadcast reaches at most %d agents; send to `%s` itself", maxBroadcast, c.AgentID)
		}
		if why != "" {
			out.UnreachableReasons = append(out.UnreachableReasons, why)
			continue
		}
		delivered, reasons, err := a.toGoals(c, m, call)
		if err != nil && m.To != "*" {
			return out, err
		} else if err != nil {
			reasons = append(reasons, err.Error())
		}
		if len(delivered) > 0 {
			reached++
		}
		out.DeliveredTo = append(out.DeliveredTo, delivered...)
		out.UnreachableReasons = append(out.UnreachableReasons, reasons...)
	}
	return out, nil
}

// toGoals sends m to each goal of c's agent, which counts as one exchange; one failure does not stop the others.
func (a *Agent) toGoals(c mailbox.Card, m PeerMessage, call string) (delivered, reasons []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	counted, err := a.countExchange(c.AgentID, call)
	if err != nil {
		return nil, nil, err
	}
	goals := c.Goals
	if len(goals) == 0 {
		goals = []string{string(c.AgentID)}
	}
	for i, goal := range goals {
		if i == maxGoals {
			reasons = append(reasons, fmt.Sprintf("agent_id `%s` has %d goals; a message reaches the first %d",
				c.AgentID, len(goals), maxGoals))
			break
		}
		e := mailbox.New(mailbox.TypeMessage, a.opts.Self, c.AgentID, time.Now())
		e.Content.Parts = []mailbox.Part{mailbox.TextPart(m.Message)}
		e.Metadata = mailbox.Metadata{CorrelationID: m.CorrelationID, Goal: goal}
		if err := a.send(&e, counted...); err != nil {
			if _, refused := errors.AsType[*mailbox.Error](err); !refused && !errors.Is(err, mailbox.ErrFull) {
				a.log.Warn("a message was not sent", "to", c.AgentID, "err", err)
				a.opts.Failed("sending", err)
				err = errors.New("the mailbox cannot be reached now; try again")
			}
			reasons = append(reasons, fmt.Sprintf("goal `%s` of agent_id `%s`: %v", goal, c.AgentID, err))
			continue
		}
		delivered = append(delivered, goal)
	}
	return delivered, reasons, nil
}

// Goals returns the live goals: at least the standing one, the agent's name.
func (a *Agent) Goals() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.card.Goals) == 0 {
		return []string{string(a.opts.Self)}
	}
	return slices.Clone(a.card.Goals)
}

// AddGoal registers a goal; "" makes up an id. It returns the goal's id when the
// registry has it.
func (a *Agent) AddGoal(ctx context.Context, goal string) (string, error) {
	goal = cmp.Or(goal, "goal_"+strings.ToLower(rand.Text()[:12]))
	control := func(r rune) bool { return r <= ' ' || r == 0x7f }
	if len(goal) > 128 || strings.TrimSpace(goal) != goal || strings.ContainsFunc(goal, control) {
		return "", mailbox.Invalid("goal_id", "want at most 128 bytes without spaces and control characters")
	}
	a.mu.Lock()
	known, full := slices.Contains(a.card.Goals, goal), len(a.card.Goals) >= maxGoals
	if !known && !full {
		a.card.Goals = append(slices.Clone(a.card.Goals), goal) // cards that were given out have the old ones
	}
	a.mu.Unlock()
	if !known && full {
		return "", mailbox.Refused(mailbox.AgentBusy, "goal_id",
			"%d goals are live, the most there may be; remove one", maxGoals)
	}
	return goal, a.writeCard(ctx, false)
}

// RemoveGoal forgets a goal. What waits for it stays in the inbox.
func (a *Agent) RemoveGoal(ctx context.Context, goal string) error {
	a.mu.Lock()
	known := slices.Contains(a.card.Goals, goal)
	a.card.Goals = slices.DeleteFunc(slices.Clone(a.card.Goals), func(g string) bool { return g == goal })
	a.mu.Unlock()
	if !known {
		return mailbox.Invalid("goal_id", "no goal %.128q is registered", goal)
	}
	return a.writeCard(ctx, false)
}

// present keeps the agent's card in the registry: at the start, at each
// heartbeat and when something on it changes.
func (a *Agent) present(ctx context.Context) error {
	beat := time.NewTicker(a.opts.Heartbeat)
	defer beat.Stop()
	for {
		if err := a.writeCard(ctx, false); err != nil {
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

// writeCard writes the card as it is now; last: the agent goes offline, and its mail waits. Of
// two calls the later one writes the newer card; once the agent has left it stays offline.
func (a *Agent) writeCard(ctx context.Context, last bool) error {
	if err := a.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer a.turn.Release(1)
	a.left = a.left || last
	c := a.Card()
	if a.left {
		c.Status = mailbox.Offline
	}
	err := a.opts.Store.SetCard(ctx, c)
	a.forgetCards()
	return err
}

// Announce has the card written soon: something on it has changed.
func (a *Agent) Announce() { wait.Wake(a.again) }

// Card is this agent's card as of now.
func (a *Agent) Card() mailbox.Card {
	a.mu.Lock()
	c, taken := a.card, a.tasks.taken()
	a.mu.Unlock()
	c.CurrentTasks = []string{}
	for _, r := range taken {
		c.CurrentTasks = append(c.CurrentTasks, r.ID)
	}
	c.Status = mailbox.Idle
	if len(c.CurrentTasks) > 0 {
		c.Status = mailbox.Busy
	}
	c.LastHeartbeat = time.Now().UTC()
	if a.opts.Complete != nil {
		a.opts.Complete(&c)
	}
	if c.Queues != nil {
		n := a.Counts()
		c.Queues.Inbox, c.Queues.Unacknowledged = n.Waiting, n.Unacknowledged
	}
	return c
}

// Agents returns the cards of all agents, this one's too, in order of agent_id
// and with the status as of now.
func (a *Agent) Agents(ctx context.Context) ([]mailbox.Card, error) {
	cards, err := a.opts.Store.Cards(ctx)
	if err != nil {
		return nil, err
	}
	cards = slices.DeleteFunc(cards, func(c mailbox.Card) bool { return c.AgentID == a.opts.Self })
	cards = append(cards, a.Card())
	slices.SortFunc(cards, func(c, d mailbox.Card) int { return cmp.Compare(c.AgentID, d.AgentID) })
	for i := range cards {
		cards[i].Status = cards[i].At(time.Now(), a.opts.HeartbeatTimeout)
	}
	return cards, nil
}

// online reports whether an agent lives, as far as the registry knows. An agent
// that is in no registry is not.
func (a *Agent) online(id mailbox.AgentID) bool {
	c := cardOf(a.cards, id)
	return c != nil && c.At(time.Now(), a.opts.HeartbeatTimeout) != mailbox.Offline
}

// acknowledges reports whether an agent's mailbox acknowledges what its bot has.
func (a *Agent) acknowledges(id mailbox.AgentID) bool {
	c := cardOf(a.cards, id)
	return c != nil && c.Protocol != ""
}

// refreshCards reads the registry, unless that was done lately. If it cannot be read, no card is known.
func (a *Agent) refreshCards(ctx context.Context) {
	a.reading.Lock()
	defer a.reading.Unlock()
	if time.Since(a.cardsRead) <= cardsFresh {
		return
	}
	cards, err := a.opts.Store.Cards(ctx)
	if err != nil && a.cardsErr == nil && ctx.Err() == nil {
		a.log.Warn("the agents' cards cannot be read", "err", err)
	}
	a.cardsRead, a.cardsErr = time.Now(), err
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cards = cards
}

func (a *Agent) forgetCards() {
	a.reading.Lock()
	defer a.reading.Unlock()
	a.cardsRead = time.Time{}
}

func cardOf(cards []mailbox.Card, id mailbox.AgentID) *mailbox.Card {
	i := slices.IndexFunc(cards, func(c mailbox.Card) bool { return c.AgentID == id })
	if i < 0 {
		return nil
	}
	return &cards[i]
}

// Counts is how much waits, for metrics and the status.
type Counts struct {
	Waiting        int `json:"waiting"`        // for the bot
	Unacknowledged int `json:"unacknowledged"` // of what was sent
	OpenTasks      int `json:"open_tasks"`     // that were taken
}

// Counts returns how much waits.
func (a *Agent) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Counts{Waiting: len(a.queue.list), Unacknowledged: a.unacknowledged(), OpenTasks: len(a.tasks.taken())}
}
