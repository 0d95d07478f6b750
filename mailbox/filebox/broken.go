package filebox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
	brokenPrefix = registry + ".broken-"
	// maxBroken bounds the broken registries that are kept; the oldest beyond it
	// are removed, with a warning.
	maxBroken = 20
	// staleCard is how old the last heartbeat of another agent is at most for its
	// card to stand in a registry that is built anew.
	staleCard = 7 * 24 * time.Hour
)

// keepBroken keeps what the registry held under a name of its own.
func (s *Store) keepBroken(root *os.Root, data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		s.log.Warn("the registry is empty; built anew from the cards that are known")
		return nil
	}
	for ms := time.Now().UnixMilli(); ; ms++ {
		name := fmt.Sprintf("%s%d", brokenPrefix, ms)
		err := write(root, name, data)
		if errors.Is(err, fs.ErrExist) {
			continue // of another moment that was the same
		}
		if err != nil {
			return fmt.Errorf("keep the broken registry: %w", err)
		}
		s.log.Warn("the registry is broken; kept aside, and built anew from the cards that are known", "kept", name)
		break
	}
	s.pruneBroken(root)
	return nil
}

// moveBroken gives a registry that is too large to be read the name of a broken one.
func (s *Store) moveBroken(root *os.Root, was snapshot) error {
	now, err := root.Lstat(registry)
	if err == nil && !same(now, was.info) {
		return errOvertaken
	}
	name := fmt.Sprintf("%s%d", brokenPrefix, time.Now().UnixMilli())
	if err == nil {
		err = root.Rename(registry, name)
	}
	if err != nil {
		return overtaken(err)
	}
	s.log.Warn("the registry is too large; moved aside, and built anew from the cards that are known", "bytes", now.Size(),
		"most", maxRegistry, "kept", name)
	s.pruneBroken(root)
	return nil
}

// pruneBroken removes the oldest of the broken registries.
func (s *Store) pruneBroken(root *os.Root) {
	list, err := safefile.Names(root)
	if err != nil {
		return // pruned the next time
	}
	list = slices.DeleteFunc(list, func(name string) bool { return !strings.HasPrefix(name, brokenPrefix) })
	slices.Sort(list) // the times have the same number of digits
	for _, name := range list[:max(0, len(list)-maxBroken)] {
		if root.Remove(name) == nil {
			s.log.Warn("removed the oldest of the broken registries", "file", name, "kept", maxBroken)
		}
	}
}

// remembered is a registry from memory: our cards, and those of the last good
// one that can be read and are not stale. The caller holds the cards.
func (c *cards) remembered(now time.Time) (list entries, err error) {
	for _, e := range c.seen {
		card, err := mailbox.DecodeCard(e.id, e.raw)
		if err == nil && now.Sub(card.LastHeartbeat) < staleCard {
			list = append(list, e)
		}
	}
	for id, raw := range c.own {
		e, err := newEntry(id, raw)
		if err != nil {
			return nil, err
		}
		list = list.set(e)
	}
	return list, nil
}
