package outcome

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// tail takes whole lines from a file that grows.
type tail struct {
	file  *os.File
	info  fs.FileInfo // when it was opened: which file it is
	place jsonl.Tail
	begin int64 // the first line that counts begins here or later
	torn  bool  // something without an end was behind place
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
	t := &tail{file: file, info: info, place: jsonl.NewTail(maxLine + 1)}
	if from > 0 && from <= info.Size() {
		t.begin = from
		t.place.Set(from-1, nil)
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
// from its beginning.
func (t *tail) read(ctx context.Context, take func([]byte)) error {
	for ctx.Err() == nil {
		info, err := t.file.Stat()
		if err != nil {
			return fmt.Errorf("read outcomes: %w", err)
		}
		_, err = t.place.Read(t.file, info.Size(), func(l jsonl.Line) bool {
			if l.Start >= t.begin && (l.Text == nil || len(l.Text) > 0) {
				take(l.Text)
			}
			return ctx.Err() == nil
		})
		if errors.Is(err, jsonl.ErrReplaced) {
			t.place.Reset()
			t.begin = 0
			continue
		}
		t.torn = t.place.Offset() < info.Size() || t.place.Inside()
		if err != nil {
			return fmt.Errorf("read outcomes: %w", err)
		}
		return nil
	}
	return nil
}
