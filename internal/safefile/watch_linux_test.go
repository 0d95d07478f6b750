package safefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"feishu-relay/internal/safefile"
)

// instances is how many inotify instances this process has.
func instances(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}

func watch(t *testing.T, paths ...string) *safefile.Watcher {
	t.Helper()
	w, err := safefile.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	for _, path := range paths {
		if err := w.Add(path); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// hears waits until w reports an event of that name.
func hears(t *testing.T, w *safefile.Watcher, name string) {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case e := <-w.Events:
			if e.Name == name {
				return
			}
		case <-limit:
			t.Fatalf("%s was not reported", name)
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchersShareOneInstance(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	t.Run("while there are any", func(t *testing.T) {
		var all []*safefile.Watcher
		for range 6 {
			all = append(all, watch(t, a, b))
		}
		if n := instances(t); n != 1 {
			t.Errorf("%d inotify instances, want 1", n)
		}
		touch(t, filepath.Join(a, "x"))
		touch(t, filepath.Join(b, "y"))
		for _, w := range all {
			hears(t, w, filepath.Join(a, "x"))
			hears(t, w, filepath.Join(b, "y"))
		}
	})
	if n := instances(t); n != 0 {
		t.Errorf("%d inotify instances without a watcher", n)
	}
}

// Each is told of what it watches, by the path that it gave, and of nothing else.
func TestWatchersHearTheirOwn(t *testing.T) {
	dir := t.TempDir()
	folder, other, link := filepath.Join(dir, "folder"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	for _, err := range []error{os.Mkdir(folder, 0o700), os.Mkdir(other, 0o700), os.Symlink(folder, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	direct, byLink, above, elsewhere := watch(t, folder), watch(t, link), watch(t, dir), watch(t, other)
	touch(t, filepath.Join(folder, "x"))
	hears(t, direct, filepath.Join(folder, "x"))
	hears(t, byLink, filepath.Join(link, "x"))
	if err := direct.Close(); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(folder, "y"))
	hears(t, byLink, filepath.Join(link, "y"))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	hears(t, byLink, link)
	hears(t, above, folder)
	for _, w := range []*safefile.Watcher{direct, elsewhere} {
		for done := false; !done; {
			select {
			case e := <-w.Events:
				if w == elsewhere || e.Name == filepath.Join(folder, "y") {
					t.Errorf("got %v", e)
				}
			default:
				done = true
			}
		}
	}
}

// A folder that takes the place of another is watched once one of them asks.
func TestWatchersOfAReplacedFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(folder) // the system reports its removal once nobody holds it
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	first, second := watch(t, folder), watch(t, folder)
	for i := range 20 {
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := first.Add(folder); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, string(rune('a'+i)))
		touch(t, name)
		hears(t, first, name)
		hears(t, second, name)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader that does not read holds up no other, and is told that it missed some.
func TestWatcherThatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	slow, quick := watch(t, dir), watch(t, dir)
	for range 1000 {
		touch(t, filepath.Join(dir, "x"))
		hears(t, quick, filepath.Join(dir, "x"))
	}
	select {
	case <-slow.Lost:
	case <-time.After(time.Minute):
		t.Error("nothing is said of what was lost")
	}
	var e fsnotify.Event
	if e = <-slow.Events; e.Name != filepath.Join(dir, "x") {
		t.Errorf("got %v", e)
	}
}
