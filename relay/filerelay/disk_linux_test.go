package filerelay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"feishu-relay/relay/filerelay"
)

// A disk of 64 KiB runs full and gets room again, many times: what Publish
// accepted arrives, what it refused does not half stand in the way. Where no
// file system can be mounted, a limit of the file's size cuts the writes short
// in the same way.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Logf("no file system can be mounted here (%v): with a size limit instead", err)
		out, kill := spawn(t, "limited", dir, "a")
		defer kill()
		for _, want := range []string{"short", "refused", "accepted"} {
			if !out.Scan() || out.Text() != want {
				t.Fatalf("the limited process said %q, want %q", out.Text(), want)
			}
		}
		listen(t, queue(t, dir, "b", filerelay.Options{})).wait(2)
		return
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	q := queue(t, dir, "a", filerelay.Options{Recheck: time.Millisecond})
	defer q.Close() // before the unmount
	h := listen(t, q)
	defer h.stop()
	reading(t, q)
	var accepted [][]byte
	full := 0
	for round := range rounds {
		ballast := filepath.Join(dir, "ballast")
		err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		for i := range 20 {
			line := sized("a", round*20+i+1, 300+round)
			_, err := q.Publish(t.Context(), [][]byte{line}, "")
			switch {
			case err == nil:
				accepted = append(accepted, line)
			case errors.Is(err, syscall.ENOSPC):
				full++
			default:
				t.Fatalf("publish on a full disk: %v, want %v", err, syscall.ENOSPC)
			}
		}
		must(t, os.Remove(ballast))
		line := sized("room", round+1, 300)
		publish(t, q, line)
		accepted = append(accepted, line)
		if round%10 == 9 { // all is read: make room
			waitWhole(t, h, accepted)
			must(t, os.Truncate(live(dir), 0))
		}
	}
	if full < rounds {
		t.Errorf("%d publishes met the full disk, want at least %d", full, rounds)
	}
	got := waitWhole(t, h, accepted)
	if len(got) != len(accepted) {
		t.Fatalf("%d accepted lines came, want %d", len(got), len(accepted))
	}
	for i := range accepted {
		if got[i] != string(accepted[i]) {
			t.Fatalf("line %d is %.60q, want %.60q", i+1, got[i], accepted[i])
		}
	}
}

// waitWhole waits for the accepted lines and returns them as they came. Of a
// refused line a fragment may stand in the queue, and even the whole but for
// its newline.
func waitWhole(t *testing.T, h *heard, accepted [][]byte) (whole []string) {
	t.Helper()
	wanted := map[string]bool{}
	for _, line := range accepted {
		wanted[string(line)] = true
	}
	eventually(t, "all accepted lines", func() bool {
		whole = whole[:0]
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, line := range h.lines {
			if wanted[line] {
				whole = append(whole, line)
			}
		}
		return len(whole) >= len(accepted)
	})
	return whole
}

// limited is the part of a process that may write 2,000 bytes to a file.
func limited(q *filerelay.Queue) error {
	limit := syscall.Rlimit{Cur: 2000, Max: 1 << 40}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	first, second := sized("a", 1, 1500), sized("a", 2, 1000)
	if _, err := q.Publish(context.Background(), [][]byte{first}, ""); err != nil {
		return err
	}
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("publish beyond the limit: %w", err)
	}
	fmt.Println("short")
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); err == nil {
		return errors.New("publish beyond the limit was accepted")
	}
	fmt.Println("refused")
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); err != nil {
		return err
	}
	fmt.Println("accepted")
	return nil
}
