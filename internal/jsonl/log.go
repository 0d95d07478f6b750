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
	// maxReopen is how often in one call a file may be moved or replaced between
	// opening and locking it.
	maxReopen = 100
	// Retry tries again after lockPause, doubled up to MaxLockPause.
	lockPause = 20 * time.Microsecond
	// MaxLockPause is the longest pause between two tries to get a lock.
	MaxLockPause = time.Millisecond
	// A writer that has waited for turnAfter asks for the next turn at the lock. The
	// others leave the lock to it for turnRespected at most: it may be paused as well.
	turnAfter     = 100 * time.Millisecond
	turnRespected = time.Second
	// For lookedFor what was seen of the end of a file holds: programs that take no lock may
	// be about to end a line there.
	lookedFor  = 10 * time.Millisecond
	unknownEnd = -1
)

var (
	// ErrLocked means that another process has the lock of a file, or the next turn at it.
	ErrLocked = errors.New("the file is locked by another process")
	// ErrMoved means that a file does not have its name any more.
	ErrMoved = errors.New("the file was moved or replaced meanwhile")
)

// Log appends to a file of lines that other processes may append to as well. Each
// append happens under the file's lock, and never waits for it: a process may be
// paused while it has the lock. Other programs may rotate, replace, cut or remove the
// file, or its folder, at any time. Folder and Name are required. A Log is not safe for
// concurrent use.
type Log struct {
	Folder *safefile.Folder
	Name   string
	Max    int64            // size from which Full reports true
	Alone  bool             // no other process writes: the file is not locked
	Fair   bool             // a writer that waits for the lock takes turns with the others
	Left   func(moved bool) // called before the file is closed; moved: it lost its name; nil: not called

	file   *os.File // nil: not open
	info   fs.FileInfo
	path   string    // of file
	size   int64     // of file, as Do found it
	ended  int64     // file up to here is known to be whole lines
	looked time.Time // when its size was looked at
	turn   bool      // file has the next turn at the lock
	later  int64     // size at which a rotation that failed is tried again
}

// Retry calls try until it returns something else than [ErrLocked], or ctx ends, whose
// cause it returns then. It passes the time since the lock was first found taken.
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

// Do calls work while the file that has the name, made when it is missing, is open and
// locked. It returns [ErrLocked] at once while another process has the lock. work may
// call Append and Rotate; when it returns [ErrMoved], it is called again with the file
// that has the name then. waited is the time for which the caller has tried.
func (l *Log) Do(waited time.Duration, work func(size int64) error) error {
	for range maxReopen {
		err := l.once(waited, work)
		if errors.Is(err, ErrLocked) { // the file that has the name now may be free
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

// lock takes the lock or returns ErrLocked. Where many processes write at once, chance
// may favour the same ones again and again; so with Fair, one that has waited for long
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
		l.Close() // which frees the lock
	}
}

// EndTurn leaves the next turn at the lock to others: the caller waits no longer.
func (l *Log) EndTurn() {
	if l.turn {
		safefile.EndTurn(l.file)
		l.turn = false
	}
}

// Size is the size of the file that has the name now; [ErrMoved] says that this is not
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

// File is the open file, to read from; nil: none is open.
func (l *Log) File() *os.File { return l.file }

// Info describes the open file as it was when it was opened.
func (l *Log) Info() fs.FileInfo { return l.info }

// Append adds whole lines, behind a newline where a killed writer left a torn line, and
// returns where they begin. It is called by the work of Do.
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

// Ended says that the open file has only whole lines before at. Append does not look
// for a torn line where the file ends there.
func (l *Log) Ended(at int64) { l.ended = at }

// Full reports whether a file of this size is to be rotated.
func (l *Log) Full(size int64) bool { return size >= max(l.Max, l.later) }

// Later puts off the rotation of a file of this size until it has grown by a 64th of Max.
func (l *Log) Later(size int64) { l.later = size + l.Max/64 }

// Rotate gives the file of this size another name and makes a new, empty one. After an
// error nothing has changed and the rotation is put off. It is called by the work of Do.
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
	} // else the next Do tries again and reports the error
	return nil
}

func (l *Log) leave(moved bool) {
	if l.file == nil {
		return
	}
	if l.Left != nil {
		l.Left(moved)
	}
	_ = l.file.Close() // nothing is buffered in it; this also frees the lock and ends the turn
	l.file, l.turn = nil, false
}

// Close closes the file. The next Do opens it again.
func (l *Log) Close() { l.leave(false) }

// Prune removes n files, in the order of names, until drop returns false for one. It goes on
// after an error. A file that is gone already is passed over.
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
