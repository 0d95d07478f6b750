package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"feishu-relay/internal/safefile"
)

// Journal is a file of lines with one writer, which appends changes and, now and
// then, replaces the content with the lines still needed. It is not safe for
// concurrent use.
type Journal struct {
	root  *os.Root
	name  string
	file  *os.File // nil after Close
	lines int
	size  int64
}

// OpenJournal opens name below root, making it if it is missing, and passes its
// lines to take, the oldest first; a line is valid during the call. It skips
// lines of limit bytes and more. A torn last line is ended.
func OpenJournal(root *os.Root, name string, limit int, take func(line []byte)) (*Journal, error) {
	j := &Journal{root: root, name: name}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := j.read(limit, take); err != nil {
		return nil, errors.Join(fmt.Errorf("read journal %s: %w", name, err), j.file.Close())
	}
	return j, nil
}

func (j *Journal) open() (err error) {
	j.file, err = safefile.Open(j.root, j.name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	return err
}

func (j *Journal) read(limit int, take func(line []byte)) (err error) {
	if j.size, err = safefile.EndLine(j.file); err != nil {
		return err
	}
	t := NewTail(limit)
	_, err = t.Read(j.file, j.size, func(l Line) bool {
		j.lines++
		if l.Text != nil {
			take(l.Text)
		}
		return true
	})
	return err
}

// Lines is the number of lines in the journal.
func (j *Journal) Lines() int { return j.lines }

// Size is the length of the file in bytes.
func (j *Journal) Size() int64 { return j.size }

// Append adds whole lines. After Close it returns [os.ErrClosed], and so does
// Replace.
func (j *Journal) Append(lines []byte) error {
	if j.file == nil {
		return fmt.Errorf("write journal: %w", os.ErrClosed)
	}
	at, err := safefile.Append(j.file, lines)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	j.lines += bytes.Count(lines, []byte{'\n'})
	j.size = at + int64(len(lines))
	return nil
}

// Replace makes whole lines the content of the journal.
func (j *Journal) Replace(lines []byte) error {
	if j.file == nil {
		return fmt.Errorf("rewrite journal: %w", os.ErrClosed)
	}
	if err := safefile.ReplaceFast(j.root, j.name, lines); err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	old := j.file
	if err := j.open(); err != nil {
		j.file = old
		return fmt.Errorf("reopen journal: %w", err)
	}
	_ = old.Close() // its content is in the new file
	j.lines, j.size = bytes.Count(lines, []byte{'\n'}), int64(len(lines))
	return nil
}

// Close closes the file. It may be called more than once.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}
