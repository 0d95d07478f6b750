package relay

import (
	"context"
	"slices"
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
	mu    sync.Mutex
	open  []*slot[P] // the unsettled lines, in reading order; guarded by mu
	bytes int        // of them; guarded by mu
	read  P          // the place behind the last line; guarded by mu
	room  chan struct{}
}

type slot[P any] struct {
	before P // the place behind the line before
	bytes  int
}

// NewWindow returns a window whose position is start.
func NewWindow[P any](start P) *Window[P] {
	return &Window[P]{read: start, room: make(chan struct{}, 1)}
}

// Begin waits for room and adds a line of size bytes; behind is the place after
// it. The returned function settles the line; further calls do nothing. Only
// one goroutine may call Begin. It fails only when ctx is done.
func (w *Window[P]) Begin(ctx context.Context, behind P, size int) (settle func(), err error) {
	for {
		w.mu.Lock()
		if len(w.open) == 0 || len(w.open) < MaxUnsettled && w.bytes+size <= MaxUnsettledBytes {
			s := &slot[P]{before: w.read, bytes: size}
			w.open = append(w.open, s)
			w.bytes += size
			w.read = behind
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
	i := slices.Index(w.open, s)
	if i < 0 {
		return
	}
	w.open = slices.Delete(w.open, i, i+1)
	w.bytes -= s.bytes
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
		w.read = p
	}
}

// Position returns the place to begin at after a restart.
func (w *Window[P]) Position() P {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) > 0 {
		return w.open[0].before
	}
	return w.read
}

// Unsettled counts the lines that were added and not settled.
func (w *Window[P]) Unsettled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}
