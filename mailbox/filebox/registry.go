package filebox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

const (
	registry     = "_registry.json"
	registryLock = registry + ".lock"

	// lockWait is how long the registry's lock is waited for: a process that
	// was stopped in the middle may hold it.
	lockWait = 10 * time.Second
	// wholeWait is how long a registry that is not JSON is read again, since
	// another program may be writing it; one that nobody touched for written is
	// broken at once.
	wholeWait = 500 * time.Millisecond
	written   = 2 * time.Second
	// maxTries bounds the rewrites of one change that other programs got in
	// between.
	maxTries = 50
	// maxBroken bounds the broken registries that are kept.
	maxBroken = 20
	// maxRegistry and maxEntries bound the registry. A larger one counts as broken.
	maxRegistry = 8 << 20
	maxEntries  = 10_000
)

var (
	// errBroken is the error of a registry that is not JSON, or too large to be read.
	errBroken     = errors.New("the next heartbeat of a sidecar repairs it")
	errNoRegistry = errors.New("it is not a JSON object of agents")
	errTooMany    = fmt.Errorf("the registry has more than %d entries: remove those of agents that left", maxEntries)
	errTooBig     = fmt.Errorf("the registry has more than %d bytes: remove the entries of agents that left", maxRegistry)
	// errOvertaken says that another program wrote the registry since it was read.
	errOvertaken = errors.New("the registry was written meanwhile")
)

// entries is a registry: agents and their cards, as they were written.
type entries map[mailbox.AgentID]json.RawMessage

func parseRegistry(data []byte) (all entries, err error) {
	if json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &all) != nil || all == nil {
		return nil, errNoRegistry
	}
	if len(all) > maxEntries {
		return nil, errTooMany
	}
	return all, nil
}

// format writes a registry, an entry a line.
func (all entries) format() ([]byte, error) {
	if len(all) > maxEntries {
		return nil, errTooMany
	}
	b := []byte{'{'}
	for i, id := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := relay.Marshal(id)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, "\n  %s: %s", key, all[id])
	}
	if b = append(b, "\n}\n"...); len(b) > maxRegistry {
		return nil, errTooBig
	}
	return b, nil
}

// load reads the registry; a missing one is empty, and has no info. One that is not
// JSON is read again for a while, since a program that writes it in place leaves it empty or
// cut for a moment. The error of a registry that stays so, or is too large, wraps errBroken.
func load(ctx context.Context, root *os.Root) (all entries, info fs.FileInfo, err error) {
	for end := time.Now().Add(wholeWait); ; {
		var data []byte
		data, info, err = read(root, registry, maxRegistry)
		_, large := errors.AsType[tooLong](err)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil, nil
		case errors.Is(err, errNoFile):
			return nil, info, fmt.Errorf("the registry %s: %w: move it away", registry, err)
		case err != nil && !large:
			return nil, info, err
		case !large:
			if all, err = parseRegistry(data); err == nil {
				return all, info, nil
			}
		}
		if large || errors.Is(err, errTooMany) || time.Now().After(end) || time.Since(info.ModTime()) > written {
			return nil, info, fmt.Errorf("the registry %s is broken: %w; %w", registry, err, errBroken)
		}
		if err := wait.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, info, err
		}
	}
}

// change rewrites the registry with c, under the lock that our processes change it under.
func (s *Store) change(ctx context.Context, c mailbox.Card) error {
	lock := jsonl.Log{Folder: &s.dir, Name: registryLock}
	defer lock.Close()
	waiting, cancel := context.WithTimeoutCause(ctx, s.lockWait,
		fmt.Errorf("another process has the registry's lock %s for more than %v: does it hang?", registryLock, s.lockWait))
	defer cancel()
	return jsonl.Retry(waiting, func() error {
		return lock.Do(func(int64) error {
			for range maxTries {
				if err := s.rewrite(ctx, c); !errors.Is(err, errOvertaken) {
					return err
				}
			}
			return fmt.Errorf("other programs wrote the registry %d times in between", maxTries)
		})
	})
}

// rewrite is one attempt of change. A broken registry is kept for a person, and begins again with c: the other
// agents' cards come with their next heartbeats.
func (s *Store) rewrite(ctx context.Context, c mailbox.Card) error {
	root, err := s.dir.Open(true)
	if err != nil {
		return err
	}
	removeOld(root, registry+".")
	all, was, err := load(ctx, root)
	broken := errors.Is(err, errBroken)
	if err != nil && !broken {
		return err
	}
	if all == nil {
		all = entries{}
	}
	if all[c.AgentID], err = mailbox.EncodeCard(c, all[c.AgentID]); err != nil {
		return err
	}
	data, err := all.format()
	if err != nil {
		return err
	}
	aside := registry + "." + randomChars() + temp
	if err := write(root, aside, data); err != nil {
		return err
	}
	defer func() { _ = root.Remove(aside) }() // where it was not renamed
	now, err := root.Lstat(registry)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = nil, nil
	}
	switch {
	case err != nil:
		return err
	case (now == nil) != (was == nil) || now != nil && !same(now, was):
		return errOvertaken
	case broken:
		if err := s.keepBroken(root, now); err != nil {
			return err
		}
	}
	return root.Rename(aside, registry)
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// keepBroken gives a broken registry a name to be kept under, and removes the oldest of these.
func (s *Store) keepBroken(root *os.Root, info fs.FileInfo) error {
	if info.Size() < 2 {
		s.log.Warn("the registry is empty; it is rebuilt with the next heartbeats")
		return nil
	}
	before, _ := fs.Glob(root.FS(), registry+".broken-*") // oldest first: the times have the same number of digits
	for _, name := range before[:max(0, len(before)+1-maxBroken)] {
		_ = root.Remove(name)
	}
	kept := fmt.Sprintf("%s.broken-%d", registry, time.Now().UnixMilli())
	if err := root.Rename(registry, kept); err != nil {
		return fmt.Errorf("keep the broken registry: %w", err)
	}
	s.log.Warn("the registry is invalid; it was renamed and is rebuilt with the next heartbeats", "kept", kept)
	return nil
}

func randomChars() string { return strings.ToLower(rand.Text()[:randomLen]) }

// Cards implements [mailbox.Store].
func (s *Store) Cards(ctx context.Context) ([]mailbox.Card, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	all, _, err := load(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	cards := make([]mailbox.Card, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if card, err := mailbox.DecodeCard(id, all[id]); err == nil {
			cards = append(cards, card)
		}
	}
	return cards, nil
}

// SetCard implements [mailbox.Store]. It waits for other
// processes' changes, at most 10 seconds each.
func (s *Store) SetCard(ctx context.Context, c mailbox.Card) error {
	if err := checkAgent("the", c.AgentID); err != nil {
		return err
	}
	if err := s.change(ctx, c); err != nil {
		return fmt.Errorf("set the card of %s: %w", c.AgentID, err)
	}
	return nil
}
