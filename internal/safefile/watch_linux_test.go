package safefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func watch(t *testing.T, path string) *watcher {
	t.Helper()
	w, err := watchFolder(path, "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func end(t *testing.T, all ...*watcher) {
	t.Helper()
	for _, w := range all {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
}

// hears waits until w reports want.
func hears(t *testing.T, w *watcher, want Notice) {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case got := <-w.changes:
			if got == want {
				return
			}
		case <-limit:
			t.Fatalf("%+v was not reported", want)
		}
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each hears of what it watches, by whatever path, and of nothing else.
func TestWatchersHearTheirOwn(t *testing.T) {
	dir := t.TempDir()
	folder, other, link := filepath.Join(dir, "folder"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	for _, err := range []error{os.Mkdir(folder, 0o700), os.Mkdir(other, 0o700), os.Symlink(folder, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	direct, byLink, above, elsewhere := watch(t, folder), watch(t, link), watch(t, dir), watch(t, other)
	write(t, filepath.Join(folder, "x"))
	hears(t, direct, Notice{Name: "x"})
	hears(t, byLink, Notice{Name: "x"})
	end(t, direct)
	write(t, filepath.Join(folder, "y"))
	hears(t, byLink, Notice{Name: "y"})
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	hears(t, byLink, Notice{Gone: true})
	hears(t, above, Notice{Name: "folder"})
	for _, w := range []*watcher{direct, elsewhere} {
		for done := false; !done; {
			select {
			case got := <-w.changes:
				if w == elsewhere || got.Name == "y" {
					t.Errorf("got %+v", got)
				}
			default:
				done = true
			}
		}
	}
	end(t, byLink, above, elsewhere)
}

// A folder that takes the place of another is watched once one of them asks.
func TestWatchersOfAReplacedFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(folder) // the system reports its removal only once it is closed
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
		end(t, first)
		first = watch(t, folder)
		name := string(rune('a' + i))
		write(t, filepath.Join(folder, name))
		hears(t, first, Notice{Name: name})
		hears(t, second, Notice{Name: name})
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	end(t, first, second)
}

// A reader that does not read holds up no other, and learns that it missed some.
func TestWatcherThatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	slow, quick := watch(t, dir), watch(t, dir)
	for range 1000 {
		write(t, filepath.Join(dir, "x"))
		hears(t, quick, Notice{Name: "x"})
	}
	select {
	case <-slow.lost:
	case <-time.After(time.Minute):
		t.Error("lost changes are not reported")
	}
	if got := <-slow.changes; got != (Notice{Name: "x"}) {
		t.Errorf("got %+v", got)
	}
	end(t, slow, quick)
}
