package judge

import (
	"sync"
	"time"
)

// The breaker opens after breakAfter calls in a row that got no answer. For
// breakMin it refuses every call at once, then lets one through as a probe. Each
// probe that fails doubles the wait up to breakMax.
const (
	breakAfter = 5
	breakMin   = 30 * time.Second
	breakMax   = 5 * time.Minute
)

// Breaker states, as in State.Breaker.
const (
	BreakerClosed = "closed" // calls are made
	BreakerOpen   = "open"   // calls are refused until State.RetryAt
	BreakerProbe  = "probe"  // one call is under way, the others are refused
)

type breaker struct {
	mu       sync.Mutex
	failures int // in a row; guarded by mu, as all below
	wait     time.Duration
	until    time.Time // when open
	state    string    // "" is closed
	round    int       // changes with state; a call's outcome counts in its own round
}

// refuses reports whether begin would return false.
func (b *breaker) refuses() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusesLocked()
}

func (b *breaker) refusesLocked() bool {
	return b.state == BreakerProbe || b.state == BreakerOpen && time.Now().Before(b.until)
}

// begin asks for permission to call. If ok, the caller must call end with the
// round.
func (b *breaker) begin() (round int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusesLocked() {
		return 0, false
	}
	if b.state == BreakerOpen {
		b.enter(BreakerProbe)
	}
	return b.round, true
}

// end records the result of a call; changed reports that the breaker opened or
// closed.
func (b *breaker) end(round int, answered bool) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return false // begun before the breaker opened: out of date
	}
	if answered {
		changed = b.state != ""
		b.failures, b.wait = 0, 0
		if changed {
			b.enter("")
		}
		return changed
	}
	b.failures++
	if b.state != BreakerProbe && b.failures < breakAfter {
		return false
	}
	b.wait = min(max(2*b.wait, breakMin), breakMax)
	b.until = time.Now().Add(b.wait)
	b.enter(BreakerOpen)
	return true
}

func (b *breaker) enter(state string) {
	b.state = state
	b.round++
}

func (b *breaker) snapshot() (state string, failures int, retryAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case "":
		return BreakerClosed, b.failures, time.Time{}
	case BreakerOpen:
		retryAt = b.until
	}
	return b.state, b.failures, retryAt
}
