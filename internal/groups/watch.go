package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
)

const (
	// recheck is how often the file is checked without a change notice: notices
	// get lost, on network file systems always.
	recheck = 2 * time.Second
	// settle is the wait after a notice, for editors that write a file in
	// pieces. Further notices do not prolong it.
	settle = 100 * time.Millisecond
	// racy is how old a file must be before an unchanged time and size mean
	// unchanged content: file systems have coarse clocks.
	racy = 5 * time.Second
)

// errGone means that a file that existed before is missing.
var errGone = errors.New("the file is gone; its last content stays in force until the next start")

// Watcher keeps a groups file loaded. Current and Err are safe for concurrent
// use; Load must be called before Run, and Run once.
type Watcher struct {
	path    string
	log     *slog.Logger
	recheck time.Duration

	current atomic.Pointer[File]

	mu     sync.Mutex
	err    error       // guarded by mu
	info   os.FileInfo // of the last content read; guarded by mu
	readAt time.Time   // guarded by mu
	data   []byte      // the last content read; guarded by mu
	seen   bool        // the file existed once; guarded by mu
}

// New returns a watcher of the file at path, which need not exist, nor its
// folder. A nil log discards.
func New(path string, log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{path: path, log: log, recheck: recheck}
	w.current.Store(&File{})
	return w
}

// Load reads the file. A missing one means an empty [File] and no error. After
// an error [Watcher.Current] is empty, too, and [Watcher.Run] waits for a
// corrected file.
func (w *Watcher) Load() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(true)
	return w.err
}

// Current returns the last good file, or an empty one.
func (w *Watcher) Current() *File { return w.current.Load() }

// Err returns the error of the current file, nil if it is in force.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run loads each change of the file until ctx is done. It logs a broken file
// once, with its mistakes and their places.
func (w *Watcher) Run(ctx context.Context) {
	// The folder is watched, since editors replace the file. It may appear later or be
	// replaced, too.
	n := safefile.Notices{Dir: filepath.Dir(w.path), Recheck: w.recheck, Log: w.log}
	defer n.Close()
	n.Arm()
	w.reload(true) // it may have changed since Load
	for {
		why, err := n.Next(ctx)
		switch {
		case err != nil:
			return
		case why.Ticked:
			n.Arm()
		case why.Name == filepath.Base(w.path):
			resting, cancel := context.WithTimeout(ctx, settle)
			for err == nil {
				_, err = n.Next(resting)
			}
			cancel()
		case !why.Lost:
			continue
		}
		w.reload(!why.Ticked)
	}
}

func (w *Watcher) reload(force bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.err
	changed := w.look(force)
	switch {
	case w.err != nil && (changed || before == nil || before.Error() != w.err.Error()):
		w.log.Error("the groups file is invalid; the previous one stays in use", "err", w.err)
	case w.err == nil && (changed || before != nil):
		f := w.Current()
		w.log.Info("groups file loaded", "path", w.path, "agents", len(f.Agents), "groups", len(f.Groups))
	}
}

// look reads the file if it may have changed, or with force, and reports
// whether its content is new. The caller holds mu.
func (w *Watcher) look(force bool) (changed bool) {
	data, err := w.read(force)
	switch {
	case errors.Is(err, errUnchanged):
		return false
	case errors.Is(err, fs.ErrNotExist):
		w.data, w.info, w.err = nil, nil, nil
		if w.seen {
			w.err = fmt.Errorf("groups file %s: %w", w.path, errGone)
		}
		return false
	case err != nil:
		w.data, w.info = nil, nil
		w.err = fmt.Errorf("groups file %s: %w", w.path, err)
		return false
	}
	if w.data != nil && bytes.Equal(data, w.data) {
		return false // touched, or replaced with the same content
	}
	w.seen = true
	w.data = data
	f, err := Parse(data)
	if err != nil {
		w.err = fmt.Errorf("groups file %s: %w", w.path, err)
		return true
	}
	w.err = nil
	w.current.Store(f)
	if keys := f.Unread(); len(keys) > 0 {
		w.log.Warn("the groups file has unknown keys", "path", w.path, "keys", strings.Join(keys, "; "))
	}
	return true
}

var errUnchanged = errors.New("unchanged")

// read returns the file's content, at most MaxSize+1 bytes.
func (w *Watcher) read(force bool) ([]byte, error) {
	info, err := os.Stat(w.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	if !force && w.info != nil && os.SameFile(info, w.info) && info.Size() == w.info.Size() &&
		info.ModTime().Equal(w.info.ModTime()) && w.readAt.Sub(info.ModTime()) > racy {
		return nil, errUnchanged
	}
	w.info, w.readAt = info, time.Now()
	f, err := os.Open(w.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}
