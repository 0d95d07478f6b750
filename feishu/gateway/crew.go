package gateway

import (
	"sync"
	"time"

	"feishu-relay/internal/wait"
)

// idleHand is how long a goroutine without work is kept.
const idleHand = 5 * time.Second

// crew does work beside its callers, on goroutines that it keeps for a while: a
// fresh one grows its stack anew, which was measured as a tenth of what a send
// takes on a fast network.
type crew struct {
	jobs chan func()   // unbuffered: an idle hand takes from it
	home chan struct{} // closed: idle hands end

	mu     sync.Mutex
	closed bool           // guarded by mu
	busy   sync.WaitGroup // jobs under way; grows with mu held and not closed
}

func newCrew() *crew { return &crew{jobs: make(chan func()), home: make(chan struct{})} }

// start has f done by somebody else, and does not wait for it; false once the
// crew is closed. f does not panic.
func (c *crew) start(f func()) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.busy.Add(1)
	c.mu.Unlock()
	select {
	case c.jobs <- f:
	default:
		go c.hand(f)
	}
	return true
}

func (c *crew) hand(f func()) {
	idle := time.NewTimer(idleHand)
	defer idle.Stop()
	for {
		f()
		c.busy.Done()
		idle.Reset(idleHand)
		select {
		case f = <-c.jobs:
		case <-idle.C:
			return
		case <-c.home:
			return
		}
	}
}

// close takes no more work and waits for what is under way, for at most most; it
// reports whether all was done. It may be called twice.
func (c *crew) close(most time.Duration) bool {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.home)
	}
	c.mu.Unlock()
	return wait.Group(&c.busy, most)
}
