package longconn

import (
	"sync"
	"time"
)

// holds keeps acknowledgements back until what the tap wanted done after the
// event is done.
type holds struct {
	send func(ack []byte)
	late func()

	mu sync.Mutex
	m  map[string]*hold // by message_id; guarded by mu
}

type hold struct {
	ack   []byte // what the bot sent; nil: nothing yet
	timer *time.Timer
	gone  chan struct{} // closed when released
}

// expect begins to keep back the acknowledgement of id, until the deadline at
// most. Every call is followed by one of release.
func (h *holds) expect(id string, deadline time.Time) *hold {
	o := &hold{gone: make(chan struct{})}
	h.mu.Lock()
	earlier := h.m[id]
	if h.m == nil {
		h.m = make(map[string]*hold)
	}
	h.m[id] = o
	o.timer = time.AfterFunc(time.Until(deadline), func() {
		if h.release(id, o) {
			h.late()
		}
	})
	h.mu.Unlock()
	if earlier != nil { // delivered again
		h.finish(earlier)
	}
	return o
}

// keep takes an acknowledgement, and reports whether it is kept back.
func (h *holds) keep(id string, ack []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.m[id]
	if o == nil || o.ack != nil {
		return false
	}
	o.ack = ack
	return true
}

// release lets the acknowledgement go, and reports whether there was one.
func (h *holds) release(id string, o *hold) bool {
	h.mu.Lock()
	current := h.m[id] == o
	if current {
		delete(h.m, id)
	}
	h.mu.Unlock()
	if !current {
		return false // released before
	}
	return h.finish(o)
}

// finish sends what a hold that stands in the table no longer has kept.
func (h *holds) finish(o *hold) bool {
	o.timer.Stop()
	defer close(o.gone)
	if o.ack == nil {
		return false
	}
	h.send(o.ack)
	return true
}

// drain waits until the acknowledgements that are kept back now are sent.
func (h *holds) drain() {
	var kept []*hold
	h.mu.Lock()
	for _, o := range h.m {
		if o.ack != nil {
			kept = append(kept, o)
		}
	}
	h.mu.Unlock()
	for _, o := range kept {
		<-o.gone
	}
}
