package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Backward reads the lines of r before size from the last to the first. It leaves out the bytes after the last
// newline, which are a line being written. A line of limit bytes or more has no text; a text is valid until the next
// line. An error ends it, such as [ErrReplaced] if r has become shorter. At most about twice the longest line is in
// memory.
func Backward(r io.ReaderAt, size int64, limit int) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		block := blocks.Get().(*[blockSize]byte)
		defer blocks.Put(block)
		var buf []byte                // the bytes from begin to the end of the current line
		begin, end := size, int64(-1) // end is after the line's newline; -1: it has none
		for long := false; ; {
			newline := bytes.LastIndexByte(buf, '\n')
			if newline < 0 && begin > 0 {
				if len(buf) > limit {
					long, buf = true, nil
				}
				// A block, or more if the line is longer, so that each byte is copied about twice.
				n := int(min(begin, int64(max(blockSize, len(buf)))))
				more := block[:min(n, blockSize)]
				if len(buf) > 0 {
					more = make([]byte, n+len(buf))
					copy(more[n:], buf)
				}
				if _, err := r.ReadAt(more[:n], begin-int64(n)); err != nil {
					if errors.Is(err, io.EOF) {
						err = ErrReplaced
					}
					yield(Line{}, fmt.Errorf("read backwards: %w", err))
					return
				}
				buf, begin = more, begin-int64(n)
				continue
			}
			l := Line{Text: buf[newline+1:], Start: begin + int64(newline) + 1, End: end}
			if long || len(l.Text) >= limit {
				l.Text = nil
			}
			if end >= 0 && !yield(l, nil) || newline < 0 {
				return
			}
			long, buf, end = false, buf[:newline], l.Start
		}
	}
}
