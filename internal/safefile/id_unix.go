//go:build unix

package safefile

import (
	"crypto/sha256"
	"fmt"
	"syscall"
)

// FolderID identifies a folder of this host under any path, also in another container. Two
// folders most likely have different ids. It is "" if the folder cannot be examined.
func FolderID(path string) string {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%d", st.Dev, st.Ino))
	return fmt.Sprintf("%x", sum[:4])
}
