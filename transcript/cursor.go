package transcript

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/jsonl"
)

// Errors of a page's cursor.
var (
	// ErrCursor is returned for a text that is not a cursor of a [Page].
	ErrCursor = errors.New("not a cursor of a transcript")
	// ErrCursorGone is returned if the line that a cursor names is no longer in
	// its place: the file was deleted, cut or edited.
	ErrCursorGone = errors.New("the line that the cursor names is gone from the transcript")
)

// cursor names a line by its place, its length and a hash. The line is looked
// for at the same offset in every file of the chat, since a rotation renames
// the current file.
type cursor struct {
	place
	length int // of the line without its newline
	sum    uint64
}

func cursorOf(at place, line []byte) cursor { return cursor{at, len(line), sum(line)} }

func sum(line []byte) (first uint64) {
	hash := sha256.Sum256(line)
	for _, b := range hash[:8] {
		first = first<<8 | uint64(b)
	}
	return first
}

func (c cursor) String() string {
	return fmt.Sprintf("%d-%d-%d-%016x", c.segment, c.offset, c.length, c.sum)
}

// parseCursor is the inverse of String and refuses any other text.
func parseCursor(text string) (c cursor, err error) {
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return cursor{}, ErrCursor
	}
	var errs [4]error
	c.segment, errs[0] = strconv.Atoi(parts[0])
	c.offset, errs[1] = strconv.ParseInt(parts[1], 10, 64)
	c.length, errs[2] = strconv.Atoi(parts[2])
	c.sum, errs[3] = strconv.ParseUint(parts[3], 16, 64)
	if errors.Join(errs[:]...) != nil || c.String() != text || c.length > MaxLine || c.offset > math.MaxInt64-MaxLine-1 {
		return cursor{}, ErrCursor
	}
	return c, nil
}

// find opens the file that contains the line of c, and returns the line's
// place.
func (s *Store) find(name string, c cursor) (*os.File, place, error) {
	f, err := s.fit(name, c)
	if f != nil || err != nil {
		return f, c.place, err
	}
	numbers, err := s.segments(name)
	if err != nil {
		return nil, place{}, err
	}
	for _, number := range slices.Concat([]int{0}, numbers) {
		if number == c.segment {
			continue
		}
		c := cursor{place{number, c.offset}, c.length, c.sum}
		if f, err := s.fit(name, c); f != nil || err != nil {
			return f, c.place, err
		}
	}
	return nil, place{}, ErrCursorGone
}

// fit opens the named file if it contains the line of c; else it returns nil.
func (s *Store) fit(name string, c cursor) (*os.File, error) {
	f, size, err := s.openToRead(c.file(name))
	if f == nil || err != nil {
		return nil, err
	}
	if c.offset+int64(c.length) < size {
		around := make([]byte, 1+c.length+1)
		around[0] = '\n' // before the file's first line
		begin := min(c.offset, 1)
		_, err := f.ReadAt(around[1-begin:], c.offset-begin)
		line, ended := bytes.CutSuffix(around[1:], []byte{'\n'})
		if err == nil && around[0] == '\n' && ended && (sum(line) == c.sum || jsonl.IsReplaced(line)) {
			return f, nil
		}
	}
	return nil, f.Close()
}
