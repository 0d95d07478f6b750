package safefile_test

import (
	"context"
	"errors"
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
		must(t, err)
		if wanted(why) {
			return
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o600))
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
		must(t, os.Mkdir(dir, 0o700))
		if !n.Arm() || n.Arm() {
			t.Error("a new folder is not new once")
		}
		touch(t, filepath.Join(dir, "x"))
		until(t, &n, func(why safefile.Notice) bool { return why.Name == "x" })
		must(t, os.RemoveAll(dir))
		until(t, &n, func(why safefile.Notice) bool { return why.Lost })
	}
}

// Files whose names begin otherwise, and changes of a mode, give no reason to look; the folder itself does.
func TestNoticesOfSomeFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	mkdir(t, dir)
	n := watch(t, dir, "x.")
	touch(t, filepath.Join(dir, "y.jsonl"))
	touch(t, filepath.Join(dir, "x.jsonl"))
	must(t, os.Chmod(filepath.Join(dir, "x.jsonl"), 0o400))
	must(t, os.RemoveAll(dir))
	until(t, n, func(why safefile.Notice) bool {
		if why.Name != "x.jsonl" && !why.Lost {
			t.Errorf("got %+v", why)
		}
		return why.Lost
	})
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	must(t, os.Mkdir(path, 0o700))
}

// watch watches a folder until the end of the test.
func watch(t *testing.T, dir, prefix string) *safefile.Notices {
	t.Helper()
	n := &safefile.Notices{Dir: dir, Prefix: prefix, Recheck: time.Hour, Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(n.Close)
	n.Arm()
	return n
}

// hears waits until a file is reported.
func hears(t *testing.T, n *safefile.Notices, name string) {
	t.Helper()
	until(t, n, func(why safefile.Notice) bool { return why.Name == name })
}

// Each hears of what it watches, by whatever path, and of nothing else.
func TestNoticesHearTheirOwn(t *testing.T) {
	dir := t.TempDir()
	folder, other, link := filepath.Join(dir, "folder"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	mkdir(t, folder)
	mkdir(t, other)
	must(t, os.Symlink(folder, link))
	direct, byLink, above, elsewhere := watch(t, folder, ""), watch(t, link, ""), watch(t, dir, ""), watch(t, other, "")
	touch(t, filepath.Join(folder, "x"))
	hears(t, direct, "x")
	hears(t, byLink, "x")
	direct.Close()
	touch(t, filepath.Join(folder, "y"))
	hears(t, byLink, "y")
	must(t, os.RemoveAll(folder))
	until(t, byLink, func(why safefile.Notice) bool { return why.Lost })
	hears(t, above, "folder")
	touch(t, filepath.Join(other, "z"))
	until(t, elsewhere, func(why safefile.Notice) bool {
		if why.Name != "z" {
			t.Errorf("got %+v", why)
		}
		return true
	})
}

// A folder that takes the place of another is watched once one of them asks.
func TestNoticesOfAReplacedFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	mkdir(t, folder)
	held, err := os.Open(folder) // the system reports its removal only once it is closed
	must(t, err)
	defer held.Close()
	first, second := watch(t, folder, ""), watch(t, folder, "")
	for i := range 20 {
		must(t, os.RemoveAll(folder))
		mkdir(t, folder)
		first.Close()
		first = watch(t, folder, "")
		name := string(rune('a' + i))
		touch(t, filepath.Join(folder, name))
		hears(t, first, name)
		if i == 0 {
			hears(t, second, name)
		}
	}
}

// A reader that does not read holds up no other, and learns that it missed some.
func TestNoticesThatAreNotRead(t *testing.T) {
	dir := t.TempDir()
	slow, quick := watch(t, dir, ""), watch(t, dir, "")
	for range 1000 {
		touch(t, filepath.Join(dir, "x"))
		hears(t, quick, "x")
	}
	until(t, slow, func(why safefile.Notice) bool { return why.Lost })
}

// A watcher whose folder was renamed and removed can be closed while its changes are not read.
func TestNoticesOfARemovedFolderEnd(t *testing.T) {
	dir := t.TempDir()
	folder, gone := filepath.Join(dir, "folder"), filepath.Join(dir, "gone")
	for range 300 {
		mkdir(t, folder)
		n := watch(t, folder, "")
		must(t, errors.Join(os.Rename(folder, gone), os.Remove(gone)))
		n.Close()
	}
}
