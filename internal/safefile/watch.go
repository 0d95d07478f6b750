package safefile

import (
	"errors"
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

// maxEvents is how many changes may wait for the reader of a [watcher]. One more is
// dropped, and lost is signalled.
const maxEvents = 128

// watcher reports changes in a folder, as far as the system does. All watchers of a
// process share one inotify instance, since a user may have only a few (128 on
// Linux).
type watcher struct {
	changes chan Notice
	lost    chan struct{} // has a value when changes were lost
	prefix  string        // only files whose names begin with it are reported
	folder  string        // its real path
}

// shared is the state that the watchers of this process share.
var shared struct {
	mu      sync.Mutex
	users   int               // watchers that are not closed; guarded by mu
	watcher *fsnotify.Watcher // nil without users; guarded by mu
	// folders are the watched folders by their real paths. The map and its values are
	// immutable and replaced under mu, so that handOut needs no lock.
	folders atomic.Pointer[map[string]*watchedFolder]
}

type watchedFolder struct {
	info  fs.FileInfo
	gone  *atomic.Bool // removed or renamed, and so no longer watched
	hears []*watcher
}

// watchFolder watches the folder that is at path now. Earlier watchers of the path get
// its changes too. The caller closes the watcher.
func watchFolder(path, prefix string) (*watcher, error) {
	name, err := realPath(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
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
		// Errors must be read at all times: fsnotify sends some of them while it
		// holds the lock that Add and Close need.
		go reportLosses(w.Errors)
	}
	shared.users++
	folders := maps.Clone(*shared.folders.Load())
	f := watchedFolder{info: info, gone: new(atomic.Bool)}
	if old := folders[name]; old != nil {
		f.hears = old.hears
		if !old.gone.Load() && os.SameFile(old.info, info) {
			f.gone = old.gone
		} else {
			_ = shared.watcher.Remove(name) // fails if the folder is gone
		}
	}
	if err := shared.watcher.Add(name); err != nil { // a repeat does nothing
		return nil, errors.Join(err, release())
	}
	w := &watcher{changes: make(chan Notice, maxEvents), lost: make(chan struct{}, 1), prefix: prefix, folder: name}
	f.hears = append(slices.Clip(f.hears), w)
	folders[name] = &f
	shared.folders.Store(&folders)
	return w, nil
}

func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// close ends the watcher. It must be called once.
func (w *watcher) close() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	folders := maps.Clone(*shared.folders.Load())
	f := *folders[w.folder]
	f.hears = slices.DeleteFunc(slices.Clone(f.hears), func(other *watcher) bool { return other == w })
	folders[w.folder] = &f
	if len(f.hears) == 0 {
		delete(folders, w.folder)
		_ = shared.watcher.Remove(w.folder) // the folder may be gone
	}
	shared.folders.Store(&folders)
	return release()
}

// release closes the shared instance after the last watcher. The caller holds
// shared.mu.
func release() error {
	if shared.users--; shared.users > 0 {
		return nil
	}
	err := shared.watcher.Close()
	shared.watcher = nil
	return err
}

// handOut passes each event to the watchers of its folder, which may be the
// subject of the event itself.
func handOut(events <-chan fsnotify.Event) {
	for e := range events {
		folders := *shared.folders.Load()
		if f := folders[filepath.Dir(e.Name)]; f != nil {
			change := Notice{Name: filepath.Base(e.Name), Chmod: e.Op == fsnotify.Chmod}
			for _, w := range f.hears {
				if strings.HasPrefix(change.Name, w.prefix) {
					w.give(change)
				}
			}
		}
		if f := folders[e.Name]; f != nil && e.Has(fsnotify.Remove|fsnotify.Rename) {
			f.gone.Store(true)
			for _, w := range f.hears {
				w.give(Notice{Gone: true})
			}
		}
	}
}

func reportLosses(errs <-chan error) {
	for range errs {
		for _, f := range *shared.folders.Load() {
			for _, w := range f.hears {
				w.lose()
			}
		}
	}
}

// give passes a change to w. It never waits, so that a slow reader does not
// delay others.
func (w *watcher) give(change Notice) {
	select {
	case w.changes <- change:
	default:
		w.lose()
	}
}

func (w *watcher) lose() {
	select {
	case w.lost <- struct{}{}:
	default:
	}
}
