package filebox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
	suffix = ".msg.json"
	temp   = ".tmp"

	// randomLen is how many random letters a name of ours has, behind six digits of nanoseconds.
	randomLen = 8

	// countEvery is how many messages a store puts into an inbox between two
	// looks at how many wait there. Other processes' messages of that time are
	// not seen: with n of them writing, up to n·countEvery more than
	// mailbox.MaxInbox may wait; with one it is exact.
	countEvery = 256
	// maxStem is what is kept of a name that gets an addition.
	maxStem = 200

	// maxProcessed and maxAge bound what was taken: what is older, and the
	// oldest beyond the number, is removed.
	maxProcessed = 10_000
	maxAge       = 30 * 24 * time.Hour
	// maxMalformed bounds the malformed messages; the oldest beyond it are removed.
	maxMalformed = 1000
	// pruneEvery is how many messages are taken, by one process, between two looks
	// at these bounds; pruneAfter is how much time passes at most.
	pruneEvery = 1000
	pruneAfter = time.Hour
	// deadTemp is when the temporary file of a killed writer is removed.
	deadTemp = 24 * time.Hour
)

// The folders of an agent, in the order that mail goes through them.
const (
	inbox     = "inbox"
	processed = "processed"
	malformed = "malformed"
)

var places = []struct {
	folder string
	mailbox.Place
}{{inbox, mailbox.Waiting}, {processed, mailbox.Processed}, {malformed, mailbox.Aside}}

// isMail reports whether name is that of a message.
func isMail(name string) bool { return strings.HasSuffix(name, suffix) }

// isKey reports whether key can be the name of a message in a folder.
func isKey(key string) bool {
	return isMail(key) && filepath.IsLocal(key) && filepath.Base(key) == key && !strings.Contains(key, "\x00")
}

// newName names a message: <ms>_<from>_<suffix>.msg.json. Each has a time of its own.
func (s *Store) newName(from mailbox.AgentID) string {
	s.mu.Lock()
	s.named = max(s.named+1, time.Now().UnixNano())
	at := time.Unix(0, s.named)
	s.mu.Unlock()
	return fmt.Sprintf("%d_%s_%06d%s%s", at.UnixMilli(), from, at.Nanosecond()%1e6, randomChars(), suffix)
}

// byAge compares names by the time that they begin with: in seconds below 10^11, in
// milliseconds below 10^14, else in something finer; those of ours by the nanoseconds behind it.
func byAge(a, b string) int {
	return cmp.Or(cmp.Compare(msOf(a), msOf(b)), cmp.Compare(fineOf(a), fineOf(b)), cmp.Compare(a, b))
}

func msOf(name string) int64 {
	digits := name[:len(name)-len(strings.TrimLeft(name, "0123456789"))]
	ms, _ := strconv.ParseInt(digits, 10, 64) // no digits: 0; too many: the largest
	if ms < 1e11 {
		ms *= 1000
	}
	for ms >= 1e14 {
		ms /= 1000
	}
	return ms
}

// fineOf is the digits in the suffix of a name of ours.
func fineOf(name string) string {
	own := strings.TrimSuffix(name, suffix)
	own = own[strings.LastIndexByte(own, '_')+1:]
	if len(own) != 6+randomLen || strings.Trim(own[:6], "0123456789") != "" {
		return ""
	}
	return own[:6]
}

// mail lists the messages in a folder, the oldest first.
func mail(folder *os.Root) ([]string, error) {
	list, err := safefile.Names(folder)
	list = slices.DeleteFunc(list, func(name string) bool { return !isMail(name) })
	slices.SortFunc(list, byAge)
	return list, err
}

// agent opens an agent's folder; a missing one is an error ([fs.ErrNotExist]).
func (s *Store) agent(id mailbox.AgentID) (*os.Root, error) {
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	return root.OpenRoot(string(id))
}

// folder opens a folder of an agent, making it where it is missing.
func (s *Store) folder(id mailbox.AgentID, name string) (*os.Root, error) {
	root, err := s.dir.Open(true)
	if err != nil {
		return nil, err
	}
	folder, err := root.OpenRoot(filepath.Join(string(id), name))
	if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	agent, err := safefile.OpenSub(root, string(id))
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	return safefile.OpenSub(agent, name)
}

// vanished reports whether err comes from a folder that was removed or replaced
// in the middle of a call: then the call is worth a second try.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrClosed)
}

// Put implements [mailbox.Store]. Its error wraps a disk's or file system's one,
// such as that of a full disk.
func (s *Store) Put(ctx context.Context, m mailbox.Sealed) (key string, err error) {
	return s.Again(ctx, "", m)
}

// Again implements [mailbox.Store]: what waits keeps its key. A message taken in that very moment comes
// twice.
func (s *Store) Again(ctx context.Context, key string, m mailbox.Sealed) (newKey string, err error) {
	if err := cmp.Or(ctx.Err(), checkAgent("to", m.To), checkAgent("from", m.From), m.CheckSize()); err != nil {
		return "", err
	}
	for range 2 {
		if newKey, err = s.put(key, m); !vanished(err) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("put into the inbox of %s: %w", m.To, err)
	}
	return newKey, nil
}

// put writes a file in the place of the one of that key, if that waits, else a new one.
func (s *Store) put(key string, m mailbox.Sealed) (string, error) {
	box, err := s.folder(m.To, inbox)
	if err != nil {
		return "", err
	}
	defer box.Close()
	name := key
	if !isKey(key) || !there(box, key) {
		if err := s.room(m.To, box); err != nil {
			return "", err
		}
		name = s.newName(m.From)
	}
	aside := name + "." + randomChars() + temp
	if err := write(box, aside, m.Raw); err != nil {
		return "", err
	}
	if err := box.Rename(aside, name); err != nil {
		_ = box.Remove(aside)
		return "", err
	}
	return name, nil
}

func there(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}

// write makes a new file with data; where that fails, it leaves no file.
func write(root *os.Root, name string, data []byte) error {
	f, err := safefile.Open(root, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = root.Remove(name)
	}
	return err
}

// count is what is known of the number of messages in an inbox.
type count struct{ counted, since int }

// room takes one place in an inbox.
func (s *Store) room(to mailbox.AgentID, box *os.Root) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[to]
	if c == nil || c.since >= countEvery || c.counted+c.since >= mailbox.MaxInbox {
		list, err := safefile.Names(box)
		if err != nil {
			return err
		}
		c = &count{counted: len(slices.DeleteFunc(list, func(name string) bool { return !isMail(name) }))}
		s.counts[to] = c
	}
	if c.counted+c.since >= mailbox.MaxInbox {
		return mailbox.ErrFull
	}
	c.since++
	return nil
}

// Where implements [mailbox.Store]. A message in processed is known there until
// it is pruned ([maxProcessed], [maxAge]), and one in malformed likewise ([maxMalformed]).
func (s *Store) Where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	if err := cmp.Or(ctx.Err(), checkAgent("to", to)); err != nil || !isKey(key) {
		return mailbox.Gone, err
	}
	root, err := s.agent(to)
	if err == nil {
		defer root.Close()
		for _, p := range places {
			if _, err = root.Lstat(p.folder + "/" + key); err == nil {
				return p.Place, nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return mailbox.Gone, nil
	}
	return mailbox.Gone, fmt.Errorf("look for %s: %w", key, err)
}

// Read implements [mailbox.Store].
func (s *Store) Read(ctx context.Context, agent mailbox.AgentID, key string) (mailbox.Item, error) {
	if err := cmp.Or(ctx.Err(), checkAgent("the", agent)); err != nil {
		return mailbox.Item{}, err
	}
	if !isKey(key) {
		return mailbox.Item{}, mailbox.ErrGone
	}
	root, err := s.agent(agent)
	if err == nil {
		defer root.Close()
		var raw []byte
		if raw, _, err = read(root, inbox+"/"+key, mailbox.MaxEnvelope); err == nil {
			return mailbox.Item{Key: key, Raw: raw}, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return mailbox.Item{}, mailbox.ErrGone
	}
	return mailbox.Item{}, fmt.Errorf("read from the inbox of %s: %w", agent, err)
}

// errNoFile and tooLong are errors of read.
var errNoFile = errors.New("it is no regular file")

type tooLong int64

func (most tooLong) Error() string { return fmt.Sprintf("it has more than %d bytes", int64(most)) }

// read returns what a file of at most that many bytes holds, and what it looked like. It
// follows no link.
func read(root *os.Root, name string, most int64) ([]byte, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, info, errNoFile
	case info.Size() > most:
		return nil, info, tooLong(most)
	}
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, info, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, info.Size()+1)) // one that grew meanwhile is cut, and not JSON
	return raw, info, err
}

// Settle implements [mailbox.Store]. A message of the same name that is there
// already is kept beside it.
func (s *Store) Settle(ctx context.Context, agent mailbox.AgentID, key string, how mailbox.Outcome) error {
	if err := cmp.Or(ctx.Err(), checkAgent("the", agent)); err != nil || !isKey(key) {
		return err
	}
	to := processed
	if how == mailbox.Malformed {
		to = malformed
	}
	if err := s.move(agent, key, to); err != nil {
		return fmt.Errorf("move a message of %s to %s: %w", agent, to, err)
	}
	if s.settled.Add(1)%pruneEvery == 0 {
		s.prune(agent)
	}
	return nil
}

// move takes a message out of the inbox; one that is gone is no error.
func (s *Store) move(agent mailbox.AgentID, key, to string) error {
	root, err := s.agent(agent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	from, target := inbox+"/"+key, to+"/"+key
	if there(root, target) {
		stem := strings.TrimSuffix(key, suffix)
		stem = stem[:min(len(stem), maxStem)] // a foreign name may be as long as names can be
		target = to + "/" + stem + "_" + randomChars() + suffix
	}
	err = root.Rename(from, target)
	if errors.Is(err, fs.ErrNotExist) && there(root, from) {
		made, failed := s.folder(agent, to)
		if failed != nil {
			return failed
		}
		_ = made.Close()
		err = root.Rename(from, target)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	// From now on the file's time says when it was taken: its age counts from
	// there. Another's file may forbid it, and is pruned by its own time then.
	now := time.Now()
	if info, err := root.Lstat(target); err == nil && info.Mode().IsRegular() {
		_ = root.Chtimes(target, now, now)
	}
	return nil
}

// prune keeps an agent's folders within their bounds. What it cannot remove it
// leaves for the next time.
func (s *Store) prune(agent mailbox.AgentID) {
	root, err := s.agent(agent)
	if err != nil {
		return
	}
	defer root.Close()
	pruneFolder(root, processed, maxProcessed, maxAge)
	if n := pruneFolder(root, malformed, maxMalformed, 0); n > 0 {
		s.log.Warn("removed the oldest malformed messages", "count", n, "kept", maxMalformed)
	}
	if box, err := root.OpenRoot(inbox); err == nil {
		removeOld(box, suffix)
		_ = box.Close()
	}
}

// pruneFolder removes the oldest messages beyond the number most, and from the
// oldest on those that are older than life (0: any age).
func pruneFolder(agent *os.Root, folder string, most int, life time.Duration) (removed int) {
	root, err := agent.OpenRoot(folder)
	if err != nil {
		return 0
	}
	defer root.Close()
	list, _ := mail(root)
	for i, name := range list {
		info, err := root.Lstat(name)
		if i >= len(list)-most && (life == 0 || err != nil || time.Since(info.ModTime()) < life) {
			break
		}
		if err == nil && !info.IsDir() && root.Remove(name) == nil {
			removed++
		}
	}
	return removed
}

// removeOld removes the temporary files of writers that were killed, whose names contain part.
func removeOld(root *os.Root, part string) {
	list, _ := safefile.Names(root)
	for _, name := range list {
		if !strings.Contains(name, part) || !strings.HasSuffix(name, temp) {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > deadTemp {
			_ = root.Remove(name)
		}
	}
}
