package book

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

const (
	lockName = "lock"
	tempName = "snapshot.tmp"
)

func logName(n int) string      { return fmt.Sprintf("book.%d.jsonl", n) }
func snapshotName(n int) string { return fmt.Sprintf("snapshot.%d.jsonl", n) }

// ErrInUse means that another process has the book.
var ErrInUse = errors.New("the folder is in use")

// disk is the folder of a book.
type disk struct {
	root *os.Root
	step step
}

// step makes one change of the folder: do with data, which is nil but for writes. Tests
// let it fail, or look at the folder before and after.
type step func(op, name string, data []byte, do func(data []byte) error) error

// file is a log or a snapshot.
type file struct {
	*os.File
	name string // in the folder
	n    int
	size int64 // of its whole batches; guarded by Book.mu while it is the log
}

func openDisk(dir string, s step) (disk, error) {
	root, err := safefile.OpenDir(dir)
	if err != nil {
		return disk{}, err
	}
	_ = root.Chmod(".", 0o700) // fails if the folder is another user's, who has set its mode
	return disk{root, s}, nil
}

// lock keeps other processes out until the file is closed or this process ends.
func (d *disk) lock() (*os.File, error) {
	f, err := safefile.Open(d.root, lockName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	ok, err := safefile.TryLock(f)
	if err == nil && !ok {
		err = inUse(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "process %d on %s\n", os.Getpid(), host) // it is for the error of the next process only
	}
	return f, nil
}

func inUse(f *os.File) error {
	var text [1024]byte
	n, _ := f.ReadAt(text[:], 0)
	holder := cmp.Or(strings.TrimSpace(string(text[:n])), "another process")
	return fmt.Errorf("%w by %s: stop it, or use another folder", ErrInUse, holder)
}

// list returns the numbers of the logs that count, in order, and of the newest snapshot,
// 0 if there is none. It removes what a kill has left.
func (d *disk) list() (logs []int, snapshot int, err error) {
	names, err := safefile.Names(d.root)
	if err != nil {
		return nil, 0, err
	}
	var snapshots []int
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "book.%d.jsonl", &n); err == nil && name == logName(n) {
			logs = append(logs, n)
		}
		if _, err := fmt.Sscanf(name, "snapshot.%d.jsonl", &n); err == nil && name == snapshotName(n) {
			snapshots = append(snapshots, n)
		}
	}
	slices.Sort(logs)
	slices.Sort(snapshots)
	if len(snapshots) > 0 {
		snapshot = snapshots[len(snapshots)-1]
		for _, n := range snapshots[:len(snapshots)-1] {
			d.remove(snapshotName(n))
		}
	}
	for len(logs) > 0 && logs[0] < snapshot {
		d.remove(logName(logs[0]))
		logs = logs[1:]
	}
	d.remove(tempName)
	return logs, snapshot, nil
}

func (d *disk) open(name string, n int) (*file, error) {
	f, err := safefile.Open(d.root, name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &file{File: f, name: name, n: n}, nil
}

// create makes an empty file. One that an earlier attempt has left is emptied.
func (d *disk) create(name string, n int) (f *file, err error) {
	return f, d.change("create", name, nil, func([]byte) error {
		created, err := safefile.Open(d.root, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		f = &file{File: created, name: name, n: n}
		return err
	})
}

func (d *disk) write(f *file, data []byte, at int64) error {
	return d.change("write", f.name, data, func(data []byte) error {
		_, err := f.WriteAt(data, at)
		return err
	})
}

func (d *disk) truncate(f *file) error {
	return d.change("truncate", f.name, nil, func([]byte) error { return f.Truncate(f.size) })
}

func (d *disk) sync(f *file) error {
	return d.change("sync", f.name, nil, func([]byte) error { return f.Sync() })
}

func (d *disk) rename(from, to string) error {
	return d.change("rename", to, nil, func([]byte) error { return d.root.Rename(from, to) })
}

// remove removes a file that does not count any more; the next start tries it again.
func (d *disk) remove(name string) {
	_ = d.change("remove", name, nil, func([]byte) error { return d.root.Remove(name) })
}

// syncDir makes the names of the folder's files survive a power cut.
func (d *disk) syncDir() error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there
	}
	return d.change("sync", ".", nil, func([]byte) error {
		dir, err := d.root.Open(".")
		if err != nil {
			return err
		}
		return errors.Join(dir.Sync(), dir.Close())
	})
}

func (d *disk) change(op, name string, data []byte, do func(data []byte) error) error {
	if d.step == nil {
		return do(data)
	}
	return d.step(op, name, data, do)
}

// lines passes each line of the first size bytes of f to take, with its number, until
// take returns an error. The text of a line of maxLine bytes or more is nil.
func (f *file) lines(size int64, take func(l jsonl.Line, number int) error) error {
	t, number := jsonl.NewTail(maxLine), 0
	var stop error
	_, err := t.Read(f, size, func(l jsonl.Line) bool {
		number++
		stop = take(l, number)
		return stop == nil
	})
	if stop != nil {
		return stop
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return nil
}
