package redisbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxCards is the most entries of the hash of cards; Cards fails on more.
const maxCards = 10_000

// The field by which a card of ours marks that its alive key shows its presence.
const (
	presenceField = "presence"
	presenceByKey = "key"
)

const usesCards = "the key " + cardsKey + " (a hash)"

// Cards returns all agents' cards. One of ours whose alive key is gone has the
// status offline; another program's has the status it wrote.
func (s *Store) Cards(ctx context.Context) ([]mailbox.Card, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	cards, err := s.cards(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the agents' cards: %w", s.explain(err, usesCards))
	}
	return cards, nil
}

func (s *Store) cards(ctx context.Context) ([]mailbox.Card, error) {
	n, err := s.calls.HLen(ctx, cardsKey).Result()
	if err != nil {
		return nil, err
	}
	if n > maxCards {
		return nil, &redislink.Fault{Says: fmt.Sprintf(
			"the key %s has %d entries, more than %d: delete those of agents that left (HDEL)", cardsKey, n, maxCards)}
	}
	entries, err := s.calls.HGetAll(ctx, cardsKey).Result()
	if err != nil {
		return nil, err
	}
	cards := make([]mailbox.Card, 0, len(entries))
	alive := map[int]*redis.IntCmd{}
	asks := s.calls.Pipeline()
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		c, err := mailbox.DecodeCard(mailbox.AgentID(id), []byte(entries[id]))
		if err != nil {
			continue
		}
		if c.Status != mailbox.Offline && byKey(entries[id]) {
			alive[len(cards)] = asks.Exists(ctx, aliveKey(c.AgentID))
		}
		cards = append(cards, c)
	}
	if asks.Len() > 0 {
		_, err = asks.Exec(ctx)
	}
	for i, there := range alive {
		if cards[i].Present = there.Val() != 0; !cards[i].Present {
			cards[i].Status = mailbox.Offline
		}
	}
	return cards, err
}

func byKey(raw string) bool {
	var entry struct {
		Presence any `json:"presence"`
	}
	return json.Unmarshal([]byte(raw), &entry) == nil && entry.Presence == presenceByKey
}

// SetCard writes c as its agent's field of the hash, keeping what the field
// holds beside a card, and marks the agent as there for a heartbeat's
// time, or as away.
func (s *Store) SetCard(ctx context.Context, c mailbox.Card) error {
	if err := mailbox.CheckAgent(c.AgentID); err != nil {
		return err
	}
	s.mu.Lock()
	s.goals[c.AgentID] = c.Goals
	s.mu.Unlock()
	ctx, cancel := within(ctx)
	defer cancel()
	err := s.setCard(ctx, c)
	if _, refused := errors.AsType[*mailbox.Error](err); !refused {
		err = s.explain(err, usesCards)
	}
	if err != nil {
		return fmt.Errorf("write the card of %s: %w", c.AgentID, err)
	}
	return nil
}

func (s *Store) setCard(ctx context.Context, c mailbox.Card) error {
	previous, err := s.calls.HGet(ctx, cardsKey, string(c.AgentID)).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	raw, err := encodeCard(c, previous)
	if err != nil {
		return err
	}
	// A Cluster has the hash and the key in different slots: no MULTI. The key
	// first, so that nobody sees a new card without it.
	_, err = s.calls.Pipelined(ctx, func(p redis.Pipeliner) error {
		if c.Status == mailbox.Offline {
			p.Del(ctx, aliveKey(c.AgentID))
		} else {
			p.Set(ctx, aliveKey(c.AgentID), string(s.self), s.life)
		}
		p.HSet(ctx, cardsKey, string(c.AgentID), raw)
		return nil
	})
	return err
}

// encodeCard writes c with our mark, and with the unknown fields of the previous
// entry unless they are too many.
func encodeCard(c mailbox.Card, previous []byte) ([]byte, error) {
	mark := fmt.Appendf(nil, `{%q:%q}`, presenceField, presenceByKey)
	entry := map[string]json.RawMessage{}
	_ = json.Unmarshal(previous, &entry) // what is not an object has no fields
	_ = json.Unmarshal(mark, &entry)
	kept, _ := relay.Marshal(entry) // of valid JSON: it cannot fail
	raw, err := mailbox.EncodeCard(c, kept)
	if err == nil && !byKey(string(raw)) {
		raw, err = mailbox.EncodeCard(c, mark)
	}
	return raw, err
}
