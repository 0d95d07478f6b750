package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A watcher whose folder was renamed and removed can be closed while its changes are
// not read.
func TestWatcherOfARemovedFolderCloses(t *testing.T) {
	dir := t.TempDir()
	folder, gone := filepath.Join(dir, "folder"), filepath.Join(dir, "gone")
	for range 300 {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := watchFolder(folder, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(folder, gone), os.Remove(gone), w.close()); err != nil {
			t.Fatal(err)
		}
	}
}
