package safefile_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
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
		n := safefile.Notices{Dir: folder, Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)}
		n.Arm()
		if err := errors.Join(os.Rename(folder, gone), os.Remove(gone)); err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
}
