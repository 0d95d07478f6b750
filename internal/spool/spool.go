// Package spool keeps JSON documents that wait to be processed: each is a file of
// one folder, and may have a time at which it is due.
//
// # Files
//
// A document is a JSON object in a private file. [Spool.Save] replaces a file atomically: a killed process
// leaves the old document or the new. A file without a valid document is quarantined: renamed to *.broken, with a
// warning.
//
// # Memory
//
// The spool has names, sizes and times in memory. It has a document itself in memory
// only while that is not on disk: [Spool.Hold] keeps it until it is saved or removed.
//
// # Time
//
// [Spool.Schedule] sets when a document is due. [Spool.Wait] returns the due ones and
// clears their times: the caller schedules them again if needed.
package spool

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

var (
	ErrFull   = errors.New("the spool is full")
	ErrLarge  = errors.New("the document is too large")
	ErrBroken = errors.New("broken")
)

// Options of a spool. Suffix and MaxFile are required.
type Options struct {
	Prefix, Suffix string       // of the names of its files
	MaxFile        int          // bytes of a document
	MaxDocs        int          // documents; 0: no limit
	MaxBytes       int64        // of all documents together; 0: no limit
	MaxHeld        int64        // bytes of the documents in memory; 0: no limit
	Unreadable     func()       // called for each file that is broken or cannot be read; may be nil
	Logger         *slog.Logger // nil: discard
}

// Spool is the documents of one folder. Its methods are safe for concurrent use; the
// caller orders calls for the same name.
type Spool[T any] struct {
	root    *os.Root
	opts    Options
	changed chan struct{}

	mu               sync.Mutex
	docs             map[string]*doc[T] // by name; guarded by mu, as the rest is
	due              dueHeap[T]
	bytes, heldBytes int64
}

// doc is the state of a document.
type doc[T any] struct {
	name   string
	size   int64
	held   *T        // the document, if it is not on disk
	onDisk bool      // a file exists, maybe an older one
	at     time.Time // when it is due, if index >= 0
	index  int       // in the heap; -1 without a time
}

// New returns the spool in a folder, in which files with the prefix and suffix belong to
// it. With a nil root nothing is stored on disk. [Spool.Load] reads the existing files.
func New[T any](root *os.Root, o Options) *Spool[T] {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxDocs = cmp.Or(o.MaxDocs, math.MaxInt)
	o.MaxBytes, o.MaxHeld = cmp.Or(o.MaxBytes, math.MaxInt64), cmp.Or(o.MaxHeld, math.MaxInt64)
	return &Spool[T]{root: root, opts: o, changed: make(chan struct{}, 1), docs: map[string]*doc[T]{}}
}

// Load calls take for each document of the folder, in the order of their names. If take
// returns an error the document is quarantined, too. Load removes temporary files that a
// killed process left. A file that can be neither read nor quarantined is logged and
// skipped; the error has the number of these and the first one's error.
func (s *Spool[T]) Load(take func(name string, v T) error) error {
	if s.root == nil {
		return nil
	}
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	var first error
	failed := 0
	for _, entry := range entries {
		file, ours := strings.CutPrefix(entry.Name(), s.opts.Prefix)
		name, document := strings.CutSuffix(file, s.opts.Suffix)
		switch {
		case !ours || !entry.Type().IsRegular():
			continue
		case strings.HasSuffix(file, ".tmp"):
			_ = s.root.Remove(entry.Name())
			continue
		case !document:
			continue
		}
		v, size, err := s.read(name)
		if err == nil {
			s.put(name, size, nil)
			if err = take(name, v); err != nil {
				err = fmt.Errorf("%w: %w", ErrBroken, err)
			}
		}
		if errors.Is(err, ErrBroken) {
			err = s.Quarantine(name, err)
		} else if err != nil {
			s.unreadable()
		}
		if err != nil {
			s.opts.Logger.Warn("a file is skipped", "folder", s.root.Name(), "file", entry.Name(), "err", err)
			first = cmp.Or(first, err)
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("files that can be neither read nor renamed: %d; the first: %w", failed, first)
	}
	return nil
}

// Save writes a document. It returns [ErrLarge], [ErrFull] for a new one beyond the limits,
// or the error of the disk; then the file is unchanged.
func (s *Spool[T]) Save(name string, v T) error {
	data, err := s.encode(v)
	if err == nil {
		err = s.room(name, int64(len(data)), 0)
	}
	if err == nil && s.root != nil {
		err = safefile.ReplaceFast(s.root, s.file(name), data)
	}
	if err != nil {
		return err
	}
	s.put(name, int64(len(data)), nil)
	return nil
}

// Hold keeps a document of about size bytes in memory until it is saved or removed. It
// returns [ErrFull] beyond the limits; then nothing changes.
func (s *Spool[T]) Hold(name string, v T, size int) error {
	err := s.room(name, int64(size), int64(size))
	if err == nil {
		s.put(name, int64(size), &v)
	}
	return err
}

// Read returns a document: the one in memory, or the one on disk. The error for a file
// without a valid document wraps [ErrBroken], that for a missing one [fs.ErrNotExist].
func (s *Spool[T]) Read(name string) (T, error) {
	s.mu.Lock()
	if d := s.docs[name]; d != nil && d.held != nil {
		defer s.mu.Unlock()
		return *d.held, nil
	}
	s.mu.Unlock()
	v, _, err := s.read(name)
	return v, err
}

// Remove removes a document and its file. A file that cannot be removed is logged, and
// loaded again at the next start.
func (s *Spool[T]) Remove(name string) {
	if err := s.Delete(name); err != nil {
		s.opts.Logger.Warn("a file that is no longer needed cannot be removed", "file", s.file(name), "err", err)
		s.forget(name)
	}
}

// Delete removes a document's file, and then the document. After an error the document is
// unchanged.
func (s *Spool[T]) Delete(name string) error {
	s.mu.Lock()
	d := s.docs[name]
	onDisk := s.root != nil && (d == nil || d.onDisk)
	s.mu.Unlock()
	if onDisk {
		if err := s.root.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.forget(name)
	return nil
}

// Quarantine removes a document and renames its file to *.broken, for a person to examine.
func (s *Spool[T]) Quarantine(name string, why error) error {
	s.forget(name)
	s.unreadable()
	s.opts.Logger.Warn("a file that cannot be read is quarantined as *.broken", "folder", s.root.Name(),
		"file", s.file(name), "err", why)
	return s.root.Rename(s.file(name), s.file(name)+".broken")
}

func (s *Spool[T]) unreadable() {
	if s.opts.Unreadable != nil {
		s.opts.Unreadable()
	}
}

// Len returns the number of documents.
func (s *Spool[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.docs)
}

// Schedule sets when a document is due; the zero time clears it. It does nothing if the
// document does not exist.
func (s *Spool[T]) Schedule(name string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.docs[name]
	if d == nil {
		return
	}
	s.unschedule(d)
	if d.at = at; at.IsZero() {
		return
	}
	heap.Push(&s.due, d)
	if d.index == 0 {
		wait.Wake(s.changed)
	}
}

// Due returns the names of the documents due at now, in the order of their times, and
// clears these times.
func (s *Spool[T]) Due(now time.Time) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.due) > 0 && !now.Before(s.due[0].at) {
		names = append(names, heap.Pop(&s.due).(*doc[T]).name)
	}
	return names
}

// Ready waits until a document is due. Its error is ctx's.
func (s *Spool[T]) Ready(ctx context.Context) error {
	for {
		var at time.Time // none
		s.mu.Lock()
		if len(s.due) > 0 {
			at = s.due[0].at
		}
		s.mu.Unlock()
		if !at.IsZero() && !time.Now().Before(at) {
			return ctx.Err()
		}
		if err := wait.Change(ctx, at, s.changed); err != nil {
			return err
		}
	}
}

// Wait waits until a document is due, and returns the result of [Spool.Due]. Its error is
// ctx's.
func (s *Spool[T]) Wait(ctx context.Context) ([]string, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	return s.Due(time.Now()), nil
}

func (s *Spool[T]) file(name string) string { return s.opts.Prefix + name + s.opts.Suffix }

// encode returns v as a line of JSON.
func (s *Spool[T]) encode(v T) ([]byte, error) {
	data, err := relay.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) >= s.opts.MaxFile {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrLarge, len(data)+1, s.opts.MaxFile)
	}
	return append(data, '\n'), nil
}

// Decode reads the content of a file.
func (s *Spool[T]) Decode(data []byte) (v T, err error) {
	if len(data) > s.opts.MaxFile {
		return v, fmt.Errorf("%w: more than %d bytes", ErrBroken, s.opts.MaxFile)
	}
	if json.Unmarshal(data, &v) != nil { // its error may quote the text
		return v, fmt.Errorf("%w: not a document of the expected form", ErrBroken)
	}
	return v, nil
}

func (s *Spool[T]) read(name string) (v T, size int64, err error) {
	if s.root == nil {
		return v, 0, fs.ErrNotExist
	}
	f, err := safefile.Open(s.root, s.file(name), os.O_RDONLY)
	if err != nil {
		return v, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(s.opts.MaxFile)+1))
	if err = errors.Join(err, f.Close()); err == nil {
		v, err = s.Decode(data)
	}
	return v, int64(len(data)), err
}

// room returns ErrFull if a new document of size bytes, or held more bytes in memory,
// would exceed the limits.
func (s *Spool[T]) room(name string, size, held int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := len(s.docs) >= s.opts.MaxDocs || s.bytes+size > s.opts.MaxBytes
	if full && s.docs[name] == nil || s.heldBytes+held > s.opts.MaxHeld {
		return ErrFull
	}
	return nil
}

// put adds or updates a document; held is nil if it is on disk.
func (s *Spool[T]) put(name string, size int64, held *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.docs[name]
	if d == nil {
		d = &doc[T]{name: name, index: -1}
		s.docs[name] = d
	}
	d.onDisk = d.onDisk || held == nil
	s.size(d, size, held)
}

// forget removes a document from memory.
func (s *Spool[T]) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.docs[name]; d != nil {
		s.size(d, 0, nil)
		s.unschedule(d)
		delete(s.docs, name)
	}
}

// size sets the size of d, and whether it is in memory; the caller holds mu.
func (s *Spool[T]) size(d *doc[T], size int64, held *T) {
	if d.held != nil {
		s.heldBytes -= d.size
	}
	s.bytes += size - d.size
	if d.size, d.held = size, held; held != nil {
		s.heldBytes += size
	}
}

// unschedule removes d from the heap; the caller holds mu.
func (s *Spool[T]) unschedule(d *doc[T]) {
	if d.index >= 0 {
		heap.Remove(&s.due, d.index)
	}
}

// dueHeap is the documents that have a time, the earliest first.
type dueHeap[T any] []*doc[T]

func (h dueHeap[T]) Len() int { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].name, h[j].name)) < 0
}
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueHeap[T]) Push(x any) {
	d := x.(*doc[T])
	d.index = len(*h)
	*h = append(*h, d)
}
func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	d.index = -1
	*h = slices.Delete(*h, last, last+1)
	return d
}
