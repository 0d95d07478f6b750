// Package wait has helpers for loops that wait and retry.
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

// Change waits until changed has a value or is closed, and at most until at (the zero time: for
// ever). It returns the error of ctx when that ends.
func Change(ctx context.Context, at time.Time, changed <-chan struct{}) error {
	var due <-chan time.Time
	if !at.IsZero() {
		due = time.After(time.Until(at))
	}
	select {
	case <-due:
	case <-changed:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Closed waits at most d until c is closed, and reports whether it was.
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

// Until calls done, again after each pause, until it returns true or an error, or ctx ends. It returns the error of
// done, or the cause of the end of ctx.
func Until(ctx context.Context, pause time.Duration, done func(context.Context) (bool, error)) error {
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // rather than what that has led to
		}
		if err != nil {
			return err
		}
		_ = Sleep(ctx, pause) // if ctx ends, done is called a last time
	}
}

// Group waits at most d for all of g, and reports whether they have ended.
func Group(g *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Wait()
	}()
	return Closed(done, d)
}

// Backoff is the pauses between retries: they double from the first to the
// longest. Each varies at random between half and one and a half times that, so
// that the sidecars of a fleet do not all retry at once.
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

// Reset makes the next pause the first again, after a success.
func (b *Backoff) Reset() { b.pauses.Reset() }

// Sleep is the package's Sleep for the next pause.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Doubled is first, doubled n times, but at most longest: the pause after n+1 failures.
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

// Wake puts a value into c, a channel with a buffer of one, unless it has one.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Saver decides when to save a state that changes often.
type Saver struct {
	after, again time.Duration
	unsaved      atomic.Bool
	changed      chan struct{} // unsaved has become true
}

// NewSaver returns a Saver that saves when after has passed since the first change. After an error it retries when
// again has passed.
func NewSaver(after, again time.Duration) *Saver {
	return &Saver{after: after, again: again, changed: make(chan struct{}, 1)}
}

// Note notes a change. It may be called from any goroutine and does not block.
func (s *Saver) Note() {
	if s.unsaved.CompareAndSwap(false, true) {
		Wake(s.changed)
	}
}

// Saved records that all changes noted so far are saved, or about to be.
func (s *Saver) Saved() { s.unsaved.Store(false) }

// Run calls save when due, until ctx is done. save must call Saved first.
func (s *Saver) Run(ctx context.Context, save func() error) {
	for Change(ctx, time.Time{}, s.changed) == nil {
		for pause := s.after; Sleep(ctx, pause) == nil && save() != nil; pause = s.again {
		}
	}
}
