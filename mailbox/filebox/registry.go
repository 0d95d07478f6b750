package filebox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

const (
	registry     = "_registry.json"
	registryLock = registry + ".lock"
	brokenPrefix = registry + ".broken-"

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
	// maxBroken bounds the broken registries that are kept; the oldest beyond it
	// are removed, with a warning.
	maxBroken = 20
	// staleCard is how old the last heartbeat of another agent is at most for its
	// card to be in a registry that is built again.
	staleCard = 7 * 24 * time.Hour
)

// snapshot is the registry's file at one time.
type snapshot struct {
	data []byte
	info fs.FileInfo // nil: there was no file
}

// errBroken is the error of a registry that is not JSON, or too large to be read.
var errBroken = errors.New("the next heartbeat of a sidecar repairs it")

// load reads a registry from the file of that name; a missing one is empty. One that is not
// JSON is read again for a while, since a program that writes it in place leaves it empty or
// cut for a moment. The error of a registry that stays so, or is too large, wraps errBroken.
func load(ctx context.Context, root *os.Root, name string) (was snapshot, list entries, err error) {
	for end := time.Now().Add(wholeWait); ; {
		was.data, was.info, err = read(root, name, maxRegistry)
		_, large := errors.AsType[tooLong](err)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return snapshot{}, nil, nil
		case errors.Is(err, errNoFile):
			return was, nil, fmt.Errorf("the registry %s: %w: move it away", registry, err)
		case err != nil && !large:
			return was, nil, err
		case !large:
			if list, err = parseRegistry(was.data); err == nil && len(was.data) > 0 {
				return was, list, nil
			}
		}
		if large || errors.Is(err, errTooMany) || time.Now().After(end) || time.Since(was.info.ModTime()) > written {
			return was, nil, fmt.Errorf("the registry %s is broken: %w; %w", registry, cmp.Or(err, errNoRegistry), errBroken)
		}
		if err := wait.Sleep(ctx, 10*time.Millisecond); err != nil {
			return was, nil, err
		}
	}
}

// change rewrites the registry, under the lock that our processes change it under, as edit
// wants it and with what other programs write meanwhile. An edit that returns the list it
// got writes nothing. The caller has the turn.
func (s *Store) change(ctx context.Context, edit func(entries) (entries, error)) error {
	lock := jsonl.Log{Folder: &s.dir, Name: registryLock}
	defer lock.Close()
	waiting, cancel := context.WithTimeoutCause(ctx, s.lockWait,
		fmt.Errorf("another process has the registry's lock %s for more than %v: does it hang?", registryLock, s.lockWait))
	defer cancel()
	return jsonl.Retry(waiting, func() error {
		return lock.Do(func(int64) error { return s.rewrite(ctx, edit) })
	})
}

func (s *Store) rewrite(ctx context.Context, edit func(entries) (entries, error)) error {
	root, err := s.dir.Open(true)
	if err != nil {
		return err
	}
	for range maxTries {
		was, list, err := load(ctx, root, registry)
		broken := errors.Is(err, errBroken)
		if broken {
			list = s.remembered()
		} else if err != nil {
			return err
		}
		base := list
		if list, err = edit(list); err != nil {
			return err
		}
		data, err := list.format()
		if err == nil && (was.info == nil || broken || !equal(base, list)) {
			err = s.commit(root, was, broken, data)
		}
		if err == nil {
			s.seen = list
		}
		if !errors.Is(err, errOvertaken) {
			return err
		}
		if err := wait.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("other programs wrote the registry %d times in between", maxTries)
}

// errOvertaken says that another program wrote the registry since it was read.
var errOvertaken = errors.New("the registry was written meanwhile")

// commit replaces the registry, which was read as was, by data. When it returns
// [errOvertaken], another program has written it meanwhile, and what that wrote is there. A
// broken registry is kept for a person.
func (s *Store) commit(root *os.Root, was snapshot, broken bool, data []byte) error {
	aside := registry + "." + randomChars() + temp
	if err := write(root, aside, data); err != nil {
		return err
	}
	defer func() { _ = root.Remove(aside) }() // ours, or what it replaced
	now, err := root.Lstat(registry)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return err
	case missing && was.info == nil:
		if err = root.Link(aside, registry); err != nil && !errors.Is(err, fs.ErrExist) {
			err = root.Rename(aside, registry) // a file system without links
		}
		return overtaken(err)
	case missing || was.info == nil || !same(now, was.info):
		return errOvertaken
	}
	err = swap(root, aside, was.data, data, broken)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		if err = nil; broken {
			err = s.keepBroken(root, registry, was.data)
		}
		if err == nil {
			err = root.Rename(aside, registry)
		}
	case err == nil && broken:
		return s.keepBroken(root, aside, was.data)
	}
	return overtaken(err)
}

// swap lets the registry, which holds was, and the file aside, which holds data, change places.
// Where something else comes out of the registry, another program has written it in the last
// moment: then it goes back, and the error is [errOvertaken]. What another program writes while
// it goes back goes back, too. Of a broken registry, which can be too large to compare, anything
// that is no registry may come out.
func swap(root *os.Root, aside string, was, data []byte, broken bool) error {
	for try := range maxTries {
		if err := exchange(root, aside, registry); err != nil {
			return err
		}
		out, _, err := read(root, aside, maxRegistry)
		expected := err == nil && bytes.Equal(out, was)
		if broken && try == 0 && !expected {
			_, invalid := parseRegistry(out)
			expected = err != nil || invalid != nil || len(out) == 0
		}
		if expected {
			if try == 0 {
				return nil
			}
			break
		}
		was, data = data, out // what is in the registry now comes out next
	}
	return errOvertaken
}

// overtaken turns the error about a registry that is gone, or there already, into
// errOvertaken.
func overtaken(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errOvertaken
	}
	return err
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// keepBroken gives a broken registry, which holds data or too much, a name to be kept under,
// and removes the oldest of these.
func (s *Store) keepBroken(root *os.Root, name string, data []byte) error {
	if info, err := root.Lstat(name); err == nil && info.Size() <= maxRegistry && len(bytes.TrimSpace(data)) == 0 {
		s.log.Warn("the registry is empty; it is rebuilt from the known cards")
		return nil
	}
	list, _ := safefile.Names(root) // else the oldest are removed the next time
	list = slices.DeleteFunc(list, func(name string) bool { return !strings.HasPrefix(name, brokenPrefix) })
	slices.Sort(list) // the times have the same number of digits
	newest, _ := strconv.ParseInt(strings.TrimPrefix(slices.Max(append(list, brokenPrefix)), brokenPrefix), 10, 64)
	kept := brokenPrefix + strconv.FormatInt(max(time.Now().UnixMilli(), newest+1), 10) // in their order within 1 ms, too
	if err := root.Rename(name, kept); err != nil {
		return fmt.Errorf("keep the broken registry: %w", err)
	}
	s.log.Warn("the registry is invalid; it was renamed and is rebuilt from the known cards", "kept", kept)
	for _, name := range list[:max(0, len(list)+1-maxBroken)] {
		if root.Remove(name) == nil {
			s.log.Warn("removed the oldest of the broken registries", "file", name, "kept", maxBroken)
		}
	}
	return nil
}

// remembered is a registry from memory: our cards, and those of the last good
// one that can be read and are not stale. The caller has the turn.
func (s *Store) remembered() (list entries) {
	for _, e := range s.seen {
		if time.Since(e.beat()) < staleCard {
			list = append(list, e)
		}
	}
	for _, e := range s.own {
		list = list.with(e)
	}
	return list
}

func randomChars() string { return strings.ToLower(rand.Text()[:randomLen]) }

// equal reports whether two lists have the same entries, byte for byte.
func equal(a, b entries) bool {
	return slices.EqualFunc(a, b, func(x, y entry) bool { return x.id == y.id && bytes.Equal(x.raw, y.raw) })
}

// putBack returns list with our cards where it has none or older ones. Those that another
// process has set since are not ours any more.
func (s *Store) putBack(list entries) (entries, error) {
	for id, own := range s.own {
		now, ok := list.get(id)
		switch {
		case !ok:
			list = list.with(own)
		case now.beat().After(own.beat()):
			delete(s.own, id)
		case own.beat().After(now.beat()):
			card, err := mailbox.DecodeCard(id, own.raw)
			if err == nil {
				own.raw, err = mailbox.EncodeCard(card, now.raw) // its foreign fields are kept
			}
			if err != nil {
				return nil, err
			}
			list = list.with(own)
		}
	}
	return list, nil
}

// maxRegistry and maxEntries bound the registry. One that is larger is neither
// read nor written: that is an error that names the bound.
const (
	maxRegistry = 8 << 20
	maxEntries  = 10_000
)

// entry is one agent's in the registry. Key and value stay as they were
// written, byte for byte.
type entry struct {
	id  mailbox.AgentID
	key json.RawMessage // a JSON string
	raw json.RawMessage
}

// beat is the heartbeat of e; one that cannot be read is older than any.
func (e entry) beat() time.Time {
	c, err := mailbox.DecodeCard(e.id, e.raw)
	if err != nil {
		return time.Time{}.Add(-1)
	}
	return c.LastHeartbeat
}

// entries is a registry in the order of its file.
type entries []entry

var (
	errNoRegistry = errors.New("it is not a JSON object of agents")
	errTooMany    = fmt.Errorf("the registry has more than %d entries: remove those of agents that left", maxEntries)
	errTooBig     = fmt.Errorf("the registry has more than %d bytes: remove the entries of agents that left", maxRegistry)
)

// parseRegistry reads a registry. No content at all is an empty one; of two entries
// under one key the later counts, as everywhere.
func parseRegistry(data []byte) (list entries, err error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoRegistry
	}
	places := map[mailbox.AgentID]int{}
	for dec.More() {
		from := dec.InputOffset()
		t, err := dec.Token()
		id, ok := t.(string)
		e := entry{id: mailbox.AgentID(id), key: bytes.Clone(bytes.TrimLeft(data[from:dec.InputOffset()], " \t\r\n,"))}
		if err != nil || !ok || dec.Decode(&e.raw) != nil {
			return nil, errNoRegistry
		}
		if at, twice := places[e.id]; twice {
			list[at] = e
			continue
		}
		if len(list) == maxEntries {
			return nil, errTooMany
		}
		places[e.id] = len(list)
		list = append(list, e)
	}
	_, err = dec.Token() // the closing brace
	if _, end := dec.Token(); err != nil || !errors.Is(end, io.EOF) {
		return nil, errNoRegistry
	}
	return list, nil
}

// format writes a registry, one entry after the other.
func (l entries) format() ([]byte, error) {
	if len(l) > maxEntries {
		return nil, errTooMany
	}
	b := []byte{'{'}
	for i, e := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n  %s: %s", e.key, e.raw)
	}
	if b = append(b, "\n}\n"...); len(b) > maxRegistry {
		return nil, errTooBig
	}
	return b, nil
}

func (l entries) index(id mailbox.AgentID) int {
	return slices.IndexFunc(l, func(e entry) bool { return e.id == id })
}

// get returns an agent's entry.
func (l entries) get(id mailbox.AgentID) (entry, bool) {
	if i := l.index(id); i >= 0 {
		return l[i], true
	}
	return entry{}, false
}

// with replaces an agent's entry, or adds it at the end. It leaves l itself as it is.
func (l entries) with(e entry) entries {
	i := l.index(e.id)
	if l = slices.Clone(l); i < 0 {
		return append(l, e)
	}
	l[i].raw = e.raw
	return l
}

func newEntry(id mailbox.AgentID, raw []byte) entry {
	key, _ := relay.Marshal(id) // a string is always JSON
	return entry{id: id, key: key, raw: raw}
}

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
			again = why.Ticked || why.Lost || why.Name == registry
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
	switch {
	case err == nil:
		whole, err := s.putBack(list)
		if err != nil || equal(list, whole) {
			s.seen = list
			return err
		}
	case !errors.Is(err, errBroken) || len(s.own)+len(s.seen) == 0:
		return err
	}
	return s.change(ctx, s.putBack)
}
