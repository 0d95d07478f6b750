package safefile

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// turnByte is the byte of a file whose lock is the turn: far behind any content.
// It is locked for the open file description, which has nothing to do with [Lock].
const turnByte = 1 << 62

func turn(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: turnByte, Len: 1}
}

// TryTurn asks for the next turn at the lock of f and reports whether f has it. Of
// those that wait for a lock in vain one can have the turn; the others leave the
// lock to it ([TurnTaken]). The kernel ends the turn when f is closed. Where the file
// system has no such locks, nobody has the turn.
func TryTurn(f *os.File) bool {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, turn(unix.F_WRLCK)) == nil
}

// TurnTaken reports whether another open file has the turn.
func TurnTaken(f *os.File) bool {
	t := turn(unix.F_WRLCK)
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, t) == nil && t.Type != unix.F_UNLCK
}

// EndTurn ends the turn of f, where it has it.
func EndTurn(f *os.File) {
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, turn(unix.F_UNLCK)) // what was locked can be unlocked
}
