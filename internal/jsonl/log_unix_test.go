//go:build unix

package jsonl

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/safefile"
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
	if err := l.Do(0, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a held lock: %v, want %v", err, ErrLocked)
	}
	why := errors.New("waited for long enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if err := add(ctx, l, "a"); !errors.Is(err, why) {
		t.Errorf("beside a held lock: %v, want %v", err, why)
	}
	alone := newLog(t, dir)
	alone.Alone = true
	put(t, alone, "b")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	put(t, l, "c")
	wantFile(t, filepath.Join(dir, "log"), "b\nc\n")
}

// A writer that has waited for long gets the lock before one that comes later, but one
// that is paused while it has the turn is passed after a second.
func TestLogTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		holder, err := os.Create(filepath.Join(dir, "log"))
		must(t, err)
		defer holder.Close()
		must(t, safefile.Lock(holder))
		first, later := newLog(t, dir), newLog(t, dir)
		first.Fair, later.Fair = true, true
		defer first.Close()
		defer later.Close()
		if err := first.Do(turnAfter, nil); !errors.Is(err, ErrLocked) {
			t.Errorf("first: %v", err)
		}
		must(t, safefile.Unlock(holder))
		if first.turn { // the system has turns
			start := time.Now()
			must(t, add(t.Context(), later, "later"))
			if waited := time.Since(start); waited < turnRespected || waited > turnRespected+time.Second {
				t.Errorf("one that has the turn was passed after %v", waited)
			}
			if err := later.Do(0, nil); !errors.Is(err, ErrLocked) {
				t.Errorf("one that came later: %v, want %v", err, ErrLocked)
			}
		}
		must(t, add(t.Context(), first, "first"))
		must(t, add(t.Context(), later, "again"))
		if err := holder.Close(); err != nil {
			t.Error(err)
		}
	})
}
