//go:build unix

package safefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"feishu-relay/internal/safefile"
)

// Opening a FIFO waits for its other end, forever if no process opens that.
func TestOpenRefusesWhatIsNoRegularFile(t *testing.T) {
	root, err := safefile.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(syscall.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o600), root.Mkdir("folder", 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND | os.O_CREATE, os.O_WRONLY | os.O_CREATE} {
		if f, err := safefile.Open(root, "fifo", flag); err == nil {
			t.Errorf("a FIFO was opened with %#x: %v", flag, f.Close())
		}
	}
	for _, name := range []string{"fifo", "folder"} {
		if _, err := safefile.ReadFile(root, name); !errors.Is(err, safefile.ErrNotRegular) {
			t.Errorf("%s: got %v, want ErrNotRegular", name, err)
		}
	}
}
