package safefile

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// turnByte is the byte whose lock is the turn, far after any content. The lock
// belongs to the open file description and is independent of [Lock].
const turnByte = 1 << 62

func turn(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: turnByte, Len: 1}
}

// TryTurn asks for the next turn at the lock of f and reports whether f has it. One
// of the writers that keep failing to get the lock can have the turn; the others
// leave the lock to it ([TurnTaken]). The kernel ends the turn when f is closed. On a
// file system without such locks no writer has the turn.
func TryTurn(f *os.File) bool {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, turn(unix.F_WRLCK)) == nil
}

// TurnTaken reports whether another open file has the turn.
func TurnTaken(f *os.File) bool {
	t := turn(unix.F_WRLCK)
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, t) == nil && t.Type != unix.F_UNLCK
}

// EndTurn ends the turn of f, if it has the turn.
func EndTurn(f *os.File) {
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, turn(unix.F_UNLCK)) // a locked range can be unlocked
}
