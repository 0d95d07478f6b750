//go:build unix

package filerelay

import (
	"fmt"
	"os"
	"syscall"
)

// idOf identifies the open file f on this host: device and inode.
func idOf(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("%s has no inode", f.Name())
	}
	return fileID{Dev: uint64(st.Dev), Ino: uint64(st.Ino)}, nil //nolint:unconvert // the types differ between systems
}

// linked reports whether the open file f still has a name.
func linked(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 0
}
