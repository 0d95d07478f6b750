//go:build unix

package childtest

import (
	"os/signal"
	"syscall"
)

// LimitFiles lets this process write only so many bytes to a file; 0 ends that. Beyond it a write is cut short, and the
// next one refused, as on a full disk.
func LimitFiles(bytes uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if bytes > 0 {
		limit.Cur = bytes
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
