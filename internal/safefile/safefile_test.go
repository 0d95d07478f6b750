package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/safefile"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDir(t *testing.T, path string) *os.Root {
	t.Helper()
	root, err := safefile.OpenDir(path)
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

func openFile(t *testing.T, root *os.Root, name string, flag int) *os.File {
	t.Helper()
	f, err := safefile.Open(root, name, flag)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t *testing.T, root *os.Root, name string) string {
	t.Helper()
	data, err := root.ReadFile(name)
	must(t, err)
	return string(data)
}

const appending = os.O_RDWR | os.O_APPEND | os.O_CREATE

func TestName(t *testing.T) {
	for id, want := range map[string]string{
		"oc_5ad11d72b830411d72b836c20": "oc_5ad11d72b830411d72b836c20",
		"agent-a.1":                    "agent-a.1",
		"":                             "%",
		".":                            "%2E",
		"..":                           "%2E%2E",
		"../../etc/passwd":             "%2E%2E%2F.%2E%2Fetc%2Fpasswd",
		"a..b":                         "a.%2Eb",
		"a/b":                          "a%2Fb",
		`a\b`:                          "a%5Cb",
		"a%2Fb":                        "a%252Fb",
		"a b\x00\n":                    "a%20b%00%0A",
		"群":                            "%E7%BE%A4",
	} {
		if got := safefile.Name(id); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func FuzzName(f *testing.F) {
	long := strings.Repeat("x", 300)
	for _, pair := range [][2]string{{"a", "b"}, {"", "%"}, {".", "%2E"}, {"a%2Fb", "a/b"}, {long, long + "x"}, {long + "/", long + "."}, {strings.Repeat("群", 60), strings.Repeat("群", 61)}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, id := range []string{a, b} {
			name := safefile.Name(id)
			if name == "" || name == "." || name == ".." || len(name) > 120 || name[0] == '.' || strings.ContainsAny(name, "/\\\x00") {
				t.Errorf("%q: unsafe name %q", id, name)
			}
			if name != filepath.Base(name) || !filepath.IsLocal(name) {
				t.Errorf("%q: %q is a path", id, name)
			}
		}
		if (a == b) != (safefile.Name(a) == safefile.Name(b)) {
			t.Errorf("%q and %q: %q and %q", a, b, safefile.Name(a), safefile.Name(b))
		}
	})
}

func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(*os.Root, string, []byte) error{"synced": safefile.Replace, "fast": safefile.ReplaceFast} {
		t.Run(name, func(t *testing.T) {
			root := openDir(t, t.TempDir())
			for _, want := range []string{"first", "", "third, and longer"} {
				must(t, replace(root, "state", []byte(want)))
				if got := read(t, root, "state"); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			onlyEntry(t, root, "state")
		})
	}
}

func onlyEntry(t *testing.T, root *os.Root, want string) {
	t.Helper()
	entries, err := fs.ReadDir(root.FS(), ".")
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != want {
		t.Errorf("the folder holds %v, want %s alone", entries, want)
	}
}

func TestReplaceThatFailsLeavesTheOldContent(t *testing.T) {
	root := openDir(t, t.TempDir())
	must(t, root.Mkdir("state", 0o700))
	if err := safefile.Replace(root, "state", []byte("new")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	onlyEntry(t, root, "state") // and no temporary file
}

func TestOpen(t *testing.T) {
	root := openDir(t, t.TempDir())
	if _, err := safefile.Open(root, "new", os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without O_CREATE: got %v, want not exist", err)
	}
	f := openFile(t, root, "new", appending)
	if _, err := f.WriteString("kept"); err != nil {
		t.Fatal(err)
	}
	openFile(t, root, "new", appending)
	if got := read(t, root, "new"); got != "kept" {
		t.Errorf("got %q, want the old content", got)
	}
	if _, err := safefile.Open(root, "new", os.O_WRONLY|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exclusively, where a file is: got %v, want exist", err)
	}
	openFile(t, root, "own", os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if _, err := safefile.Open(root, "../outside", appending); err == nil {
		t.Error("a path out of the folder was opened")
	}
}

func TestAppend(t *testing.T) {
	for _, tt := range []struct {
		name, before, want string
		at                 int64
	}{
		{"an empty file", "", "line\n", 0},
		{"behind a whole line", "one\n", "one\nline\n", 4},
		{"a torn line is ended first", "one\nto", "one\nto\nline\n", 7},
		{"a file that is one torn byte", "x", "x\nline\n", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := openDir(t, t.TempDir())
			f := openFile(t, root, "queue", appending)
			if _, err := f.WriteString(tt.before); err != nil {
				t.Fatal(err)
			}
			at, err := safefile.Append(f, []byte("line\n"))
			must(t, err)
			if got := read(t, root, "queue"); got != tt.want || at != tt.at {
				t.Errorf("got %q at %d, want %q at %d", got, at, tt.want, tt.at)
			}
		})
	}
	t.Run("a closed file is an error", func(t *testing.T) {
		f := openFile(t, openDir(t, t.TempDir()), "queue", appending)
		f.Close()
		if _, err := safefile.Append(f, []byte("line\n")); err == nil {
			t.Error("no error")
		}
	})
}

func TestTryLock(t *testing.T) {
	root := openDir(t, t.TempDir())
	first, second := openFile(t, root, "lock", appending), openFile(t, root, "lock", appending)
	try := func(f *os.File, want bool) {
		t.Helper()
		if got, err := safefile.TryLock(f); got != want || err != nil {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	try(first, true)
	try(second, false)
	must(t, safefile.Unlock(first))
	try(second, true)
	try(first, false)
	second.Close() // as the kernel does for a process that dies
	try(first, true)
	first.Close()
	if _, err := safefile.TryLock(first); err == nil {
		t.Error("locking a closed file gives no error")
	}
}
