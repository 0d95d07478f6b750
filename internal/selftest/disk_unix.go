//go:build linux || darwin || freebsd

package selftest

import "syscall"

// freeSpace is what this user may still write on dir's disk, in bytes; -1 if that is not known.
func freeSpace(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
