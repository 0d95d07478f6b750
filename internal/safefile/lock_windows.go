package safefile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockRange is a byte far after any content, since a lock on Windows blocks
// reads of the range it covers.
var lockRange = windows.Overlapped{OffsetHigh: 0x40000000}

// nonblock is for FIFOs, which do not exist in folders here.
const nonblock = 0

// TryLock takes the exclusive lock on the open file f if it is free, and reports whether it did.
// The system releases it when the process dies.
func TryLock(f *os.File) (bool, error) {
	ov := lockRange
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &ov)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock.
func Unlock(f *os.File) error {
	ov := lockRange
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &ov)
}
