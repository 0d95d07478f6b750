package jsonl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
)

const (
	// maxReopen is how often a call tolerates that the file is moved or replaced
	// between opening and locking it.
	maxReopen = 100
	// lockPause is the first pause of Retry, doubled up to MaxLockPause.
	lockPause = 20 * time.Microsecond
	// MaxLockPause is the longest pause between two attempts to get a lock.
	MaxLockPause = time.Millisecond
	// A writer that has waited for turnAfter asks for the next turn at the lock. The
	// others leave the lock to it for at most turnRespected: it may be paused as well.
	turnAfter     = 100 * time.Millisecond
	turnRespected = time.Second
	// lookedFor is how long the result of a look at the end of a file is valid: programs
	// that take no lock may be ending a line there.
	lookedFor  = 10 * time.Millisecond
	unknownEnd = -1
)

var (
	// ErrLocked means that another process has the lock of a file, or the next turn at it.
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
	Max    int64            // size in bytes from which Full returns true
	Alone  bool             // no other process writes: the file is not locked
	Fair   bool             // writers that wait for the lock take turns
	Left   func(moved bool) // called before the file is closed; moved: it lost its name. May be nil

	file   *os.File // nil: not open
	info   fs.FileInfo
	path   string    // of file
	size   int64     // of file, at the last check
	ended  int64     // the offset up to which file is known to have whole lines
	looked time.Time // when the size was checked
	turn   bool      // file has the next turn at the lock
	later  int64     // size at which a failed rotation is retried
}

// Retry calls try until it returns an error other than [ErrLocked], or nil. If ctx
// ends first it returns the cause of that. waited is the time since the lock was first
// found taken.
func Retry(ctx context.Context, try func(waited time.Duration) error) error {
	var since time.Time
	for pause := lockPause; ; pause = min(2*pause, MaxLockPause) {
		var waited time.Duration
		if !since.IsZero() {
			waited = time.Since(since)
		}
		if err := try(waited); !errors.Is(err, ErrLocked) {
			return err
		}
		since = cmp.Or(since, time.Now())
		if wait.Sleep(ctx, pause) != nil {
			return context.Cause(ctx)
		}
	}
}

// Do calls work while the named file is open and locked; it makes the file if it is
// missing. It returns [ErrLocked] at once if another process has the lock. work may
// call Append and Rotate; if it returns [ErrMoved], it is called again with the file
// that has the name then. waited is how long the caller has been trying.
func (l *Log) Do(waited time.Duration, work func(size int64) error) error {
	for range maxReopen {
		err := l.once(waited, work)
		if errors.Is(err, ErrLocked) { // the file that now has the name may be free
			if _, named := l.Size(); errors.Is(named, ErrMoved) {
				err = named
			}
		}
		if !errors.Is(err, ErrMoved) {
			return err
		}
		l.leave(true)
	}
	return fmt.Errorf("%s, %d times in a row: %w", l.Name, maxReopen, ErrMoved)
}

func (l *Log) once(waited time.Duration, work func(size int64) error) error {
	if err := l.open(); err != nil {
		return err
	}
	if !l.Alone {
		if err := l.lock(waited); err != nil {
			return err
		}
		defer l.unlock()
	}
	var err error
	if l.size, err = l.Size(); err != nil {
		return err
	}
	l.looked = time.Now()
	return work(l.size)
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
	l.file, l.path, l.ended, l.later = f, filepath.Join(l.Folder.Path, l.Name), 0, 0
	return nil
}

// lock takes the lock or returns ErrLocked. If many processes write at once, some may
// fail again and again by chance; so with Fair, a process that has waited for long
// takes the next turn.
func (l *Log) lock(waited time.Duration) error {
	if l.Fair {
		if waited >= turnAfter && !l.turn {
			l.turn = safefile.TryTurn(l.file)
		}
		if !l.turn && waited < turnRespected && safefile.TurnTaken(l.file) {
			return ErrLocked
		}
	}
	ok, err := safefile.TryLock(l.file)
	if err == nil && !ok {
		return ErrLocked
	}
	if ok {
		l.EndTurn()
	}
	return err
}

func (l *Log) unlock() {
	if l.file != nil && safefile.Unlock(l.file) != nil {
		l.Close() // which releases the lock
	}
}

// EndTurn gives up the next turn at the lock, for a caller that no longer waits.
func (l *Log) EndTurn() {
	if l.turn {
		safefile.EndTurn(l.file)
		l.turn = false
	}
}

// Size is the size of the file that now has the name; [ErrMoved] means that it is not
// the open one. It needs no lock.
func (l *Log) Size() (int64, error) {
	if l.file == nil {
		return 0, ErrMoved
	}
	size, same, err := safefile.SizeOf(l.path, l.info)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !same {
		return 0, ErrMoved
	}
	return size, err
}

// File is the open file, for reading; nil if no file is open.
func (l *Log) File() *os.File { return l.file }

// Info describes the open file at the time it was opened.
func (l *Log) Info() fs.FileInfo { return l.info }

// Append adds whole lines and returns their offset. It first ends a torn line that a
// killed writer left. Only the work of Do may call it.
func (l *Log) Append(lines []byte) (at int64, err error) {
	if l.ended != l.size || time.Since(l.looked) > lookedFor {
		size, err := safefile.EndLine(l.file)
		if err != nil {
			l.ended = unknownEnd
			return 0, err
		}
		l.size, l.ended = size, size
	}
	if len(lines) == 0 {
		return l.size, nil
	}
	if at, err = safefile.AppendLines(l.file, lines); err != nil {
		l.ended = unknownEnd
		return 0, err
	}
	l.size = at + int64(len(lines))
	l.ended = l.size
	return at, nil
}

// Ended records that the open file has only whole lines before at. If the file ends
// there, Append need not check for a torn line.
func (l *Log) Ended(at int64) { l.ended = at }

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

func (l *Log) leave(moved bool) {
	if l.file == nil {
		return
	}
	if l.Left != nil {
		l.Left(moved)
	}
	_ = l.file.Close() // has no buffered data; this also releases the lock and ends the turn
	l.file, l.turn = nil, false
}

// Close closes the file. The next Do opens it again.
func (l *Log) Close() { l.leave(false) }

// Prune removes files, in the order of names, until drop returns false for one, and returns
// the number n removed. It continues after an error. It skips files that no longer exist.
func Prune(root *os.Root, names iter.Seq[string], drop func(name string, info fs.FileInfo) bool) (n int, _ error) {
	var wrong []error
	for name := range names {
		info, err := root.Stat(name)
		if err == nil {
			if !drop(name, info) {
				break
			}
			err = root.Remove(name)
		}
		if err == nil {
			n++
		} else if !errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, err)
		}
	}
	return n, errors.Join(wrong...)
}
