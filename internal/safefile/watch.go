package safefile

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// maxEvents is how many events wait for a reader of a [Watcher]. At one more they
// are lost, which Lost says.
const maxEvents = 128

// Watcher reports changes in folders, as far as the system does. Whoever uses
// one looks by the clock as well. All watchers of a process share one instance of
// the system's, of which a user has few (128 on Linux).
type Watcher struct {
	Events <-chan fsnotify.Event // of a folder itself: only that it was removed or renamed
	Lost   <-chan struct{}       // has a value when events were lost
	Prefix string                // only files whose names begin with it are reported; set it before Add

	events chan fsnotify.Event
	lost   chan struct{}
	open   bool // guarded by shared.mu
}

// shared is what the watchers of this process have in common.
var shared struct {
	mu      sync.Mutex
	users   int               // watchers that are not closed; guarded by mu
	watcher *fsnotify.Watcher // nil without users; guarded by mu
	// folders are the watched folders by their real paths. The map and what is in
	// it is replaced under mu and never changed: who hands out events takes no lock.
	folders atomic.Pointer[map[string]*watchedFolder]
}

type watchedFolder struct {
	info  fs.FileInfo
	gone  *atomic.Bool // it was removed or renamed, and the system watches it no more
	hears []listener
}

// listener is a watcher of a folder, by the path that it knows it by.
type listener struct {
	watcher *Watcher
	path    string
}

// NewWatcher returns a watcher of no folder. The caller closes it.
func NewWatcher() (*Watcher, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		shared.watcher = w
		shared.folders.Store(&map[string]*watchedFolder{})
		go handOut(w.Events)
		// The errors are read at all times: fsnotify reports some of them while it
		// holds the lock that Add and Close need.
		go reportLosses(w.Errors)
	}
	shared.users++
	w := &Watcher{events: make(chan fsnotify.Event, maxEvents), lost: make(chan struct{}, 1), open: true}
	w.Events, w.Lost = w.events, w.lost
	return w, nil
}

// Add watches the folder that is at path now, too. To add it again does nothing,
// unless another folder has taken its place.
func (w *Watcher) Add(path string) error {
	name, err := realPath(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !w.open {
		return fsnotify.ErrClosed
	}
	folders := maps.Clone(*shared.folders.Load())
	f := watchedFolder{info: info, gone: new(atomic.Bool)}
	if old := folders[name]; old != nil {
		f.hears = old.hears
		if !old.gone.Load() && os.SameFile(old.info, info) {
			f.gone = old.gone
		} else {
			_ = shared.watcher.Remove(name) // fails when the folder is gone
		}
	}
	if err := shared.watcher.Add(name); err != nil { // twice does nothing
		return err
	}
	if l := (listener{w, filepath.Clean(path)}); !slices.Contains(f.hears, l) {
		f.hears = append(slices.Clip(f.hears), l)
	}
	folders[name] = &f
	shared.folders.Store(&folders)
	return nil
}

func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// Close ends the watcher. It may be called more than once.
func (w *Watcher) Close() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !w.open {
		return nil
	}
	w.open = false
	folders := maps.Clone(*shared.folders.Load())
	for name, old := range folders {
		f := *old
		f.hears = slices.DeleteFunc(slices.Clone(old.hears), func(l listener) bool { return l.watcher == w })
		folders[name] = &f
		if len(f.hears) == 0 {
			delete(folders, name)
			_ = shared.watcher.Remove(name) // it may be gone
		}
	}
	shared.folders.Store(&folders)
	if shared.users--; shared.users > 0 {
		return nil
	}
	err := shared.watcher.Close()
	shared.watcher = nil
	return err
}

// handOut gives each event to those who watch the folder that it is in, or that it
// is about.
func handOut(events <-chan fsnotify.Event) {
	for e := range events {
		folders := *shared.folders.Load()
		if f := folders[filepath.Dir(e.Name)]; f != nil {
			for _, l := range f.hears {
				if name := filepath.Base(e.Name); strings.HasPrefix(name, l.watcher.Prefix) {
					l.watcher.give(fsnotify.Event{Name: filepath.Join(l.path, name), Op: e.Op})
				}
			}
		}
		if f := folders[e.Name]; f != nil && e.Has(fsnotify.Remove|fsnotify.Rename) {
			f.gone.Store(true)
			for _, l := range f.hears {
				l.watcher.give(fsnotify.Event{Name: l.path, Op: e.Op})
			}
		}
	}
}

func reportLosses(errs <-chan error) {
	for range errs {
		for _, f := range *shared.folders.Load() {
			for _, l := range f.hears {
				l.watcher.lose()
			}
		}
	}
}

// give never waits: one reader that is slow holds up no other.
func (w *Watcher) give(e fsnotify.Event) {
	select {
	case w.events <- e:
	default:
		w.lose()
	}
}

func (w *Watcher) lose() {
	select {
	case w.lost <- struct{}{}:
	default:
	}
}
