package filebox

import (
	"io/fs"
	"log/slog"
	"os"

	"github.com/fsnotify/fsnotify"

	"feishu-relay/internal/safefile"
)

// notices are the changes in one folder, as far as the system tells. They are
// hints: whoever gets them looks by the clock, too. They belong to one goroutine.
type notices struct {
	dir  string
	deaf bool // ask for none
	log  *slog.Logger

	watch   *safefile.Watcher // nil: not watching
	watched fs.FileInfo       // the folder that watch watches
	failed  bool              // said so already
}

// arm watches the folder that is at the path now, and reports whether that is
// another one than before.
func (n *notices) arm() (anew bool) {
	if n.deaf {
		return false
	}
	now, err := os.Stat(n.dir)
	if err == nil && n.watch != nil && os.SameFile(now, n.watched) {
		return false
	}
	n.close()
	if err != nil {
		return false // who reads the folder sees the same fault and shows it
	}
	watch, err := safefile.NewWatcher()
	if err == nil {
		if err = watch.Add(n.dir); err == nil {
			n.watch, n.watched, n.failed = watch, now, false
			return true
		}
		_ = watch.Close() // it watches nothing
	}
	if !n.failed {
		n.failed = true
		n.log.Warn("no notices of change; the folder is looked at by the clock alone", "dir", n.dir, "err", err)
	}
	return false
}

// channels returns the changes and the losses of changes; nil while there are none.
func (n *notices) channels() (<-chan fsnotify.Event, <-chan struct{}) {
	if n.watch == nil {
		return nil, nil
	}
	return n.watch.Events, n.watch.Lost
}

func (n *notices) close() {
	if n.watch != nil {
		_ = n.watch.Close() // a notice is only a hint
		n.watch = nil
	}
}
