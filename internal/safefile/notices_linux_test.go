package safefile_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
)

// until takes notices until one is wanted.
func until(t *testing.T, n *safefile.Notices, wanted func(safefile.Notice) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		why, err := n.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if wanted(why) {
			return
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A folder is watched, also after another one took its place.
func TestNotices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	n := safefile.Notices{Dir: dir + "/", Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)}
	defer n.Close()
	if n.Arm() {
		t.Error("a missing folder is watched")
	}
	for range 2 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if !n.Arm() || n.Arm() {
			t.Error("a new folder is not new once")
		}
		touch(t, filepath.Join(dir, "x"))
		until(t, &n, func(why safefile.Notice) bool { return why.Name == "x" && !why.Chmod })
		if err := os.Chmod(filepath.Join(dir, "x"), 0o400); err != nil {
			t.Fatal(err)
		}
		until(t, &n, func(why safefile.Notice) bool { return why.Name == "x" && why.Chmod })
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		until(t, &n, func(why safefile.Notice) bool { return why.Gone })
	}
}

// Without notices the clock gives a reason to look.
func TestNoticesByTheClock(t *testing.T) {
	dir := t.TempDir()
	n := safefile.Notices{Dir: dir, Recheck: time.Millisecond, Off: true}
	defer n.Close()
	n.Arm()
	touch(t, filepath.Join(dir, "x"))
	until(t, &n, func(why safefile.Notice) bool {
		if !why.Ticked {
			t.Errorf("got %+v", why)
		}
		return why.Ticked
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for err := error(nil); err == nil; {
		_, err = n.Next(ctx)
	}
}

// Files whose names begin otherwise give no reason to look, and the folder itself does.
func TestNoticesOfSomeFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n := safefile.Notices{Dir: dir, Recheck: time.Hour, Prefix: "x.", Log: slog.New(slog.DiscardHandler)}
	defer n.Close()
	n.Arm()
	touch(t, filepath.Join(dir, "y.jsonl"))
	touch(t, filepath.Join(dir, "x.jsonl"))
	until(t, &n, func(why safefile.Notice) bool {
		if why.Name != "x.jsonl" {
			t.Errorf("got %+v", why)
		}
		return true
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	until(t, &n, func(why safefile.Notice) bool { return why.Gone })
}
