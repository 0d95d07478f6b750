//go:build unix

package jsonl

import (
	"bufio"
	"context"
	"errors"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fillDisk runs in a process of its own, since it limits the size of the files that
// are written: beyond it a write is cut short and then refused, as on a full disk.
func fillDisk(t *testing.T, l *Log) {
	signal.Ignore(syscall.SIGXFSZ)
	var unlimited syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited))
	limited := unlimited
	limited.Cur = 100
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited))
	put(t, l, "first")
	for range 3 {
		if err := add(t.Context(), l, strings.Repeat("long", 50)); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("append on a full disk: %v", err)
		}
	}
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited))
	put(t, l, "last")
}

func TestLogOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := helper(t, "full disk", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantFile(t, filepath.Join(dir, "log"), "first\n"+strings.Repeat("long", 50)[:94]+"\nlast\n")
}

// A process that is paused while it has the lock holds up nobody for longer than they
// want to wait, and when it dies the lock is free.
func TestAPausedProcessHasTheLock(t *testing.T) {
	dir := t.TempDir()
	cmd := helper(t, "holder", dir)
	out, err := cmd.StdoutPipe()
	must(t, errors.Join(err, cmd.Start()))
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the holder wrote %q: %v", line, err)
	}
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	l := newLog(t, dir)
	if err := l.Do(nil); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a held lock: %v, want %v", err, ErrLocked)
	}
	why := errors.New("waited for long enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if err := add(ctx, l, "a"); !errors.Is(err, why) {
		t.Errorf("beside a held lock: %v, want %v", err, why)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	put(t, l, "c")
	wantFile(t, filepath.Join(dir, "log"), "c\n")
}
