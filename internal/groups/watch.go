package groups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"feishu-relay/internal/wait"
)

const (
	// lookEvery is how often the file is read.
	lookEvery = time.Second
	// settle is the wait before a changed file is used, for editors that write a file in pieces.
	settle = 100 * time.Millisecond
)

// errGone means that a file that existed before is missing.
var errGone = errors.New("the file is gone; its last content stays in force until the next start")

// Watcher keeps a groups file loaded. Current and Err are safe for concurrent
// use; Load must be called before Run, and Run once.
type Watcher struct {
	path  string
	log   *slog.Logger
	every time.Duration

	current atomic.Pointer[File]
	err     atomic.Pointer[error]
	last    string // what Load has read, or why it has not
	seen    bool   // the file existed once
}

// New returns a watcher of the file at path, which need not exist, nor its
// folder. A nil log discards.
func New(path string, log *slog.Logger) *Watcher {
	w := &Watcher{path: path, log: cmp.Or(log, slog.New(slog.DiscardHandler)), every: lookEvery}
	w.current.Store(&File{})
	w.err.Store(new(error))
	return w
}

// Load reads the file. A missing one means an empty [File] and no error, unless it was there before. After
// an error [Watcher.Current] is what it was, and [Watcher.Run] waits for a corrected file.
func (w *Watcher) Load() error {
	data, err := w.read()
	w.last = string(data) + fmt.Sprint(err)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !w.seen:
		err = nil
	case errors.Is(err, fs.ErrNotExist):
		err = errGone
	case err == nil:
		w.seen = true
		var f *File
		if f, err = Parse(data); err != nil {
			break
		}
		w.current.Store(f)
		if len(f.Unread) > 0 {
			w.log.Warn("the groups file has unknown keys", "path", w.path, "keys", strings.Join(f.Unread, "; "))
		}
	}
	if err != nil {
		err = fmt.Errorf("groups file %s: %w", w.path, err)
	}
	w.err.Store(&err)
	return err
}

// Current returns the last good file, or an empty one.
func (w *Watcher) Current() *File { return w.current.Load() }

// Err returns the error of the current file, nil if it is in force.
func (w *Watcher) Err() error { return *w.err.Load() }

// Run loads each change of the file until ctx is done. It logs a broken file
// once, with its mistakes and their places.
func (w *Watcher) Run(ctx context.Context) {
	for wait.Sleep(ctx, w.every) == nil {
		if data, err := w.read(); string(data)+fmt.Sprint(err) == w.last { // also one that was touched
			continue
		}
		if wait.Sleep(ctx, settle) != nil {
			return
		}
		if err := w.Load(); err != nil {
			w.log.Error("the groups file is invalid; the previous one stays in use", "err", err)
			continue
		}
		f := w.Current()
		w.log.Info("groups file loaded", "path", w.path, "agents", len(f.Agents), "groups", len(f.Groups))
	}
}

// read returns the file's content, at most MaxSize+1 bytes.
func (w *Watcher) read() ([]byte, error) {
	if info, err := os.Stat(w.path); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, errors.New("is not a regular file"))
	}
	f, err := os.Open(w.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}
