package redisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxCards is the most entries of the hash of cards; Cards fails on more.
const maxCards = 10_000

// The field by which a card of ours says that its alive key tells its presence.
const (
	presenceField = "presence"
	presenceByKey = "key"
)

const usesCards = "the key " + cardsKey + " (a hash)"

// Cards returns all agents' cards. One of ours whose alive key is gone has the
// status offline; a foreign program's has the status it wrote.
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
		return nil, &redislink.Fault{Says: fmt.Sprintf("the key %s has %d entries, more than %d: delete those of agents that are no more (HDEL)",
			cardsKey, n, maxCards)}
	}
	entries, err := s.calls.HGetAll(ctx, cardsKey).Result()
	if err != nil {
		return nil, err
	}
	cards := make([]mailbox.Card, 0, len(entries))
	keyed := map[mailbox.AgentID]*redis.IntCmd{} // nil until asked
	for name, raw := range entries {
		id := mailbox.AgentID(name)
		if mailbox.CheckAgent(id) != nil {
			continue
		}
		c, err := mailbox.DecodeCard(id, []byte(raw))
		if err != nil {
			continue
		}
		cards = append(cards, c)
		if c.Status != mailbox.Offline && byKey(raw) {
			keyed[id] = nil
		}
	}
	slices.SortFunc(cards, func(a, b mailbox.Card) int { return cmp.Compare(a.AgentID, b.AgentID) })
	if len(keyed) == 0 {
		return cards, nil
	}
	if _, err := s.calls.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id := range keyed {
			keyed[id] = p.Exists(ctx, aliveKey(id))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, c := range cards {
		if alive := keyed[c.AgentID]; alive != nil && alive.Val() == 0 {
			cards[i].Status = mailbox.Offline
		}
	}
	return cards, nil
}

func byKey(raw string) bool {
	var entry struct {
		Presence any `json:"presence"`
	}
	return json.Unmarshal([]byte(raw), &entry) == nil && entry.Presence == presenceByKey
}

// SetCard writes c as its agent's field of the hash, keeping what the field
// holds beside a card, and says that the agent is there for a heartbeat's
// time, or is not.
func (s *Store) SetCard(ctx context.Context, c mailbox.Card) error {
	if err := mailbox.CheckAgent(c.AgentID); err != nil {
		return err
	}
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
	mark := json.RawMessage(`"` + presenceByKey + `"`)
	entry := map[string]json.RawMessage{}
	if json.Unmarshal(previous, &entry) != nil || entry == nil {
		entry = map[string]json.RawMessage{} // what is no object has no fields
	}
	entry[presenceField] = mark
	kept, _ := relay.Marshal(entry) // of valid JSON: it cannot fail
	raw, err := mailbox.EncodeCard(c, kept)
	if err == nil && !byKey(string(raw)) {
		kept, _ = relay.Marshal(map[string]json.RawMessage{presenceField: mark})
		raw, err = mailbox.EncodeCard(c, kept)
	}
	return raw, err
}
