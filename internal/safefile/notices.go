package safefile

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// Notices reports when to read a folder: after changes, as far as the system reports them,
// and regularly, since reports get lost. All exported fields but Off are required. One
// goroutine uses it and closes it.
type Notices struct {
	Dir     string
	Recheck time.Duration // how often to read without a change
	Off     bool          // changes are not reported
	Prefix  string        // only files with this name prefix count
	Log     *slog.Logger

	tick    *time.Ticker
	watch   *watcher    // nil: not watching
	watched fs.FileInfo // the folder that watch watches
	failed  bool        // a warning that no changes are reported was logged
}

// Notice is a reason to read a folder.
type Notice struct {
	Name   string // of the file in the folder that has changed
	Chmod  bool   // only the file's mode or times have changed
	Ticked bool   // Recheck has passed
	Lost   bool   // changes were lost: any file may have changed
	Gone   bool   // the folder was removed or renamed; Arm watches the next one
}

// Arm watches the folder that is at the path now, and reports whether it is a
// different one than before. Later changes are reported.
func (n *Notices) Arm() (changed bool) {
	if n.Off {
		return false
	}
	now, err := os.Stat(n.Dir)
	if err == nil && n.watch != nil && os.SameFile(now, n.watched) {
		return false
	}
	n.disarm()
	if err != nil {
		return false // the caller gets the same error when it reads the folder
	}
	watch, err := watchFolder(n.Dir, n.Prefix)
	if err == nil {
		n.watch, n.watched, n.failed = watch, now, false
		return true
	}
	if !n.failed {
		n.failed = true
		n.Log.Warn("no change notifications; the folder is only polled", "dir", n.Dir, "err", err)
	}
	return false
}

// Next waits for a notice. It fails only when ctx is done.
func (n *Notices) Next(ctx context.Context) (Notice, error) {
	if n.tick == nil {
		n.tick = time.NewTicker(n.Recheck)
	}
	var changes <-chan Notice
	var lost <-chan struct{}
	if n.watch != nil {
		changes, lost = n.watch.changes, n.watch.lost
	}
	select {
	case <-ctx.Done():
		return Notice{}, ctx.Err()
	case <-n.tick.C:
		return Notice{Ticked: true}, nil
	case <-lost:
		return Notice{Lost: true}, nil
	case change := <-changes:
		if change.Gone {
			n.disarm()
		}
		return change, nil
	}
}

func (n *Notices) disarm() {
	if n.watch != nil {
		_ = n.watch.close() // a notice is only a hint
		n.watch = nil
	}
}

// Close stops watching.
func (n *Notices) Close() {
	n.disarm()
	if n.tick != nil {
		n.tick.Stop()
	}
}
