package safefile

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// Notices reports when to look at a folder: at changes, as far as the system reports
// them, and by the clock, since reports get lost. All exported fields but Off are required.
// It belongs to one goroutine, which closes it.
type Notices struct {
	Dir     string
	Recheck time.Duration // how often the clock gives a reason to look
	Off     bool          // the clock alone does
	Prefix  string        // files whose names begin otherwise do not count
	Log     *slog.Logger

	tick    *time.Ticker
	watch   *watcher    // nil: not watching
	watched fs.FileInfo // the folder that watch watches
	failed  bool        // it was logged that no changes are reported
}

// Notice is a reason to look at a folder.
type Notice struct {
	Name   string // of the file in the folder that has changed
	Chmod  bool   // of the file, only its rights or times have changed
	Ticked bool   // the clock is the reason
	Lost   bool   // changes were lost: any file may have changed
	Gone   bool   // the folder was removed or renamed; Arm watches the next one
}

// Arm watches the folder that is at the path now, and reports whether that is another
// one than before. Changes after it are reported.
func (n *Notices) Arm() (anew bool) {
	if n.Off {
		return false
	}
	now, err := os.Stat(n.Dir)
	if err == nil && n.watch != nil && os.SameFile(now, n.watched) {
		return false
	}
	n.disarm()
	if err != nil {
		return false // who reads the folder sees the same fault and reports it
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

// Next waits for a reason to look. It fails only when ctx is done.
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

// Close ends the watching.
func (n *Notices) Close() {
	n.disarm()
	if n.tick != nil {
		n.tick.Stop()
	}
}
