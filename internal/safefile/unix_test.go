//go:build unix

package safefile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"feishu-relay/internal/safefile"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := os.Mkdir(parent, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(parent, tt.parent); err != nil {
				t.Fatal(err)
			}
			root := openDir(t, filepath.Join(parent, "a", "b"))
			for _, path := range []string{"a", "a/b"} {
				if got := mode(t, filepath.Join(parent, path)); got != tt.folder {
					t.Errorf("%s: got %v, want %v", path, got, tt.folder)
				}
			}
			openFile(t, root, "queue", appending)
			if err := safefile.Replace(root, "state", []byte("x")); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"queue", "state"} {
				if got := mode(t, filepath.Join(root.Name(), file)); got != tt.file {
					t.Errorf("%s: got %v, want %v", file, got, tt.file)
				}
			}
			sub, err := safefile.OpenSub(root, "sub")
			if err != nil {
				t.Fatal(err)
			}
			sub.Close()
			if got := mode(t, filepath.Join(root.Name(), "sub")); got != tt.folder {
				t.Errorf("sub: got %v, want %v", got, tt.folder)
			}
		})
	}
}

func TestOpenDirLeavesRightsAlone(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o751); err != nil {
		t.Fatal(err)
	}
	openDir(t, path)
	if got := mode(t, path); got != 0o751 {
		t.Errorf("got %v, want what the folder had", got)
	}
}

func TestOpenDirRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, filepath.Join(path, "below")} {
		if _, err := safefile.OpenDir(path); err == nil {
			t.Errorf("%s was opened as a folder", filepath.Base(path))
		}
	}
}

// What needs a process of its own is this test binary, started again.
const helper = "SAFEFILE_TEST_HELPER"

func TestMain(m *testing.M) {
	switch dir := os.Getenv("SAFEFILE_TEST_DIR"); os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "full-disk":
		exitOn(fillDisk(dir))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(t *testing.T, what, dir string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helper+"="+what, "SAFEFILE_TEST_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func openQueue(dir string) (*os.Root, *os.File, error) {
	root, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, nil, err
	}
	f, err := safefile.Open(root, "queue", appending)
	return root, f, err
}

// fillDisk appends to a file that may have 100 bytes, which cuts a write short
// as a full disk does, and goes on when there is room again.
func fillDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	_, f, err := openQueue(dir)
	if err != nil {
		return err
	}
	limit := func(bytes uint64) error {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
			return err
		}
		now.Cur = min(bytes, now.Max)
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now)
	}
	if err := limit(100); err != nil {
		return err
	}
	if _, err := safefile.Append(f, []byte("first\n")); err != nil {
		return err
	}
	long := []byte(strings.Repeat("long", 50) + "\n")
	if _, err := safefile.Append(f, long); err == nil {
		return errors.New("a write cut short is no error")
	}
	if err := limit(1 << 20); err != nil {
		return err
	}
	_, err = safefile.Append(f, []byte("last\n"))
	return err
}

func TestAWriteCutShortSwallowsNoOtherLine(t *testing.T) {
	dir := t.TempDir()
	if err := run(t, "full-disk", dir); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(read(t, openDir(t, dir), "queue"), "\n")
	if len(lines) != 4 || lines[0] != "first" || !strings.HasPrefix(lines[1], "longlong") || lines[2] != "last" || lines[3] != "" {
		t.Errorf("got lines %q", lines)
	}
}
