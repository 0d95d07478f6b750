package safefile

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxNotices is how many changes may wait for the reader of [Notices]; beyond them changes are lost.
const maxNotices = 128

// Notices reports when to read a folder: after changes, as far as the system reports them,
// and regularly, since reports get lost. All exported fields but Off and Prefix are required. One
// goroutine uses it and closes it.
type Notices struct {
	Dir     string
	Recheck time.Duration // how often to read without a change
	Off     bool          // changes are not reported
	Prefix  string        // only files with this name prefix count
	Log     *slog.Logger

	tick    *time.Ticker
	changes chan Notice
	lost    atomic.Bool // changes found no room in it
	folder  string      // the real path under which n is in watched
	info    fs.FileInfo // the folder that is watched; nil: none
	failed  bool        // a warning that no changes are reported was logged
}

// Notice is a reason to read a folder.
type Notice struct {
	Name   string // of the file in the folder that has changed
	Ticked bool   // Recheck has passed
	// Lost: changes were lost, or a folder at the path was removed or renamed. Any file may have changed. Next has
	// called Arm.
	Lost bool
}

// watched is the folders that this process watches. They share one inotify instance, since a user may have
// only a few (128 on Linux).
var watched = struct {
	changing sync.Mutex // is held while what follows changes, and never by deliver, for which watcher may wait
	watcher  *fsnotify.Watcher
	sync.Mutex
	folders map[string][]*Notices // by their real paths
}{folders: map[string][]*Notices{}}

// Arm watches the folder that is at the path now, and reports whether it is a
// different one than before. Later changes are reported.
func (n *Notices) Arm() (changed bool) {
	now, err := os.Stat(n.Dir)
	if n.Off || err == nil && n.info != nil && os.SameFile(now, n.info) {
		return false
	}
	if err != nil {
		n.disarm()
		return false // the caller gets the same error when it reads the folder
	}
	if err = n.watch(); err == nil {
		n.info, n.failed = now, false
		return true
	}
	n.disarm()
	if !n.failed {
		n.failed = true
		n.Log.Warn("no change notifications; the folder is only polled", "dir", n.Dir, "err", err)
	}
	return false
}

// watch adds the folder that is at the path now. It does not remove the one before first, whose end may be reported
// after this: while it is added again in answer to that, changes are reported.
func (n *Notices) watch() error {
	folder, err := filepath.Abs(n.Dir)
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return err
	}
	if folder != n.folder {
		n.disarm()
	}
	watched.changing.Lock()
	defer watched.changing.Unlock()
	if watched.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		watched.watcher = w
		go deliver(w)
	}
	if n.folder == "" {
		n.folder = folder
		n.changes = cmp.Or(n.changes, make(chan Notice, maxNotices))
		watched.Lock()
		watched.folders[folder] = append(watched.folders[folder], n)
		watched.Unlock()
	}
	return watched.watcher.Add(folder) // for the others, too, if it is not the folder that they know
}

func (n *Notices) disarm() {
	n.info = nil
	if n.folder == "" {
		return
	}
	watched.changing.Lock()
	defer watched.changing.Unlock()
	watched.Lock()
	left := slices.DeleteFunc(watched.folders[n.folder], func(o *Notices) bool { return o == n })
	if watched.folders[n.folder] = left; len(left) == 0 {
		delete(watched.folders, n.folder)
	}
	watched.Unlock()
	if len(left) == 0 {
		_ = watched.watcher.Remove(n.folder) // it may be gone
	}
	if len(watched.folders) == 0 {
		_ = watched.watcher.Close() // a notice is only a hint
		watched.watcher = nil
	}
	n.folder = ""
}

// Next waits for a notice. It fails only when ctx is done.
func (n *Notices) Next(ctx context.Context) (why Notice, err error) {
	if n.tick == nil {
		n.tick = time.NewTicker(n.Recheck)
	}
	select {
	case <-ctx.Done():
		return Notice{}, ctx.Err()
	case <-n.tick.C:
		return Notice{Ticked: true}, nil
	case why = <-n.changes:
	}
	if n.lost.Swap(false) || why.Lost {
		why, n.info = Notice{Lost: true}, nil
		n.Arm()
	}
	return why, nil
}

// Close stops watching.
func (n *Notices) Close() {
	n.disarm()
	if n.tick != nil {
		n.tick.Stop()
	}
}

// deliver passes what w reports to the notices of its folder, which may be the subject of an event itself, until
// w is closed.
func deliver(w *fsnotify.Watcher) {
	for {
		select {
		case _, open := <-w.Errors:
			if !open {
				return
			}
			watched.Lock()
			for _, all := range watched.folders {
				give(all, Notice{Lost: true})
			}
			watched.Unlock()
		case e, open := <-w.Events:
			if !open {
				return
			}
			watched.Lock()
			if e.Op != fsnotify.Chmod { // only the file's mode or times have changed
				give(watched.folders[filepath.Dir(e.Name)], Notice{Name: filepath.Base(e.Name)})
			}
			if e.Has(fsnotify.Remove | fsnotify.Rename) {
				give(watched.folders[e.Name], Notice{Lost: true})
			}
			watched.Unlock()
		}
	}
}

// give never waits, so that a slow reader does not delay others.
func give(all []*Notices, why Notice) {
	for _, n := range all {
		if !strings.HasPrefix(why.Name, n.Prefix) && !why.Lost {
			continue
		}
		select {
		case n.changes <- why:
		default:
			n.lost.Store(true)
		}
	}
}
