//go:build unix

package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"feishu-relay/internal/safefile"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Mode().Perm() | info.Mode()&fs.ModeSetgid
}

func TestRights(t *testing.T) {
	for name, tt := range map[string]struct{ parent, folder, file fs.FileMode }{
		"a folder of our own is private":         {0o700, 0o700, 0o600},
		"others' right to look changes nothing":  {0o755, 0o700, 0o600},
		"a folder that a group shares":           {0o770, 0o770, 0o660},
		"the group goes on to what is below":     {0o770 | fs.ModeSetgid, 0o770 | fs.ModeSetgid, 0o660},
		"anybody's folder (/tmp) is not a group": {0o777 | fs.ModeSticky, 0o700, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "parent")
			must(t, os.Mkdir(parent, 0o700))
			must(t, os.Chmod(parent, tt.parent))
			root := openDir(t, filepath.Join(parent, "a", "b"))
			for _, path := range []string{"a", "a/b"} {
				if got := mode(t, filepath.Join(parent, path)); got != tt.folder {
					t.Errorf("%s: got %v, want %v", path, got, tt.folder)
				}
			}
			openFile(t, root, "queue", appending)
			must(t, safefile.Replace(root, "state", []byte("x")))
			for _, file := range []string{"queue", "state"} {
				if got := mode(t, filepath.Join(root.Name(), file)); got != tt.file {
					t.Errorf("%s: got %v, want %v", file, got, tt.file)
				}
			}
			openDir(t, parent) // which is there, and keeps its rights
			if got := mode(t, parent); got != tt.parent&^fs.ModeSticky {
				t.Errorf("the folder above: got %v", got)
			}
			sub, err := safefile.OpenSub(root, "sub")
			must(t, err)
			sub.Close()
			if got := mode(t, filepath.Join(root.Name(), "sub")); got != tt.folder {
				t.Errorf("sub: got %v, want %v", got, tt.folder)
			}
		})
	}
}

func TestOpenDirRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, nil, 0o600))
	for _, path := range []string{path, filepath.Join(path, "below")} {
		if _, err := safefile.OpenDir(path); err == nil {
			t.Errorf("%s was opened as a folder", filepath.Base(path))
		}
	}
}

// Opening a FIFO waits for its other end, forever if no process opens that.
func TestOpenRefusesWhatIsNoRegularFile(t *testing.T) {
	root, err := safefile.OpenDir(t.TempDir())
	must(t, err)
	defer root.Close()
	must(t, errors.Join(syscall.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o600), root.Mkdir("folder", 0o700)))
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
