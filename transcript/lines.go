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

// line is an entry as it is gathered and remembered.
type line struct {
	Entry
	at  place
	sum uint64 // of role, sender and content
}

// seed is shared by all stores: sums are compared in this process only.
var seed = maphash.MakeSeed()

func lineOf(e Entry, at place) line {
	return line{Entry: e, at: at, sum: maphash.Comparable(seed, [...]string{e.Role, e.Sender, e.Content})}
}

// same reports whether two lines, of which at least one has no id, are the same message, or edits of one.
// A line without a time never is.
func (l *line) same(other *line) bool {
	return (l.MessageID == "" || other.MessageID == "") && l.sum == other.sum && l.EditOf == other.EditOf &&
		l.TS != 0 && other.TS != 0 && max(l.TS-other.TS, other.TS-l.TS) <= sameWithin
}

// find returns the index of the same message among the last of lines, or -1.
func find(lines []line, l *line) int {
	for i := len(lines) - 1; i >= max(0, len(lines)-sameReach); i-- {
		if l.same(&lines[i]) {
			return i
		}
	}
	return -1
}

// gatherer collects lines that are passed to it newest first.
type gatherer struct {
	lines []line
	ids   map[string]bool // of lines; nil: not used yet
	edits edits
}

// add adds l with its newest content.
func (g *gatherer) add(l *line) {
	g.lines = append(g.lines, *l)
	l = &g.lines[len(g.lines)-1]
	l.Entry = g.edits.shown(l.Entry)
	if g.ids != nil {
		g.ids[l.MessageID] = true
	}
}

// known reports whether the message of l was added, and prefers l if it has an id and the other one has none.
func (g *gatherer) known(l *line) bool {
	if g.ids == nil {
		g.ids = map[string]bool{}
		for i := range g.lines {
			g.ids[g.lines[i].MessageID] = true
		}
	}
	if l.MessageID != "" && (g.ids[l.MessageID] || !g.ids[""]) {
		return g.ids[l.MessageID]
	}
	i := find(g.lines, l)
	if i >= 0 && l.MessageID != "" {
		g.lines = slices.Delete(g.lines, i, i+1)
		g.add(l)
	}
	return i >= 0
}

// entries returns what was gathered, oldest first.
func (g *gatherer) entries() []Entry {
	all := make([]Entry, 0, len(g.lines))
	for _, l := range slices.Backward(g.lines) {
		all = append(all, l.Entry)
	}
	return all
}
