package gateway

import (
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Bounds of all that is held of requests and answers at one time. What has no room
// passes unread.
const (
	freeBytes    = 8 << 10  // of each body, beside the budgets: an ordinary call is read whatever else goes on
	botBytes     = 16 << 20 // of calls with a token that is known to be the bot's
	strangeBytes = 8 << 20  // of all others
)

// budgets are the two, so that other callers cannot use up the bot's.
type budgets struct{ bot, strange *semaphore.Weighted }

func newBudgets() budgets {
	return budgets{semaphore.NewWeighted(botBytes), semaphore.NewWeighted(strangeBytes)}
}

// holding is what one call holds of a budget, until its last user has released it.
type holding struct {
	of    *semaphore.Weighted
	bytes atomic.Int64
	users atomic.Int32
}

func newHolding(of *semaphore.Weighted) *holding {
	h := &holding{of: of}
	h.users.Store(1)
	return h
}

// take reports whether there is room for n more bytes.
func (h *holding) take(n int) bool {
	if !h.of.TryAcquire(int64(n)) {
		return false
	}
	h.bytes.Add(int64(n))
	return true
}

func (h *holding) use() { h.users.Add(1) }

func (h *holding) release() {
	if h.users.Add(-1) == 0 {
		h.of.Release(h.bytes.Load())
	}
}

// reserve takes one of the slots for t, unless it has one; false where none is free.
func (g *Gateway) reserve(t *tapped) bool {
	if t.slot {
		return true
	}
	select {
	case g.slots <- struct{}{}:
		t.slot = true
	default:
		g.count(countedUntappedBusy)
	}
	return t.slot
}

// unreserve frees the slot of t, if it still has one.
func (g *Gateway) unreserve(t *tapped) {
	if t.slot {
		t.slot = false
		<-g.slots
	}
}
