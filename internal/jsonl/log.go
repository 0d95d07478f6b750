package jsonl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
)

const (
	// maxReopen is how often a call tolerates that the file is moved or replaced
	// between opening and locking it.
	maxReopen = 100
	// lockPause is the first pause of Retry, doubled up to maxLockPause.
	lockPause    = 20 * time.Microsecond
	maxLockPause = time.Millisecond
)

var (
	// ErrLocked means that another process has the lock of a file.
	ErrLocked = errors.New("the file is locked by another process")
	// ErrMoved means that the name refers to another file, or none.
	ErrMoved = errors.New("the file was moved or replaced meanwhile")
)

// Log appends to a file of lines that other processes may append to as well. Each
// append happens under the file's lock, which it never waits for: a process may be
// paused while it has the lock. Other programs may rotate, replace, cut or remove the
// file, or its folder, at any time. Folder and Name are required. A Log is not safe for
// concurrent use.
type Log struct {
	Folder *safefile.Folder
	Name   string
	Max    int64 // size in bytes from which Full returns true

	file  *os.File // nil: not open
	info  fs.FileInfo
	later int64 // size at which a failed rotation is retried
}

// Retry calls try until it returns an error other than [ErrLocked] and [ErrReplaced], or nil. If ctx
// ends first it returns the cause of that.
func Retry(ctx context.Context, try func() error) error {
	for pause := lockPause; ; pause = min(2*pause, maxLockPause) {
		if err := try(); !errors.Is(err, ErrLocked) && !errors.Is(err, ErrReplaced) {
			return err
		}
		if wait.Sleep(ctx, pause) != nil {
			return context.Cause(ctx)
		}
	}
}

// Do calls work while the named file is open and locked; it makes the file if it is
// missing. It returns [ErrLocked] at once if another process has the lock. work may
// call Append and Rotate; if it returns [ErrMoved], it is called again with the file
// that has the name then.
func (l *Log) Do(work func(size int64) error) error {
	for range maxReopen {
		err := l.once(work)
		if errors.Is(err, ErrLocked) { // the file that now has the name may be free
			if _, named := l.Size(); errors.Is(named, ErrMoved) {
				err = named
			}
		}
		if !errors.Is(err, ErrMoved) {
			return err
		}
		l.Close()
	}
	return fmt.Errorf("%s, %d times in a row: %w", l.Name, maxReopen, ErrMoved)
}

func (l *Log) once(work func(size int64) error) error {
	if err := l.open(); err != nil {
		return err
	}
	if ok, err := safefile.TryLock(l.file); !ok {
		return cmp.Or(err, ErrLocked)
	}
	defer l.unlock()
	size, err := l.Size()
	if err != nil {
		return err
	}
	return work(size)
}

func (l *Log) open() error {
	if l.file != nil {
		return nil
	}
	root, err := l.Folder.Open(true)
	if err != nil {
		return err
	}
	f, err := safefile.Open(root, l.Name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	if l.info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.later = f, 0
	return nil
}

func (l *Log) unlock() {
	if l.file != nil && safefile.Unlock(l.file) != nil {
		l.Close() // which releases the lock
	}
}

// Size is the size of the file that now has the name; [ErrMoved] means that it is not
// the open one. It needs no lock.
func (l *Log) Size() (int64, error) {
	if l.file == nil {
		return 0, ErrMoved
	}
	info, err := l.Folder.Stat(l.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, l.info) {
		return 0, ErrMoved
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// File is the open file, for reading; nil if no file is open.
func (l *Log) File() *os.File { return l.file }

// Info describes the open file at the time it was opened.
func (l *Log) Info() fs.FileInfo { return l.info }

// Append adds whole lines and returns their offset. It first ends a torn line that a
// killed writer left. Only the work of Do may call it.
func (l *Log) Append(lines []byte) (at int64, err error) {
	if len(lines) == 0 {
		return safefile.EndLine(l.file)
	}
	return safefile.Append(l.file, lines)
}

// Full reports whether a file of this size should be rotated.
func (l *Log) Full(size int64) bool { return size >= max(l.Max, l.later) }

// Later puts off the rotation of a file of this size until it has grown by a 64th of Max.
func (l *Log) Later(size int64) { l.later = size + l.Max/64 }

// Rotate renames the file, which has the given size, and makes a new, empty one. After
// an error nothing has changed and the rotation is postponed. Only the work of Do may
// call it.
func (l *Log) Rotate(to string, size int64) error {
	root, err := l.Folder.Open(false)
	if err == nil {
		err = root.Rename(l.Name, to)
	}
	if err != nil {
		l.Later(size)
		return err
	}
	if f, err := safefile.Open(root, l.Name, os.O_RDWR|os.O_APPEND|os.O_CREATE); err == nil {
		_ = f.Close() // nothing was written
	} // else the next Do retries and returns the error
	return nil
}

// Close closes the file. The next Do opens it again.
func (l *Log) Close() {
	if l.file != nil {
		_ = l.file.Close() // has no buffered data; this also releases the lock
		l.file = nil
	}
}
