package filebox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// Cards implements [mailbox.Store].
func (s *Store) Cards(ctx context.Context) ([]mailbox.Card, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	_, list, err := load(ctx, root, registry)
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	all := make([]mailbox.Card, 0, len(list))
	for _, e := range list {
		if card, err := mailbox.DecodeCard(e.id, e.raw); err == nil {
			all = append(all, card)
		}
	}
	slices.SortFunc(all, func(a, b mailbox.Card) int { return strings.Compare(string(a.AgentID), string(b.AgentID)) })
	return all, nil
}

// SetCard implements [mailbox.Store]. While a Receive runs, the card is put back
// whenever another program drops it or brings back one with an older heartbeat;
// until another process sets one with a newer heartbeat. It waits for other
// processes' changes, at most 10 seconds each.
func (s *Store) SetCard(ctx context.Context, c mailbox.Card) error {
	if err := checkAgent("the", c.AgentID); err != nil {
		return err
	}
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.turn.Release(1)
	var last entry
	err := s.change(ctx, func(list entries) (entries, error) {
		before, _ := list.get(c.AgentID)
		raw, err := mailbox.EncodeCard(c, before.raw)
		last = newEntry(c.AgentID, raw)
		return list.with(last), err
	})
	if err != nil {
		return fmt.Errorf("set the card of %s: %w", c.AgentID, err)
	}
	s.own[c.AgentID] = last
	return nil
}

// keepCards keeps the cards that were set in the registry until ctx is done.
func (s *Store) keepCards(ctx context.Context) {
	n := safefile.Notices{Dir: s.dir.Path, Recheck: s.recheck, Off: s.unnotified, Log: s.log}
	defer n.Close()
	if root, err := s.dir.Open(true); err == nil {
		removeOld(root, func(name string) bool {
			return strings.HasPrefix(name, registry+".") && strings.HasSuffix(name, temp)
		})
	}
	logged := ""
	for {
		n.Arm()
		fault := ""
		if err := s.restore(ctx); err != nil && ctx.Err() == nil {
			fault = err.Error()
		}
		if fault != logged && fault != "" {
			s.log.Warn("the agents' cards in the registry cannot be checked", "err", fault)
		}
		logged = fault
		for again := false; !again; {
			why, err := n.Next(ctx)
			if err != nil {
				return
			}
			again = why.Ticked || why.Lost || why.Gone || why.Name == registry
		}
	}
}

// restore puts our cards back into the registry where they are missing or old.
func (s *Store) restore(ctx context.Context) error {
	root, err := s.dir.Open(true)
	if err != nil {
		return err
	}
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.turn.Release(1)
	_, list, err := load(ctx, root, registry)
	_, broken := errors.AsType[*brokenError](err)
	switch {
	case err == nil:
		whole, err := s.putBack(list)
		if err != nil || equal(list, whole) {
			s.seen = list
			return err
		}
	case !broken || len(s.own)+len(s.seen) == 0:
		return err
	}
	return s.change(ctx, s.putBack)
}
