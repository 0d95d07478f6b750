package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What the disk has refused is in the book if it has room again when the loop ends, with its text. What was refused at
// once happens never, and what nobody waits for any more does not happen either.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	disk, err := os.Open(dir)
	if err := errors.Join(err, syscall.Unmount(dir, syscall.MNT_DETACH)); err != nil { // it goes with the process
		t.Fatal(err)
	}
	defer disk.Close()
	dir = fmt.Sprintf("/proc/self/fd/%d", disk.Fd())
	r := openRig(t, dir)
	if err := r.Save(t.Context(), Event{}); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	long := bytes.Repeat([]byte("0"), 64<<10) // no rest of a page holds it
	if err := r.Save(t.Context(), Event{Note: "first", Value: append([]byte{'1'}, long...)}); !errors.Is(err, ErrRefused) {
		t.Fatalf("the first: %v, want %v", err, ErrRefused)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := r.Save(ctx, Event{Note: "second", Value: []byte("2")}); !errors.Is(err, ErrRefused) {
			t.Fatalf("the second: %v, want %v", err, ErrRefused)
		}
		cancel()
		if err := r.Post(ctx, Event{Note: "third", Value: []byte("3")}); !errors.Is(err, context.Canceled) {
			t.Fatalf("the third: %v, want %v", err, context.Canceled)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.stop()
	again := openRig(t, dir)
	for note, want := range map[string]bool{"first": true, "second": false, "third": false} {
		if got := again.Note(note) != nil; got != want {
			t.Errorf("the %s is in the book: %v, want %v", note, got, want)
		}
	}
}
