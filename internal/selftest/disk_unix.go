//go:build linux || darwin || freebsd

package selftest

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// diskSpace is what this user may still write on dir's disk, and which disk that is, "" if that is not known.
func diskSpace(dir string) (free int64, disk string) {
	var st syscall.Statfs_t
	info, err := os.Stat(dir)
	if err != nil || syscall.Statfs(dir, &st) != nil {
		return 0, ""
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, ""
	}
	return int64(st.Bavail) * int64(st.Bsize), fmt.Sprint(own.Dev)
}

// mayWrite returns why this user cannot write a file.
func mayWrite(path string) error { return unix.Access(path, unix.W_OK) }
