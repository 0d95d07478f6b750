//go:build !unix

package safefile

import (
	"io/fs"
	"os"
)

// SizeOf returns the size of the file at path; same reports whether it is the file that
// info describes.
func SizeOf(path string, info fs.FileInfo) (size int64, same bool, err error) {
	now, err := os.Stat(path)
	if err != nil {
		return 0, false, err
	}
	return now.Size(), os.SameFile(now, info), nil
}
