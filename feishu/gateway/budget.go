package gateway

import "golang.org/x/sync/semaphore"

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

// holding is what one call holds of a budget.
type holding struct {
	of    *semaphore.Weighted
	bytes int64
}

func newHolding(of *semaphore.Weighted) *holding { return &holding{of: of} }

// take reports whether there is room for n more bytes.
func (h *holding) take(n int) bool {
	if !h.of.TryAcquire(int64(n)) {
		return false
	}
	h.bytes += int64(n)
	return true
}

func (h *holding) release() { h.of.Release(h.bytes) }

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
