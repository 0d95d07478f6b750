package filebox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
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
	// maxStem is what is kept of a name that gets an addition.
	maxStem = 200
	// deadTemp is when the temporary file of a killed writer is removed.
	deadTemp = 24 * time.Hour
)

// Read implements [mailbox.Store].
func (s *Store) Read(ctx context.Context, agent mailbox.AgentID, key string) (mailbox.Item, error) {
	none := mailbox.Item{}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := check("the", agent); err != nil {
		return none, err
	}
	if !isKey(key) {
		return none, mailbox.ErrGone
	}
	root, err := s.agent(agent)
	if err == nil {
		defer root.Close()
		var raw []byte
		if raw, _, err = read(root, inbox+"/"+key); err == nil {
			return mailbox.Item{Key: key, Raw: raw}, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return none, mailbox.ErrGone
	}
	return none, fmt.Errorf("read from the inbox of %s: %w", agent, err)
}

// Errors of read.
var (
	errNoFile  = errors.New("it is no regular file")
	errTooLong = fmt.Errorf("it has more than %d bytes", mailbox.MaxEnvelope)
)

// read returns a message and what its file looked like. It follows no link and
// reads at most one byte more than a message may have.
func read(root *os.Root, name string) ([]byte, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, info, errNoFile
	case info.Size() > mailbox.MaxEnvelope:
		return nil, info, errTooLong
	}
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, info, err
	}
	defer f.Close()
	raw := make([]byte, info.Size()+1)
	n, err := io.ReadFull(f, raw)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return raw[:n:n], info, nil // one that grew meanwhile is cut, and no JSON
	}
	return nil, info, err
}

// Settle implements [mailbox.Store]. A message of the same name that lies there
// already is kept beside it.
func (s *Store) Settle(ctx context.Context, agent mailbox.AgentID, key string, how mailbox.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := check("the", agent); err != nil {
		return err
	}
	if !isKey(key) {
		return nil
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
	if _, err := root.Lstat(target); err == nil {
		stem := strings.TrimSuffix(key, suffix)
		stem = stem[:min(len(stem), maxStem)] // a foreign name may be as long as names can be
		target = to + "/" + stem + "_" + strings.ToLower(rand.Text()[:randomChars]) + suffix
	}
	err = root.Rename(from, target)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		made, err := s.makeSub(agent, to)
		if err != nil {
			return err
		}
		_ = made.Close()
		if err := root.Rename(from, target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else if err != nil {
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
	s.pruneFolder(root, processed, maxProcessed, maxAge)
	s.pruneFolder(root, malformed, maxMalformed, 0)
	if box, err := root.OpenRoot(inbox); err == nil {
		removeDead(box, func(name string) bool { return strings.HasSuffix(name, temp) && strings.Contains(name, suffix) })
		_ = box.Close()
	}
}

// pruneFolder removes the oldest messages beyond the number most, and from the
// oldest on those that have lain longer than life (0: any time).
func (s *Store) pruneFolder(agent *os.Root, folder string, most int, life time.Duration) {
	root, err := agent.OpenRoot(folder)
	if err != nil {
		return
	}
	defer root.Close()
	list, err := safefile.Names(root)
	if err != nil {
		return
	}
	list = slices.DeleteFunc(list, func(name string) bool { return !isMail(name) })
	slices.SortFunc(list, compareNames)
	removed := 0
	for i, name := range list {
		if i >= len(list)-most {
			if life == 0 {
				break
			}
			info, err := root.Lstat(name)
			if err != nil || time.Since(info.ModTime()) < life {
				break
			}
		}
		if info, err := root.Lstat(name); err == nil && !info.IsDir() && root.Remove(name) == nil {
			removed++
		}
	}
	if removed > 0 && folder == malformed {
		s.log.Warn("removed the oldest malformed messages", "count", removed, "kept", most)
	}
}

// removeDead removes the temporary files of writers that were killed.
func removeDead(root *os.Root, is func(name string) bool) {
	list, err := safefile.Names(root)
	if err != nil {
		return
	}
	for _, name := range list {
		if !is(name) {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > deadTemp {
			_ = root.Remove(name)
		}
	}
}
