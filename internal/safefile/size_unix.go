//go:build unix

package safefile

import (
	"io/fs"
	"syscall"
)

// SizeOf returns the size of the file at path; same reports whether it is the file that
// info describes. It does the work of [os.Stat] and [os.SameFile] without their
// allocations: the transcript calls it several times a message.
func SizeOf(path string, info fs.FileInfo) (size int64, same bool, err error) {
	var now syscall.Stat_t
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Stat(path, &now)
	}
	if err != nil {
		return 0, false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	then, ok := info.Sys().(*syscall.Stat_t)
	return now.Size, ok && now.Dev == then.Dev && now.Ino == then.Ino, nil
}
