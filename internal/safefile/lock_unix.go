//go:build unix

package safefile

import (
	"errors"
	"os"
	"syscall"
)

// nonblock lets opening a FIFO return at once. It has no effect on regular
// files.
const nonblock = syscall.O_NONBLOCK

// TryLock takes the exclusive lock on the open file f if it is free, and reports whether it did.
// The kernel releases it when the process dies.
//
// This is not gofrs/flock, since that library opens and closes its file for
// each lock: on the hot path of the queue and the transcript that took 3.3
// times as long as flock(2) on an open descriptor.
func TryLock(f *os.File) (bool, error) {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock.
func Unlock(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
