package groups

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
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
	path    string
	log     *slog.Logger
	every   time.Duration
	current atomic.Pointer[File]

	mu   sync.Mutex
	err  error  // guarded by mu
	data []byte // the last content read; nil: none; guarded by mu
	seen bool   // the file existed once; guarded by mu
}

// New returns a watcher of the file at path, which need not exist, nor its
// folder. A nil log discards.
func New(path string, log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{path: path, log: log, every: lookEvery}
	w.current.Store(&File{})
	return w
}

// Load reads the file. A missing one means an empty [File] and no error. After
// an error [Watcher.Current] is empty, too, and [Watcher.Run] waits for a
// corrected file.
func (w *Watcher) Load() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
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
	for ctx.Err() == nil {
		if w.changed() && wait.Sleep(ctx, settle) == nil {
			w.reload()
		}
		_ = wait.Sleep(ctx, w.every)
	}
}

// changed reports whether the file is not as it was at the last look.
func (w *Watcher) changed() bool {
	data, err := w.read()
	w.mu.Lock()
	defer w.mu.Unlock()
	return err != nil || !bytes.Equal(data, w.data)
}

func (w *Watcher) reload() {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.err
	changed := w.look()
	switch {
	case w.err != nil && (changed || before == nil || before.Error() != w.err.Error()):
		w.log.Error("the groups file is invalid; the previous one stays in use", "err", w.err)
	case w.err == nil && (changed || before != nil):
		f := w.Current()
		w.log.Info("groups file loaded", "path", w.path, "agents", len(f.Agents), "groups", len(f.Groups))
	}
}

// look reads the file, and reports whether its content is new. The caller holds mu.
func (w *Watcher) look() (changed bool) {
	data, err := w.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.data, w.err = nil, nil
		if w.seen {
			w.err = fmt.Errorf("groups file %s: %w", w.path, errGone)
		}
		return false
	case err != nil:
		w.data, w.err = nil, fmt.Errorf("groups file %s: %w", w.path, err)
		return false
	case w.data != nil && bytes.Equal(data, w.data):
		return false // touched, or replaced with the same content
	}
	w.seen, w.data = true, data
	f, err := Parse(data)
	if err != nil {
		w.err = fmt.Errorf("groups file %s: %w", w.path, err)
		return true
	}
	w.err = nil
	w.current.Store(f)
	if len(f.Unread) > 0 {
		w.log.Warn("the groups file has unknown keys", "path", w.path, "keys", strings.Join(f.Unread, "; "))
	}
	return true
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
