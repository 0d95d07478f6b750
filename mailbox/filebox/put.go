package filebox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
	// countEvery is how many messages a store puts into an inbox between two
	// looks at how many wait there. Other processes' messages of that time are
	// not seen: with n of them writing, up to n·countEvery more than
	// mailbox.MaxInbox may wait; with one it is exact.
	countEvery = 256
	// maxCounts bounds the inboxes whose numbers are remembered; beyond it all
	// are counted anew.
	maxCounts = 10_000
)

// count is what is known of the number of messages in an inbox.
type count struct{ counted, since int }

// Put implements [mailbox.Store]. Its error wraps a disk's or file system's one,
// such as that of a full disk.
func (s *Store) Put(ctx context.Context, e mailbox.Envelope) (key string, err error) {
	data, err := s.prepare(ctx, e)
	if err != nil {
		return "", err
	}
	return s.put(e, data)
}

// prepare checks e and encodes it.
func (s *Store) prepare(ctx context.Context, e mailbox.Envelope) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := check("to", e.To); err != nil {
		return nil, err
	}
	if err := check("from", e.From); err != nil {
		return nil, err
	}
	return s.signing.Encode(e)
}

func (s *Store) put(e mailbox.Envelope, data []byte) (string, error) {
	key, err := s.lay(e, data)
	if vanished(err) {
		key, err = s.lay(e, data)
	}
	if err != nil {
		return "", fmt.Errorf("put into the inbox of %s: %w", e.To, err)
	}
	return key, nil
}

// lay writes a new file. Holding <name>.tmp exclusively is holding the name, so
// that the look at the name before the rename cannot be overtaken.
func (s *Store) lay(e mailbox.Envelope, data []byte) (string, error) {
	box, err := s.inbox(e.To)
	if err != nil {
		return "", err
	}
	defer box.Close()
	if err := s.room(e.To, box); err != nil {
		return "", err
	}
	name := newName(e.From, s.clock.now())
	if err := write(box, name+temp, data); err != nil {
		return "", err
	}
	switch _, err = box.Lstat(name); {
	case err == nil:
		err = &fs.PathError{Op: "put", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		err = box.Rename(name+temp, name)
	}
	if err != nil {
		_ = box.Remove(name + temp)
		return "", err
	}
	return name, nil
}

// write makes a new file with data; where that fails, none is left.
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
		if len(s.counts) >= maxCounts {
			clear(s.counts)
		}
		c = &count{}
		for _, name := range list {
			if isMail(name) {
				c.counted++
			}
		}
		s.counts[to] = c
	}
	if c.counted+c.since >= mailbox.MaxInbox {
		return mailbox.ErrFull
	}
	c.since++
	return nil
}

// Again implements [mailbox.Store]: what waits keeps its key. On file systems
// that cannot exchange two files, a message taken in that very moment comes
// twice.
func (s *Store) Again(ctx context.Context, key string, e mailbox.Envelope) (newKey string, err error) {
	data, err := s.prepare(ctx, e)
	if err != nil {
		return "", err
	}
	if isKey(key) {
		err := s.replace(e.To, key, data)
		if err == nil {
			return key, nil
		}
		if !vanished(err) {
			return "", fmt.Errorf("replace in the inbox of %s: %w", e.To, err)
		}
	}
	return s.put(e, data)
}

// replace writes data in the place of a message that waits.
func (s *Store) replace(to mailbox.AgentID, key string, data []byte) error {
	box, err := s.inbox(to)
	if err != nil {
		return err
	}
	defer box.Close()
	if _, err := box.Lstat(key); err != nil {
		return err
	}
	aside := key + "." + strings.ToLower(rand.Text()[:randomChars]) + temp
	if err := write(box, aside, data); err != nil {
		return err
	}
	err = exchange(box, aside, key)
	if errors.Is(err, errors.ErrUnsupported) {
		if _, err = box.Lstat(key); err == nil {
			err = box.Rename(aside, key)
		}
	}
	_ = box.Remove(aside) // ours where it failed, else the earlier copy
	return err
}

// Where implements [mailbox.Store]. A message in processed is known there until
// it is pruned ([maxProcessed], [maxAge]), and one in malformed likewise ([maxMalformed]).
func (s *Store) Where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	if err := ctx.Err(); err != nil {
		return mailbox.Gone, err
	}
	if err := check("to", to); err != nil {
		return mailbox.Gone, err
	}
	if !isKey(key) {
		return mailbox.Gone, nil
	}
	root, err := s.agent(to)
	if errors.Is(err, fs.ErrNotExist) {
		return mailbox.Gone, nil
	}
	if err != nil {
		return mailbox.Gone, fmt.Errorf("look for %s: %w", key, err)
	}
	defer root.Close()
	for _, at := range []struct {
		folder string
		place  mailbox.Place
	}{{inbox, mailbox.Waiting}, {processed, mailbox.Processed}, {malformed, mailbox.Aside}} { // the way that mail goes
		switch _, err := root.Lstat(at.folder + "/" + key); {
		case err == nil:
			return at.place, nil
		case !errors.Is(err, fs.ErrNotExist):
			return mailbox.Gone, fmt.Errorf("look for %s: %w", key, err)
		}
	}
	return mailbox.Gone, nil
}
