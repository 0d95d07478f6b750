package jsonl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/internal/safefile"
)

// newLog is a log named "log" in the folder dir; each use is another process to the others.
func newLog(t testing.TB, dir string) *Log {
	l := &Log{Folder: &safefile.Folder{Path: dir}, Name: "log"}
	t.Cleanup(func() {
		l.Close()
		_ = l.Folder.Close()
	})
	return l
}

func add(ctx context.Context, l *Log, line string) error {
	return Retry(ctx, func() error {
		return l.Do(func(size int64) error {
			_, err := l.Append([]byte(line + "\n"))
			return err
		})
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, l *Log, lines ...string) {
	t.Helper()
	for _, line := range lines {
		must(t, add(t.Context(), l, line))
	}
}

func wantFile(t testing.TB, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, want %q: %v", filepath.Base(path), got, want, err)
	}
}

func scribble(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// Whatever others do to the file or its folder, the next line is whole and in the file
// that has the name then.
func TestLogBesideOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		strike func(t *testing.T, dir, path string)
		want   string
	}{
		"nothing":            {func(*testing.T, string, string) {}, "a\nb\n"},
		"a torn line":        {func(t *testing.T, _, path string) { scribble(t, path, "tor") }, "a\ntor\nb\n"},
		"a foreign appender": {func(t *testing.T, _, path string) { scribble(t, path, "x\n") }, "a\nx\nb\n"},
		"cut":                {func(t *testing.T, _, path string) { must(t, os.Truncate(path, 0)) }, "b\n"},
		"cut within a line":  {func(t *testing.T, _, path string) { must(t, os.Truncate(path, 1)) }, "a\nb\n"},
		"renamed":            {func(t *testing.T, _, path string) { must(t, os.Rename(path, path+".1")) }, "b\n"},
		"removed":            {func(t *testing.T, _, path string) { must(t, os.Remove(path)) }, "b\n"},
		"folder removed":     {func(t *testing.T, dir, _ string) { must(t, os.RemoveAll(dir)) }, "b\n"},
		"folder moved":       {func(t *testing.T, dir, _ string) { must(t, os.Rename(dir, dir+".old")) }, "b\n"},
		"folder removed and made": {func(t *testing.T, dir, _ string) {
			must(t, errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)))
		}, "b\n"},
		"replaced": {func(t *testing.T, _, path string) {
			scribble(t, path+".new", "other\n")
			must(t, os.Rename(path+".new", path))
		}, "other\nb\n"},
		"replaced by a torn file": {func(t *testing.T, _, path string) {
			scribble(t, path+".new", "oth")
			must(t, os.Rename(path+".new", path))
		}, "oth\nb\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			l := newLog(t, dir)
			put(t, l, "a")
			tt.strike(t, dir, filepath.Join(dir, "log"))
			put(t, l, "b")
			wantFile(t, filepath.Join(dir, "log"), tt.want)
		})
	}
}

// What no line can be appended to gives an error; when the cause is gone, so is the error.
func TestLogWithoutItsFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	path := filepath.Join(dir, "log")
	l := newLog(t, dir)
	must(t, os.MkdirAll(path, 0o700))
	if err := add(t.Context(), l, "a"); err == nil {
		t.Error("a folder has the name: no error")
	}
	must(t, os.Remove(path))
	put(t, l, "a")
	must(t, os.RemoveAll(dir))
	scribble(t, dir, "")
	if err := add(t.Context(), l, "b"); err == nil {
		t.Error("the folder is a file: no error")
	}
	must(t, os.Remove(dir))
	put(t, l, "b")
	wantFile(t, path, "b\n")
}
