// Package jsonl writes and reads files of lines that grow while they are read, and that
// any program may append to, cut, replace or rotate meanwhile. [Log] appends and rotates,
// [Tail] follows, [Backward] reads from the end, [Replace] replaces the text of a line,
// and [Journal] is a file with one writer that now and then replaces the content with the
// lines still needed.
package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// guardSize is how many bytes before a place are compared to verify the place.
	guardSize = 256
	blockSize = 64 << 10 // read at once; more for a longer line
	// maxLooks is how often bytes are compared: replacing a line is much faster
	// than reading it so often.
	maxLooks  = 3
	replacing = time.Millisecond
)

// blocks saves allocating a block at each call.
var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// ErrReplaced means that the bytes before a place are not those that were read:
// the file was cut, or cut and filled again.
var ErrReplaced = errors.New("the file was replaced in place")

// Sum is a hash of the bytes before a place, which identifies the place, as 16 hex digits.
type Sum string

func sumOf(before []byte) Sum {
	return Sum(fmt.Sprintf("%016x", xxhash.Sum64(before[max(0, len(before)-guardSize):])))
}

// Line is a finished line of a file.
type Line struct {
	Text       []byte // without its newline; valid during the call; nil: too long
	Start, End int64  // End is after the newline
	before     []byte // the bytes before End, at least guardSize if the file has as many
}

// Sum is the sum of the place after l. Like Text it is valid during the call.
func (l Line) Sum() Sum { return sumOf(l.before) }

// Tail is a place in a growing file up to which the file was read. It holds no
// buffer between calls. Make one with [NewTail].
type Tail struct {
	max    int
	offset int64
	guard  []byte // the bytes before offset, at most guardSize
	inside bool   // offset is inside a too long line
}

// NewTail returns the beginning of a file whose lines have fewer than limit
// bytes.
func NewTail(limit int) Tail { return Tail{max: limit} }

// At returns the place at offset of f, or [ErrReplaced] if f is shorter.
func At(f io.ReaderAt, limit int, offset int64) (Tail, error) {
	t := NewTail(limit)
	guard := make([]byte, min(offset, guardSize))
	_, err := f.ReadAt(guard, offset-int64(len(guard)))
	if errors.Is(err, io.EOF) {
		err = ErrReplaced
	}
	t.offset, t.guard = offset, guard
	return t, err
}

// Offset is the offset of the first byte that was not read.
func (t *Tail) Offset() int64 { return t.offset }

// Sum is the sum of the bytes before t.
func (t *Tail) Sum() Sum { return sumOf(t.guard) }

// Inside reports whether t is inside a too long line.
func (t *Tail) Inside() bool { return t.inside }

// Reset moves t to the beginning of the file.
func (t *Tail) Reset() { *t = NewTail(t.max) }

// Skip moves t past text, the bytes after t.
func (t *Tail) Skip(text []byte) {
	t.offset, t.inside = t.offset+int64(len(text)), false
	text = text[max(0, len(text)-guardSize):]
	kept := copy(t.guard, t.guard[max(0, len(t.guard)+len(text)-guardSize):])
	t.guard = append(t.guard[:kept], text...)
}

// Read passes each finished line before size to take, until take returns false,
// and returns the number of bytes read. It does not read past the last newline.
// Memory is bounded by the longest line and a block.
func (t *Tail) Read(f io.ReaderAt, size int64, take func(Line) bool) (read int64, err error) {
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	buf := block[:]
	for looks := 0; ; {
		if size < t.offset {
			return read, ErrReplaced
		}
		from := t.offset - int64(len(t.guard))
		data := buf[:min(size-from, int64(len(buf)))]
		if n, err := f.ReadAt(data, from); n < len(data) {
			if errors.Is(err, io.EOF) {
				err = ErrReplaced // the file has become shorter
			}
			return read, err
		}
		fresh, same := t.afterGuard(data)
		if !same && looks < maxLooks { // a line may be in the middle of a Replace
			looks++
			time.Sleep(replacing)
			continue
		}
		if !same {
			return read, ErrReplaced
		}
		looks = 0
		used, more := t.lines(data, len(t.guard), take)
		switch {
		case used > 0 || len(fresh) == 0:
		case len(fresh) >= t.max:
			t.inside, used = true, len(fresh)
		case from+int64(len(data)) == size:
			return read, nil // unfinished
		default:
			buf = make([]byte, min(2*len(buf), guardSize+t.max+blockSize))
			continue
		}
		read += int64(used)
		end := len(t.guard) + used
		t.offset += int64(used)
		t.guard = append(t.guard[:0], data[max(0, end-guardSize):end]...)
		if !more || t.offset == size {
			return read, nil
		}
	}
}

// lines passes the finished lines of data after at to take, and returns their
// size in bytes.
func (t *Tail) lines(data []byte, at int, take func(Line) bool) (used int, more bool) {
	begin := at
	for {
		length := bytes.IndexByte(data[at:], '\n')
		if length < 0 {
			if t.inside {
				at = len(data)
			}
			return at - begin, true
		}
		end := at + length + 1
		l := Line{Text: data[at : end-1 : end-1], Start: t.offset + int64(at-begin), End: t.offset + int64(end-begin),
			before: data[:end]}
		if t.inside || length >= t.max {
			l.Text, t.inside = nil, false
		}
		at = end
		if !take(l) {
			return at - begin, false
		}
	}
}

// afterGuard cuts the bytes before t off data, and reports whether they are those that were
// read, except for lines that [Replace] has replaced.
func (t *Tail) afterGuard(data []byte) (fresh []byte, same bool) {
	if fresh, same = bytes.CutPrefix(data, t.guard); same {
		return fresh, true
	}
	n := len(t.guard)
	if len(data) < n || !replacedLines(data[:n], t.guard) {
		return nil, false
	}
	copy(t.guard, data)
	return data[n:], true
}
