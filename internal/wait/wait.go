// Package wait holds what loops that try again have in common.
package wait

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Sleep returns nil when d has passed, or the error of ctx when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Closed waits until c is closed, but for at most d, and reports whether it was.
func Closed(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// Group waits for all of g, but for at most d, and reports whether they have ended.
func Group(g *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Wait()
	}()
	return Closed(done, d)
}

// Backoff is the pauses between tries of something that fails: they double from
// the first to the longest. Each is between half and one and a half times as long,
// so that the sidecars of a fleet do not all come back at once.
type Backoff struct{ pauses backoff.ExponentialBackOff }

// NewBackoff returns the pauses from first to longest.
func NewBackoff(first, longest time.Duration) *Backoff {
	b := &Backoff{backoff.ExponentialBackOff{InitialInterval: first, RandomizationFactor: 0.5, Multiplier: 2,
		MaxInterval: longest}}
	b.Reset()
	return b
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration { return b.pauses.NextBackOff() }

// Reset makes the next pause the first again: something worked.
func (b *Backoff) Reset() { b.pauses.Reset() }

// Sleep is the package's Sleep for the next pause.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Doubled is first, doubled n times, but at most longest: the pause after n failures of
// something whose failures are counted.
func Doubled(first, longest time.Duration, n int) time.Duration {
	pause := min(first, longest)
	for range n {
		if pause <= 0 || pause >= longest {
			break
		}
		pause = min(2*pause, longest)
	}
	return pause
}

// Wake puts a value into c, which has room for one, where there is none.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Saver says when a state that changes often is to be saved.
type Saver struct {
	every        int64
	after, again time.Duration
	unsaved      atomic.Int64
	some, many   chan struct{} // unsaved has left 0; has reached every
}

// NewSaver makes a Saver that saves when the state has changed every times, or after the
// first of fewer changes, and again after an error.
func NewSaver(every int64, after, again time.Duration) *Saver {
	return &Saver{every: every, after: after, again: again, some: make(chan struct{}, 1), many: make(chan struct{}, 1)}
}

// Note counts a change. It may be called from any goroutine and does not block.
func (s *Saver) Note() {
	switch s.unsaved.Add(1) {
	case 1:
		Wake(s.some)
	case s.every:
		Wake(s.many)
	}
}

// Saved says that what was noted so far is saved, or about to be.
func (s *Saver) Saved() { s.unsaved.Store(0) }

// Run calls save, which calls Saved first, until ctx is done.
func (s *Saver) Run(ctx context.Context, save func() error) {
	for {
		select {
		case <-s.some:
		case <-ctx.Done():
			return
		}
		for pause, unsaved := s.after, true; unsaved; pause = s.again {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.many:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return
			}
			unsaved = save() != nil
		}
	}
}
