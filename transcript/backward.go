package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// blockSize is how much is read at once. A line that is longer is gathered
// from several blocks.
const blockSize = 64 << 10

// blocks spares the allocation of a block at each call.
var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// backward reads a file's lines from the last to the first. What stands behind
// the last newline is a line that is being written, and is left out. It holds
// at most about twice MaxLine in memory.
type backward struct {
	r     io.ReaderAt
	pos   int64            // place of buf[0] in the file
	buf   []byte           // read and not handed out yet
	block *[blockSize]byte // the pooled one
	open  bool             // buf begins the unfinished end of the file
	long  bool             // the end of a line that is too long was dropped
	done  bool             // the first line was handed out
	at    int64            // place of the line that was handed out last
	skip  func()           // told of each line that is too long
}

// newBackward reads r from its size on. release gives back what it holds.
func newBackward(r io.ReaderAt, size int64, skip func()) *backward {
	return &backward{r: r, pos: size, open: true, block: blocks.Get().(*[blockSize]byte), skip: skip}
}

func (b *backward) release() { blocks.Put(b.block) }

// next returns the line before, without its newline; it is valid until the next
// call. The end, that is the file's beginning, is io.EOF.
func (b *backward) next() ([]byte, error) {
	for {
		if i := bytes.LastIndexByte(b.buf, '\n'); i >= 0 {
			line := b.buf[i+1:]
			b.buf, b.at = b.buf[:i], b.pos+int64(i)+1
			if b.finish() {
				return line, nil
			}
			continue
		}
		if b.pos == 0 {
			if b.done {
				return nil, io.EOF
			}
			b.done, b.at = true, 0
			if b.finish() {
				return b.buf, nil
			}
			return nil, io.EOF
		}
		if len(b.buf) > MaxLine {
			b.long, b.buf = true, nil
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// finish is called at the beginning of a line and reports whether it counts.
func (b *backward) finish() bool {
	switch {
	case b.open:
		b.open, b.long = false, false
		return false
	case b.long:
		b.long = false
		b.skip()
		return false
	}
	return true
}

// fill reads what stands before buf: a block, and more of it the longer the line
// is that is being gathered, so that gathering copies each byte about twice.
func (b *backward) fill() error {
	rest := b.buf
	n := int(min(b.pos, int64(max(blockSize, len(rest)))))
	if len(rest) == 0 {
		b.buf = b.block[:n]
	} else {
		b.buf = make([]byte, n+len(rest))
		copy(b.buf[n:], rest)
	}
	if _, err := b.r.ReadAt(b.buf[:n], b.pos-int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			return errReplaced // it was longer a moment ago
		}
		return fmt.Errorf("read transcript backwards: %w", err)
	}
	b.pos -= int64(n)
	return nil
}

// lastLineEnd returns the place behind the last newline before size.
func lastLineEnd(r io.ReaderAt, size int64) (int64, error) {
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	for size > 0 {
		n := min(size, blockSize)
		if _, err := r.ReadAt(block[:n], size-n); err != nil {
			return 0, fmt.Errorf("read the end of the transcript: %w", err)
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return size - n + int64(i) + 1, nil
		}
		size -= n
	}
	return 0, nil
}
