package filerelay

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"feishu-relay/internal/safefile"
)

// waker says when it is worth looking at the queue: at each notice of a change
// in its folder, after notices were lost, and at each tick. It belongs to one
// goroutine.
type waker struct {
	dir    string
	prefix string // of the names that belong to the queue
	notify bool
	log    *slog.Logger

	tick    *time.Ticker
	watch   *safefile.Watcher // nil: not watching
	watched fs.FileInfo       // the folder that watch watches
	failed  bool              // said so already
}

func newWaker(o Options, log *slog.Logger) *waker {
	return &waker{dir: o.Dir, prefix: o.Queue + ".", notify: !o.NoNotify, log: log, tick: time.NewTicker(o.Recheck)}
}

// arm watches the folder that is at the path now.
func (w *waker) arm() {
	if !w.notify {
		return
	}
	now, err := os.Stat(w.dir)
	if err == nil && w.watch != nil && os.SameFile(now, w.watched) {
		return
	}
	w.disarm()
	if err != nil {
		return // the reader sees the same fault and shows it
	}
	watch, err := safefile.NewWatcher()
	if err == nil {
		if err = watch.Add(w.dir); err == nil {
			w.watch, w.watched, w.failed = watch, now, false
			return
		}
		_ = watch.Close() // it watches nothing
	}
	if !w.failed {
		w.failed = true
		w.log.Warn("no change notices; the queue is looked at by the clock alone", "err", err)
	}
}

func (w *waker) disarm() {
	if w.watch != nil {
		_ = w.watch.Close() // a notice is only a hint
		w.watch = nil
	}
}

// wait returns at the next reason to look; ticked says that it was the clock.
// It fails only when ctx is done.
func (w *waker) wait(ctx context.Context) (ticked bool, err error) {
	for {
		var events <-chan fsnotify.Event
		var lost <-chan struct{}
		if w.watch != nil {
			events, lost = w.watch.Events, w.watch.Lost
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-w.tick.C:
			w.arm()
			return true, nil
		case event := <-events:
			if event.Name == w.dir {
				w.disarm() // the folder was removed or renamed; the next tick looks for it
				continue
			}
			if event.Op != fsnotify.Chmod && strings.HasPrefix(filepath.Base(event.Name), w.prefix) {
				return false, nil
			}
		case <-lost: // notices were lost: anything may have changed
			return false, nil
		}
	}
}

func (w *waker) close() {
	w.tick.Stop()
	w.disarm()
}
