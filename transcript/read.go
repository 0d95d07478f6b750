package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/safefile"
)

// Tail returns the last n messages of a chat in the order of the file, oldest
// first: fewer if the chat has fewer, none for a chat without a transcript. Of
// a message that occurs several times, since others write here too, it returns
// the oldest copy among the lines read. The caller owns the slice.
//
// For a chat that this store appended to, up to about 250 messages come from
// memory, after a check of the file's size.
func (s *Store) Tail(channel, chatID string, n int) ([]Entry, error) {
	return s.TailTo(channel, chatID, n, math.MaxInt64)
}

// TailTo is [Store.Tail] as it was at a time in Unix milliseconds: messages with
// a later ts are skipped, however many they are. So a sidecar that is behind
// gets the messages that preceded an old one.
func (s *Store) TailTo(channel, chatID string, n int, at int64) ([]Entry, error) {
	return s.tailTo(channel, chatID, n, at, (*chatLog).tail)
}

// Outline is [Store.TailTo] without the contents and the files of the messages. For a chat that
// this store appended to, up to about a thousand messages come from memory, however many later
// ones there are: a sidecar with a backlog calls it for each message.
func (s *Store) Outline(channel, chatID string, n int, at int64) ([]Entry, error) {
	entries, err := s.tailTo(channel, chatID, n, at, (*chatLog).outline)
	for i := range entries {
		entries[i].Content, entries[i].Files = "", ""
	}
	return entries, err
}

// tailTo answers from memory, with warm, if the chat is open for appending; if
// it is not, or warm returns false, it reads the files.
func (s *Store) tailTo(channel, chatID string, n int, at int64,
	warm func(*chatLog, int, int64) ([]Entry, bool)) ([]Entry, error) {
	if s.closed() {
		return nil, ErrClosed
	}
	if n <= 0 {
		return nil, nil
	}
	if l, ok := s.chats.Get(chatKey{channel, chatID}); ok {
		if entries, ok := l.read(n, at, warm); ok {
			return entries, nil
		}
	}
	name := fileName(channel, chatID)
	for range 3 { // read again if the file was cut meanwhile
		g := gatherer{n: n, at: at}
		err := s.back(name, g.takeEntry)
		if errors.Is(err, jsonl.ErrReplaced) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the end of transcript %s: %w", name, err)
		}
		return g.inOrder(), nil
	}
	return nil, fmt.Errorf("read the end of transcript %s: %w", name, jsonl.ErrReplaced)
}

// read calls warm after reading the lines that others appended. It returns false
// if memory does not match the file.
func (l *chatLog) read(n int, at int64, warm func(*chatLog, int, int64) ([]Entry, bool)) ([]Entry, bool) {
	l.mu.Lock() // an append that waits for the file's lock does not hold it
	defer l.unlock()
	if !l.current() {
		return nil, false
	}
	return warm(l, n, at)
}

// current reads the lines that others appended; false if memory does not match the file.
// The caller holds mu.
func (l *chatLog) current() bool {
	if !l.loaded {
		return false
	}
	size, err := l.log.Size()
	return err == nil && l.readAhead(size)
}

// tail is Store.TailTo; the caller holds mu. Messages that are not in memory are read
// from the file, beginning at the last one that is not later than at.
func (l *chatLog) tail(n int, at int64) ([]Entry, bool) {
	if entries, ok := l.recent.tail(n, at); ok {
		return entries, true
	}
	g := gatherer{n: n, at: at}
	_, err := l.readBack(l.recent.upTo(at, place{offset: l.place.Offset()}), func(_ place, line []byte) bool {
		e, found := l.store.entry(line)
		return !found || g.takeEntry(e)
	})
	return g.inOrder(), err == nil
}

// outline is Store.Outline; the caller holds mu.
func (l *chatLog) outline(n int, at int64) ([]Entry, bool) {
	for {
		entries, ok := l.recent.outline(n, at)
		if ok {
			return entries, true
		}
		if !l.extend(max(n-len(entries), extendBy), at) {
			return nil, false
		}
	}
}

// Back returns the entries of a chat from the newest to the oldest, read lazily
// in blocks across the rotated files, until the caller ends the iteration. It
// includes repeats of a message_id. It ends after an error.
func (s *Store) Back(channel, chatID string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if s.closed() {
			yield(Entry{}, ErrClosed)
			return
		}
		name := fileName(channel, chatID)
		err := s.back(name, func(e Entry) bool { return yield(e, nil) })
		if err != nil {
			yield(Entry{}, fmt.Errorf("read transcript %s back: %w", name, err))
		}
	}
}

// back passes a chat's entries to take, newest first, until take returns false.
func (s *Store) back(name string, take func(Entry) bool) error {
	f, size, err := s.openToRead(name)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	_, err = s.walk(name, f, size, take)
	return err
}

// openToRead opens a regular file in the folder; nil if it does not exist.
func (s *Store) openToRead(file string) (*os.File, int64, error) {
	root, err := s.dir.Open(false)
	var f *os.File
	if err == nil {
		f, err = safefile.Open(root, file, os.O_RDONLY)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// walk passes the entries of a chat to take, newest first, until take returns
// false: those of the open file f before size, then those of the files rotated
// before it. f is nil if the chat has no current file. whole reports that it
// reached the beginning of the chat.
func (s *Store) walk(name string, f *os.File, size int64, take func(Entry) bool) (whole bool, err error) {
	return s.walkLines(name, f, place{offset: size}, func(_ place, line []byte) bool {
		e, found := s.entry(line)
		return !found || take(e)
	})
}

// entry reads a line. It counts a line that is not an entry.
func (s *Store) entry(line []byte) (e Entry, found bool) {
	e, found, whole := parse(line)
	if !whole && !blank(line) {
		s.skipped.Add(1)
	}
	return e, found
}

// place is where a line begins: a file of a chat and an offset in it.
type place struct {
	segment int // number of the rotated file; 0: the one that is being written to
	offset  int64
}

// file is the name of the file that p is in.
func (p place) file(name string) string {
	if p.segment == 0 {
		return name
	}
	return segmentName(name, p.segment)
}

// walkLines is walk for undecoded lines, beginning before from, which is in the
// open file f. A line is valid during the call only.
func (s *Store) walkLines(name string, f *os.File, from place,
	take func(at place, line []byte) bool) (whole bool, err error) {
	var info os.FileInfo
	if f != nil {
		if more, err := s.walkFile(f, from, take); !more || err != nil {
			return false, err
		}
		if info, err = f.Stat(); err != nil {
			return false, err
		}
	}
	older, err := s.before(name, from.segment, info)
	if err != nil {
		return false, err
	}
	for _, number := range older {
		f, size, err := s.openToRead(segmentName(name, number))
		if err != nil {
			return false, err
		}
		if f == nil {
			continue // deleted meanwhile
		}
		more, err := s.walkFile(f, place{number, size}, take)
		if err = errors.Join(err, f.Close()); !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// before lists the rotated files, newest first, that are older than the one with
// number, or, if that is 0, than the current file, which info describes.
func (s *Store) before(name string, number int, info os.FileInfo) ([]int, error) {
	if number == 0 {
		older, _, err := s.olderThan(name, info)
		return older, err
	}
	all, err := s.segments(name)
	return slices.DeleteFunc(all, func(n int) bool { return n >= number }), err
}

// walkFile is walkLines for one file. It reports whether take wants more.
func (s *Store) walkFile(r io.ReaderAt, from place, take func(at place, line []byte) bool) (more bool, err error) {
	b := jsonl.NewBackward(r, from.offset, MaxLine, func() { s.skipped.Add(1) })
	defer b.Release()
	for {
		line, err := b.Next()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if !take(place{from.segment, b.At()}, line) {
			return false, nil
		}
	}
}

// blank reports whether a line is empty, which is not an error.
func blank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

// Chat is a transcript in the folder.
type Chat struct {
	Channel, ChatID string
	Size            int64     // bytes of all its files
	Modified        time.Time // of the newest one
	LastTS          int64     // of the newest entry, Unix milliseconds; 0: none
	Last            *Entry    // the newest entry, its content cut to LastBytes; nil: none
}

// LastBytes is the most bytes of [Chat.Last]'s content. The rest is "…".
const LastBytes = 600

// Chats lists the transcripts in the folder, the one last written to first.
// Other files are ignored, and so is a chat whose id was too long to be a file
// name, since only a hash of it is left.
func (s *Store) Chats() ([]Chat, error) {
	if s.closed() {
		return nil, ErrClosed
	}
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	root, err := s.dir.Open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list transcripts: %w", err)
	}
	byName := make(map[string]*Chat)
	for _, file := range files {
		name, _, ok := splitSegment(file)
		if !ok {
			continue
		}
		channel, chatID, ok := parseName(name)
		if !ok {
			continue
		}
		info, err := root.Stat(file)
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
		err := s.back(name, func(e Entry) bool {
			if edits.take(&e) {
				return true
			}
			e = edits.shown(e)
			e.Content = runes.Short(e.Content, LastBytes)
			c.Last, c.LastTS = &e, e.TS
			return false
		})
		if err != nil && !errors.Is(err, jsonl.ErrReplaced) {
			return nil, fmt.Errorf("read transcript %s: %w", name, err)
		}
		chats = append(chats, *c)
	}
	slices.SortFunc(chats, func(a, b Chat) int {
		if c := b.Modified.Compare(a.Modified); c != 0 {
			return c
		}
		return strings.Compare(a.Channel+"_"+a.ChatID, b.Channel+"_"+b.ChatID)
	})
	return chats, nil
}
