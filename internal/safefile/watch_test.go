package safefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/internal/safefile"
)

// A watcher whose folder was renamed and removed can be closed although nobody
// reads what it reports.
func TestWatcherOfARemovedFolderCloses(t *testing.T) {
	dir := t.TempDir()
	folder, gone := filepath.Join(dir, "folder"), filepath.Join(dir, "gone")
	for range 300 {
		w, err := safefile.NewWatcher()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Mkdir(folder, 0o700), w.Add(folder), os.Rename(folder, gone), os.Remove(gone), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
