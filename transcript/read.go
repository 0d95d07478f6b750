package transcript

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Tail returns the last n messages of a chat in the order of the file, oldest
// first: fewer if the chat has fewer, none for a chat without a transcript. A message that
// others wrote several times is returned once. The caller owns the slice.
func (s *Store) Tail(channel, chatID string, n int) ([]Entry, error) {
	return s.TailTo(channel, chatID, n, math.MaxInt64)
}

// TailTo is [Store.Tail] as it was at a time in Unix milliseconds: messages with
// a later ts are skipped, however many they are. So a sidecar that is behind
// gets the messages that preceded an old one.
func (s *Store) TailTo(channel, chatID string, n int, at int64) ([]Entry, error) {
	if s.closed.Load() {
		return nil, os.ErrClosed
	}
	if n <= 0 {
		return nil, nil
	}
	var g gatherer
	for r, err := range s.back(fileName(channel, chatID), end, nil) {
		if err != nil {
			return nil, fmt.Errorf("read the end of transcript %s: %w", fileName(channel, chatID), err)
		}
		if e, found := s.entry(r.text); found {
			k := knownOf(&e)
			if e.TS <= at && !g.has(e, k) && !g.edits.take(&e) {
				g.add(e, k)
			}
			if len(g.entries) == n {
				break
			}
		}
	}
	return g.all(), nil
}

// Chat is a transcript in the folder.
type Chat struct {
	Channel, ChatID string
	Size            int64     // bytes of all its files
	Modified        time.Time // of the newest one
	LastTS          int64     // of the newest message, Unix milliseconds; 0: none
	Last            *Entry    // the newest message, as [Entry.Short]; nil: none
}

// Chats lists the transcripts in the folder, the one last written to first.
// Other files are ignored, and so is a chat whose id was too long to be a file
// name, since only a hash of it is left.
func (s *Store) Chats() ([]Chat, error) {
	if s.closed.Load() {
		return nil, os.ErrClosed
	}
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*Chat)
	for _, file := range files {
		name, _, _ := splitSegment(file)
		channel, chatID, ok := parseName(name)
		if !ok {
			continue
		}
		info, err := s.dir.Stat(file)
		if err != nil || !info.Mode().IsRegular() {
			continue // moved away meanwhile, or not a regular file
		}
		c := byName[name]
		if c == nil {
			c = &Chat{Channel: channel, ChatID: chatID}
			byName[name] = c
		}
		c.Size += info.Size()
		if info.ModTime().After(c.Modified) {
			c.Modified = info.ModTime()
		}
	}
	chats := make([]Chat, 0, len(byName))
	for name, c := range byName {
		var edits edits
		for r, err := range s.back(name, end, files) {
			if err != nil {
				return nil, fmt.Errorf("read transcript %s: %w", name, err)
			}
			if e, found := s.entry(r.text); found && !edits.take(&e) {
				e = edits.shown(e).Short()
				c.Last, c.LastTS = &e, e.TS
				break
			}
		}
		chats = append(chats, *c)
	}
	slices.SortFunc(chats, func(a, b Chat) int {
		return cmp.Or(b.Modified.Compare(a.Modified), strings.Compare(a.Channel+"_"+a.ChatID, b.Channel+"_"+b.ChatID))
	})
	return chats, nil
}
