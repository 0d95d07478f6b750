package relay

import (
	"context"
	"sync"
)

// The most lines and bytes that a reader may hold unsettled. At either limit it
// stops reading until a line is settled.
const (
	MaxUnsettled      = 1000
	MaxUnsettledBytes = 32 << 20
)

// Window keeps a reader's position: the place after the last line such that it
// and all before it are settled. P is the backend's type of a place.
//
// It is safe for concurrent use.
type Window[P any] struct {
	mu      sync.Mutex
	open    []*slot[P] // in reading order, from the oldest unsettled line on; guarded by mu
	waiting int        // how many of open are unsettled; guarded by mu
	bytes   int        // of the unsettled lines; guarded by mu
	settled P          // everything up to here is settled; guarded by mu
	moved   int        // settled lines since the last Position; guarded by mu
	room    chan struct{}
}

type slot[P any] struct {
	behind P
	bytes  int
	done   bool
}

// NewWindow returns a window whose position is start.
func NewWindow[P any](start P) *Window[P] {
	return &Window[P]{settled: start, room: make(chan struct{}, 1)}
}

// Begin waits for room and adds a line of size bytes; behind is the place after
// it. The returned function settles the line; further calls do nothing. Only
// one goroutine may call Begin. It fails only when ctx is done.
func (w *Window[P]) Begin(ctx context.Context, behind P, size int) (settle func(), err error) {
	for {
		w.mu.Lock()
		if len(w.open) == 0 || (len(w.open) < MaxUnsettled && w.bytes+size <= MaxUnsettledBytes) {
			s := &slot[P]{behind: behind, bytes: size}
			w.open = append(w.open, s)
			w.waiting++
			w.bytes += size
			w.mu.Unlock()
			return func() { w.settle(s) }, nil
		}
		w.mu.Unlock()
		select {
		case <-w.room:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *Window[P]) settle(s *slot[P]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	w.waiting--
	w.bytes -= s.bytes
	w.moved++
	n := 0
	for n < len(w.open) && w.open[n].done {
		w.settled = w.open[n].behind
		n++
	}
	clear(w.open[:n])
	w.open = w.open[n:]
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// Skip moves the position to p if no line is unsettled: places without a line
// for us need not be read again.
func (w *Window[P]) Skip(p P) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) == 0 {
		w.settled = p
		w.moved++
	}
}

// Position returns the place to begin at after a restart, and how many lines
// were settled since the previous call.
func (w *Window[P]) Position() (at P, moved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved, w.moved = w.moved, 0
	return w.settled, moved
}

// Unsettled counts the lines that were added and not settled.
func (w *Window[P]) Unsettled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}
