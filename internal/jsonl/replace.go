package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"feishu-relay/internal/safefile"
)

// ErrNoRoom says that a line's new text is not shorter than the line.
var ErrNoRoom = errors.New("the new text of a line has to be shorter than the old one")

// Replace gives the newest line of a file for which change returns a text that text, in a
// live file or a rotated one, while others read it and append to it. Spaces behind the text
// keep all other lines where they are, and show readers that the line was replaced and not
// the file. Lines of limit bytes and more are left out. It reports whether there was such a
// line, and returns [ErrLocked] at once while another process has the file's lock.
func Replace(root *os.Root, name string, limit int, change func(line []byte) (text []byte)) (done bool, err error) {
	f, err := safefile.Open(root, name, os.O_RDWR)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // which frees the lock
	ok, err := safefile.TryLock(f)
	if err != nil {
		return false, err
	}
	if !ok {
		return false, ErrLocked
	}
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	lines := NewBackward(f, info.Size(), limit, func() {})
	defer lines.Release()
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		text := change(line)
		if text == nil {
			continue
		}
		if len(text) >= len(line) || bytes.IndexByte(text, '\n') >= 0 {
			return false, fmt.Errorf("%s: %w", name, ErrNoRoom)
		}
		padded := append(bytes.Clone(text), bytes.Repeat([]byte{' '}, len(line)-len(text))...)
		_, err = f.WriteAt(padded, lines.At())
		return err == nil, err
	}
}

// replacedLines reports whether now differs from was, which stood in the same place, only
// in lines that [Replace] may have written.
func replacedLines(now, was []byte) bool {
	if len(now) != len(was) {
		return false
	}
	for len(was) > 0 {
		end := bytes.IndexByte(was, '\n')
		if end < 0 {
			return bytes.Equal(now, was) // a line that is not finished is not replaced
		}
		if n, w := now[:end+1], was[:end+1]; !bytes.Equal(n, w) &&
			(bytes.IndexByte(n, '\n') != end || !bytes.HasSuffix(n, []byte(" \n"))) {
			return false
		}
		now, was = now[end+1:], was[end+1:]
	}
	return true
}
