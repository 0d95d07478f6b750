// Package wait holds what loops that try again have in common.
package wait

import (
	"context"
	"sync"
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

// Wake puts a value into c, which has room for one, where there is none.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
