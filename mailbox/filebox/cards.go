package filebox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// cards is what a store knows of the registry.
type cards struct {
	held chan struct{} // full while somebody changes the registry or what follows

	own  map[mailbox.AgentID]json.RawMessage // the cards set here, as last written
	seen entries                             // the last good registry
}

func newCards() cards {
	return cards{held: make(chan struct{}, 1), own: map[mailbox.AgentID]json.RawMessage{}}
}

// hold waits for its turn; the caller frees it.
func (c *cards) hold(ctx context.Context) error {
	select {
	case c.held <- struct{}{}:
		if err := ctx.Err(); err != nil {
			c.free()
			return err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cards) free() { <-c.held }

// Cards implements [mailbox.Store].
func (s *Store) Cards(ctx context.Context) ([]mailbox.Card, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	_, list, err := load(ctx, func() (snapshot, error) { return readFile(root, registry) })
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
	if err := check("the", c.AgentID); err != nil {
		return err
	}
	if err := s.cards.hold(ctx); err != nil {
		return err
	}
	defer s.cards.free()
	var last json.RawMessage
	err := s.change(ctx, func(list entries) (entries, error) {
		raw, err := mailbox.EncodeCard(c, list.get(c.AgentID))
		if err != nil {
			return nil, err
		}
		last = raw
		e, err := newEntry(c.AgentID, raw)
		if err != nil {
			return nil, err
		}
		return list.set(e), nil
	})
	if err != nil {
		return fmt.Errorf("set the card of %s: %w", c.AgentID, err)
	}
	s.cards.own[c.AgentID] = last
	return nil
}

// change rewrites the registry, under its lock, as edit wants it, with what other
// programs write meanwhile. An edit that returns the list it got writes nothing.
// The caller holds the cards.
func (s *Store) change(ctx context.Context, edit func(entries) (entries, error)) error {
	return s.locked(ctx, func() error { return s.rewrite(ctx, edit) })
}

func (s *Store) rewrite(ctx context.Context, edit func(entries) (entries, error)) error {
	root, err := s.dir.Open(true)
	if err != nil {
		return err
	}
	var newer []merge // what other programs wrote and we replaced
	var kept []byte   // the broken registry that was kept aside
	for range maxTries {
		was, list, err := load(ctx, func() (snapshot, error) { return readFile(root, registry) })
		if broken, ok := errors.AsType[*brokenError](err); ok {
			was = broken.at
			list, err = s.cards.remembered(time.Now())
			switch {
			case err != nil:
			case was.data == nil:
				was, err = snapshot{}, s.moveBroken(root, was)
			case kept == nil || !bytes.Equal(kept, was.data):
				kept = was.data
				err = s.keepBroken(root, kept)
			}
		}
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return err
		}
		base := list
		for _, m := range newer {
			list = m.into(list)
		}
		if list, err = edit(list); err != nil {
			return err
		}
		data, err := list.format()
		if err != nil {
			return err
		}
		if was.info != nil && kept == nil && equal(base, list) {
			s.cards.seen = list
			return nil
		}
		theirs, err := commit(ctx, root, was, data)
		if broken, ok := errors.AsType[*brokenError](err); ok { // ours stands, theirs is no use
			theirs, err = nil, s.keepBroken(root, broken.at.data)
		}
		switch {
		case errors.Is(err, errOvertaken):
			if err := pause(ctx, time.Millisecond); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case theirs == nil:
			s.cards.seen = list
			return nil
		}
		newer = append(newer, merge{base: base, theirs: theirs})
	}
	return fmt.Errorf("other programs wrote the registry %d times in between", maxTries)
}

// equal reports whether two lists hold the same entries, byte for byte.
func equal(a, b entries) bool {
	return slices.EqualFunc(a, b, func(x, y entry) bool { return x.id == y.id && bytes.Equal(x.raw, y.raw) })
}

// merge is a registry that another program wrote from base, and that we replaced.
type merge struct{ base, theirs entries }

// into puts into list what the other program changed. It changes its own entry,
// but may have written old ones of others with it: so the later heartbeat counts.
func (m merge) into(list entries) entries {
	before := make(map[mailbox.AgentID]json.RawMessage, len(m.base))
	for _, e := range m.base {
		before[e.id] = e.raw
	}
	for _, e := range m.theirs {
		if old, ok := before[e.id]; ok && bytes.Equal(old, e.raw) {
			continue
		}
		if now := list.get(e.id); now == nil || later(e.id, e.raw, now, true) {
			list = list.set(e)
		}
	}
	return list
}

// guardCards keeps the cards that were set in the registry until ctx is done.
func (s *Store) guardCards(ctx context.Context) {
	n := safefile.Notices{Dir: s.dir.Path, Recheck: s.recheck, Off: s.deaf, Log: s.log}
	defer n.Close()
	if root, err := s.dir.Open(true); err == nil {
		removeDead(root, func(name string) bool { return strings.HasPrefix(name, registry+".") && strings.HasSuffix(name, temp) })
	}
	g := guard{store: s}
	for {
		n.Arm()
		g.look(ctx)
		for again := false; !again; {
			why, err := n.Next(ctx)
			if err != nil {
				return
			}
			again = why.Ticked || why.Lost || why.Gone || why.Name == registry
		}
	}
}

// guard looks after the cards that a store has set.
type guard struct {
	store *Store
	info  fs.FileInfo // of the registry when all was well; nil: look
	at    time.Time
	said  string // the fault that was logged last
}

// look puts back what is missing.
func (g *guard) look(ctx context.Context) {
	s := g.store
	root, err := s.dir.Open(true)
	if err != nil {
		g.say(err)
		return
	}
	if now, err := root.Lstat(registry); err == nil && g.info != nil && same(now, g.info) && g.at.Sub(now.ModTime()) > racy {
		return
	}
	if s.cards.hold(ctx) != nil {
		return // done, and the turn with it
	}
	defer s.cards.free()
	g.at = time.Now()
	g.info, err = s.restore(ctx, root)
	if ctx.Err() == nil {
		g.say(err)
	}
}

func (g *guard) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != g.said && text != "" {
		g.store.log.Warn("the registry cannot be looked after", "err", err)
	}
	g.said = text
}

// restore puts our cards back into the registry where they are missing or old,
// and returns its state when it is well. The caller holds the cards.
func (s *Store) restore(ctx context.Context, root *os.Root) (fs.FileInfo, error) {
	snap, list, err := load(ctx, func() (snapshot, error) { return readFile(root, registry) })
	_, broken := errors.AsType[*brokenError](err)
	if err != nil && !broken {
		return nil, err
	}
	if !broken {
		s.yield(list)
		if mended, err := s.withOwn(list); err != nil || equal(list, mended) {
			s.cards.seen = list
			return snap.info, err
		}
	}
	if len(s.cards.own) == 0 && len(s.cards.seen) == 0 {
		return nil, err
	}
	return nil, s.change(ctx, s.withOwn)
}

// yield forgets the cards that another process has set since.
func (s *Store) yield(list entries) {
	maps.DeleteFunc(s.cards.own, func(id mailbox.AgentID, own json.RawMessage) bool {
		now := list.get(id)
		return now != nil && later(id, now, own, false)
	})
}

// withOwn returns list with our cards where it has none or older ones.
func (s *Store) withOwn(list entries) (entries, error) {
	for id, own := range s.cards.own {
		now := list.get(id)
		if now != nil && !later(id, own, now, false) {
			continue
		}
		card, err := mailbox.DecodeCard(id, own)
		if err != nil {
			return nil, err
		}
		previous := now // its foreign fields are kept
		if now == nil {
			previous = own
		}
		raw, err := mailbox.EncodeCard(card, previous)
		if err != nil {
			return nil, err
		}
		e, err := newEntry(id, raw)
		if err != nil {
			return nil, err
		}
		list = list.set(e)
	}
	return list, nil
}
