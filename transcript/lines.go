package transcript

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// place is where a line begins: a file of a chat and an offset in it. It stays valid when the file is
// rotated.
type place struct {
	number int // of the file, see [Store.numbers]
	offset int64
}

// end is after the last line of every chat.
var end = place{math.MaxInt, math.MaxInt64}

// raw is a line as it is in a file.
type raw struct {
	at   place
	text []byte // without its newline; valid until the next line is read
}

// back reads a chat's lines from the one before a place to the first one, through the rotated files. An
// error ends it. files is the content of the folder; nil means that it is listed.
func (s *Store) back(name string, from place, files []string) iter.Seq2[raw, error] {
	return func(yield func(raw, error) bool) {
		f, info, err := s.openToRead(name)
		// The number is looked for after the file was opened, which may be rotated meanwhile.
		number, older, errNumber := s.numbers(name, info, files)
		for err = errors.Join(err, errNumber); err == nil; f, info, err = s.openToRead(segmentName(name, number)) {
			if f != nil {
				size := info.Size()
				switch {
				case number > from.number:
					size = 0
				case number == from.number:
					size = min(size, from.offset)
				}
				for line, err := range s.linesOf(f, number, size) {
					if !yield(line, err) || err != nil {
						return
					}
				}
			}
			if len(older) == 0 {
				return
			}
			number, older = older[0], older[1:]
		}
		_ = f.Close() // if it is open
		yield(raw{}, err)
	}
}

// linesOf is back for the first size bytes of one file, and closes it.
func (s *Store) linesOf(f *os.File, number int, size int64) iter.Seq2[raw, error] {
	return func(yield func(raw, error) bool) {
		defer f.Close()
		for l, err := range jsonl.Backward(f, size, relay.MaxLine) {
			switch {
			case errors.Is(err, jsonl.ErrReplaced): // somebody has just cut the file
			case err == nil && l.Text == nil:
				s.skipped.Add(1)
			case !yield(raw{place{number, l.Start}, l.Text}, err):
				return
			}
		}
	}
}

// openToRead opens a regular file in the folder; nil if it does not exist.
func (s *Store) openToRead(file string) (f *os.File, info fs.FileInfo, err error) {
	root, err := s.dir.Open(false)
	if err == nil {
		f, err = safefile.Open(root, file, os.O_RDONLY)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return nil, nil, nil
	}
	if err == nil {
		info, err = f.Stat()
	}
	return f, info, err
}

// entry reads a line. It counts a line that is not an entry, unless it is empty.
func (s *Store) entry(text []byte) (e Entry, found bool) {
	e, found, whole := parse(text)
	if !whole && len(bytes.TrimSpace(text)) > 0 {
		s.skipped.Add(1)
	}
	return e, found
}

const (
	// sameWithin is the most milliseconds between the times of two lines of equal text, of which one has no
	// id, that are the same message.
	sameWithin = 5000
	// sameReach is how many lines near a line without an id are compared with it.
	sameReach = 256
)

// seed is shared by all stores: hashes are compared in this process only.
var seed = maphash.MakeSeed()

// known is what it takes to recognise the message of a line.
type known struct {
	id, edited, sum uint64 // hashes of its id and of that of the message that it edits, 0: none; of role, sender, content
	ts              int64
}

func knownOf(e *Entry) known {
	k := known{ts: e.TS, sum: maphash.Comparable(seed, [...]string{e.Role, e.Sender, e.Content})}
	if e.MessageID != "" {
		k.id = maphash.String(seed, e.MessageID)
	}
	if e.EditOf != "" {
		k.edited = maphash.String(seed, e.EditOf)
	}
	return k
}

// same reports whether two lines, of which at least one has no id, are the same message, or edits of one.
// A line without a time never is.
func (k known) same(other known) bool {
	return (k.id == 0 || other.id == 0) && k.sum == other.sum && k.edited == other.edited &&
		k.ts != 0 && other.ts != 0 && max(k.ts-other.ts, other.ts-k.ts) <= sameWithin
}

// gatherer collects entries that are passed to it newest first.
type gatherer struct {
	entries []Entry
	known   []known // of entries
	ids     map[uint64]bool
	edits   edits
}

// add adds e with its newest content.
func (g *gatherer) add(e Entry, k known) {
	if g.ids == nil {
		g.ids = map[uint64]bool{}
	}
	g.entries, g.known = append(g.entries, g.edits.shown(e)), append(g.known, k)
	g.ids[k.id] = true
}

// has reports whether the message was added, and prefers e if it has an id and the other one has none.
func (g *gatherer) has(e Entry, k known) bool {
	if k.id != 0 && (g.ids[k.id] || !g.ids[0]) {
		return g.ids[k.id]
	}
	from := max(0, len(g.known)-sameReach)
	i := slices.IndexFunc(g.known[from:], k.same)
	if i >= 0 && k.id != 0 {
		g.entries, g.known = slices.Delete(g.entries, from+i, from+i+1), slices.Delete(g.known, from+i, from+i+1)
		g.add(e, k)
	}
	return i >= 0
}

// all returns what was gathered, oldest first.
func (g *gatherer) all() []Entry {
	slices.Reverse(g.entries)
	return g.entries
}
