package jsonl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// Writers rotate while others write and a reader is behind: no line is lost, torn or
// doubled, and each writer's lines stay in order.
func TestLogRotation(t *testing.T) {
	const writers, lines = 4, 200
	dir := t.TempDir()
	var working sync.WaitGroup
	for w := range writers {
		l := newLog(t, dir)
		l.Max = 300
		working.Go(func() {
			for i := range lines {
				line := fmt.Sprintf("%d %d\n", w, i)
				if err := Retry(t.Context(), func() error {
					return l.Do(func(size int64) error {
						if l.Full(size) {
							names, _ := filepath.Glob(filepath.Join(dir, "log.*"))
							return cmp.Or(l.Rotate(fmt.Sprintf("log.%06d", len(names)), size), ErrMoved)
						}
						_, err := l.Append([]byte(line))
						return err
					})
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "log.*"))
	must(t, err)
	if len(files) < writers*lines*4/400 {
		t.Errorf("rotated %d times", len(files))
	}
	next := [writers]int{}
	for _, path := range append(files, filepath.Join(dir, "log")) {
		data, err := os.ReadFile(path)
		must(t, err)
		tail := NewTail(limit)
		_, err = tail.Read(bytes.NewReader(data), int64(len(data)), func(l Line) bool {
			var w, i int
			if _, err := fmt.Sscanf(string(l.Text), "%d %d", &w, &i); err != nil || i != next[w] {
				t.Errorf("%s: line %q, want number %d", filepath.Base(path), l.Text, next[w])
			}
			next[w] = i + 1
			return true
		})
		must(t, err)
	}
	for w, n := range next {
		if n != lines {
			t.Errorf("%d lines of writer %d, want %d", n, w, lines)
		}
	}
}

// TestHelper is the other process of the tests below.
func TestHelper(t *testing.T) {
	role, dir := os.Getenv("JSONL_TEST_ROLE"), os.Getenv("JSONL_TEST_DIR")
	if role == "" {
		t.Skip("for other tests")
	}
	l := newLog(t, dir)
	switch role {
	case "holder":
		must(t, l.Do(func(int64) error {
			fmt.Println("locked")
			time.Sleep(time.Hour) // select{} would be found to be a deadlock, and end the process
			return nil
		}))
	case "full disk":
		fillDisk(t, l)
	case "writer":
		for i := 0; ; i++ {
			put(t, l, fmt.Sprintf("%d %s", i, strings.Repeat("x", 100_000)))
		}
	}
}

func helper(t *testing.T, role, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "JSONL_TEST_ROLE="+role, "JSONL_TEST_DIR="+dir)
	return cmd
}

func TestAWriterIsKilled(t *testing.T) {
	dir := t.TempDir()
	l, path := newLog(t, dir), filepath.Join(dir, "log")
	for range 5 {
		cmd := helper(t, "writer", dir)
		must(t, cmd.Start())
		var before int64
		if info, err := os.Stat(path); err == nil {
			before = info.Size()
		}
		for size := before; size < before+1<<20; time.Sleep(time.Millisecond) {
			if info, err := os.Stat(path); err == nil {
				size = info.Size()
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		put(t, l, "own")
	}
	data, err := os.ReadFile(path)
	must(t, err)
	if n := strings.Count("\n"+string(data), "\nown\n"); n != 5 {
		t.Errorf("%d whole lines of ours, want 5", n)
	}
}
