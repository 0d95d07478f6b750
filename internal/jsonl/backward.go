package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Backward reads a file's lines from the last to the first. It leaves out the
// bytes after the last newline, which are a line being written. It takes at most
// about twice the longest line in memory.
type Backward struct {
	max   int
	r     io.ReaderAt
	pos   int64            // offset of buf[0] in the file
	buf   []byte           // read and not returned yet
	block *[blockSize]byte // the pooled one
	open  bool             // buf begins the unfinished end of the file
	long  bool             // the end of a too long line was dropped
	done  bool             // the first line was returned
	at    int64            // offset of the line that was returned last
	skip  func()           // called for each line that is too long
}

// NewBackward reads r from its size on. It leaves out lines of limit bytes and
// more, and calls skip for each. The caller must call Release.
func NewBackward(r io.ReaderAt, size int64, limit int, skip func()) *Backward {
	return &Backward{max: limit, r: r, pos: size, open: true, block: blocks.Get().(*[blockSize]byte), skip: skip}
}

// Release frees the memory of b, which must not be used afterwards.
func (b *Backward) Release() { blocks.Put(b.block) }

// At is the offset of the line that Next returned.
func (b *Backward) At() int64 { return b.at }

// Next returns the preceding line without its newline; it is valid until the
// next call. At the beginning of the file it returns io.EOF.
func (b *Backward) Next() ([]byte, error) {
	for {
		if i := bytes.LastIndexByte(b.buf, '\n'); i >= 0 {
			line := b.buf[i+1:]
			b.buf, b.at = b.buf[:i], b.pos+int64(i)+1
			if b.finish(line) {
				return line, nil
			}
			continue
		}
		if b.pos == 0 {
			if b.done {
				return nil, io.EOF
			}
			b.done, b.at = true, 0
			if b.finish(b.buf) {
				return b.buf, nil
			}
			return nil, io.EOF
		}
		if len(b.buf) > b.max {
			b.long, b.buf = true, nil
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// finish is called at the beginning of a line and reports whether it counts.
func (b *Backward) finish(line []byte) bool {
	switch {
	case b.open:
		b.open, b.long = false, false
		return false
	case b.long || len(line) >= b.max:
		b.long = false
		b.skip()
		return false
	}
	return true
}

// fill reads the bytes before buf: a block, or more if the current line is
// longer, so that each byte is copied about twice.
func (b *Backward) fill() error {
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
			return ErrReplaced // the file has become shorter
		}
		return fmt.Errorf("read backwards: %w", err)
	}
	b.pos -= int64(n)
	return nil
}

// LastLineEnd returns the offset after the last newline before size.
func LastLineEnd(r io.ReaderAt, size int64) (int64, error) {
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	for size > 0 {
		n := min(size, blockSize)
		if _, err := r.ReadAt(block[:n], size-n); err != nil {
			return 0, fmt.Errorf("read the end: %w", err)
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return size - n + int64(i) + 1, nil
		}
		size -= n
	}
	return 0, nil
}
