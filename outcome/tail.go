package outcome

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"feishu-relay/internal/safefile"
)

const (
	chunkSize = 64 << 10 // read at once; more than the longest line
	// guardSize is how many bytes before the place of reading are remembered, to
	// notice a file whose content was exchanged beneath it.
	guardSize = 32
)

// tail takes whole lines from a file that grows.
type tail struct {
	file   *os.File
	info   fs.FileInfo // when it was opened: which file it is
	offset int64       // everything before it was read
	guard  []byte      // the bytes before offset, at most guardSize
	inside bool        // offset stands inside a line that is passed over
	torn   bool        // something without an end stood behind offset
}

// openTail opens a file to be read from its beginning, or where from is more
// than 0 from the first line that begins at from or behind it; nil: there is none.
func openTail(root *os.Root, name string, from int64) (*tail, error) {
	if size(root, name) < 0 {
		return nil, nil
	}
	file, err := safefile.Open(root, name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read outcomes: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read outcomes: %w", err), file.Close())
	}
	t := &tail{file: file, info: info}
	if from > 0 && from <= info.Size() {
		t.offset, t.inside = from-1, true
	}
	return t, nil
}

// is reports whether name below root is the file of t.
func (t *tail) is(root *os.Root, name string) bool {
	info, err := root.Stat(name)
	return err == nil && os.SameFile(info, t.info)
}

// size is how long a file is, or -1 where there is none.
func size(root *os.Root, name string) int64 {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	return info.Size()
}

// read hands over the finished lines that were not read yet; take gets nil for
// one that is too long. A file that was cut, or cut and filled again, is read
// from its beginning. buf holds chunkSize bytes.
func (t *tail) read(ctx context.Context, buf []byte, take func([]byte)) error {
	for ctx.Err() == nil {
		n, err := t.file.ReadAt(buf, t.offset-int64(len(t.guard)))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read outcomes: %w", err)
		}
		fresh, same := bytes.CutPrefix(buf[:n], t.guard)
		if !same {
			*t = tail{file: t.file, info: t.info}
			continue
		}
		used := t.lines(fresh, take)
		t.torn = used < len(fresh)
		if used == 0 {
			return nil
		}
		t.offset += int64(used)
		end := n - len(fresh) + used
		t.guard = append(t.guard[:0], buf[max(0, end-guardSize):end]...)
	}
	return nil
}

// lines hands over the finished lines of data and returns how much it is done with.
func (t *tail) lines(data []byte, take func([]byte)) (used int) {
	for {
		length := bytes.IndexByte(data[used:], '\n')
		if length < 0 {
			break
		}
		line := data[used : used+length]
		used += length + 1
		switch {
		case t.inside:
			t.inside = false
		case length > maxLine:
			take(nil)
		case length > 0:
			take(line)
		}
	}
	if !t.inside && len(data)-used > maxLine {
		take(nil)
		t.inside = true
	}
	if t.inside {
		return len(data)
	}
	return used
}
