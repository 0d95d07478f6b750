package jsonl

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"feishu-relay/internal/safefile"
)

// replacedMark ends a line that [Replace] has written: white space that no other program
// writes.
const replacedMark = " \t \t \t \t"

// ErrNoRoom means that the new text of a line is too long for it.
var ErrNoRoom = fmt.Errorf("the new text of a line has to be at least %d bytes shorter than the old one",
	len(replacedMark))

// Replace replaces each line for which change returns a text with that text, and returns how many it replaced. The file
// may be a current or a rotated one, and others may read it and append to it. White space after the text keeps all
// other lines in place, and its end shows readers that the line was replaced and not the file. Lines of limit bytes and
// more are passed as nil. It locks the file only for the writes, and returns [ErrLocked] at once if another process has
// the lock, and [ErrReplaced] if it changes what was read. After a crash in the middle of a write the line may be a mix
// of both texts; a repeat replaces it. A position stored less than 256 bytes after the line is not found again after a
// restart, and the file is read from its beginning.
func Replace(root *os.Root, name string, limit int, change func(line []byte) (text []byte)) (n int, err error) {
	f, err := safefile.Open(root, name, os.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for l, err := range Backward(f, info.Size(), limit) {
		if err != nil {
			return n, err
		}
		text := change(l.Text)
		if text == nil {
			continue
		}
		if !Fits(text, l.Text) || bytes.IndexByte(text, '\n') >= 0 {
			return n, fmt.Errorf("%s: %w", name, ErrNoRoom)
		}
		room := len(l.Text) - len(text) - len(replacedMark)
		padded := slices.Concat(text, bytes.Repeat([]byte{' '}, room), []byte(replacedMark))
		if err = overwrite(f, l.Start, l.Text, padded); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// overwrite writes text in place of was, which was read at offset at of f, under the
// lock of f.
func overwrite(f *os.File, at int64, was, text []byte) error {
	if ok, err := safefile.TryLock(f); !ok {
		return cmp.Or(err, ErrLocked)
	}
	defer func() { _ = safefile.Unlock(f) }() // the close releases it, too
	now := make([]byte, len(was))
	if _, err := f.ReadAt(now, at); err != nil || !bytes.Equal(now, was) {
		return errors.Join(ErrReplaced, err)
	}
	_, err := f.WriteAt(text, at)
	return err
}

// Fits reports whether a line has room for another text.
func Fits(text, line []byte) bool { return len(text)+len(replacedMark) <= len(line) }

// replacedLines reports whether now differs from was, the earlier bytes in the same
// place, only in lines that [Replace] may have written.
func replacedLines(now, was []byte) bool {
	if len(now) != len(was) {
		return false
	}
	for len(was) > 0 {
		end := bytes.IndexByte(was, '\n')
		if end < 0 {
			return bytes.Equal(now, was) // an unfinished line is not replaced
		}
		mark := []byte(replacedMark + "\n")
		mark = mark[max(0, len(mark)-end-1):] // the beginning of the first line may be missing
		if n, w := now[:end+1], was[:end+1]; !bytes.Equal(n, w) &&
			(bytes.IndexByte(n, '\n') != end || !bytes.HasSuffix(n, mark)) {
			return false
		}
		now, was = now[end+1:], was[end+1:]
	}
	return true
}
