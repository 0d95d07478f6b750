package webhook

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"feishu-relay/feishu"
)

// Bounds of what posts hold in memory.
const (
	maxBody     = 1 << 20         // bytes of a body; a larger one is refused with 413
	maxUnsigned = 4 << 10         // bytes of a body without a signature, where posts are signed: a challenge
	maxBodies   = 8 << 20         // bytes of all bodies that are not verified; beyond, some make room
	maxVerified = 32 << 20        // bytes of all bodies that are being verified, or are and wait for the bot
	firstRead   = 4 << 10         // bytes that a post holds from the start; so maxBodies bounds their number, too
	maxVerify   = 4               // bodies that are verified at a time; the others wait
	readTimeout = 5 * time.Second // for a body; then its sender is dropped with 408. Feishu itself waits 3 s
)

var (
	errTooLarge = errors.New("the body is too large")
	errNoRoom   = errors.New("too many posts at once")
)

// budget is the memory for all bodies. Feishu's own posts are small, and are read and
// verified within milliseconds. So a post that needs more than is left takes the memory of unverified ones that
// began before it or hold at least as much: first of the largest, of several the oldest.
type budget struct {
	mu       sync.Mutex
	left     int     // guarded by mu
	verified int     // left for verified bodies; guarded by mu
	waiting  []*body // not verified yet, oldest first; guarded by mu
}

// body is the body of one post.
type body struct {
	of      *budget
	data    []byte
	held    int           // guarded by of.mu
	kept    int           // guarded by of.mu
	dropped chan struct{} // closed when it had to make room; guarded by of.mu
	cut     func()        // ends its reading
}

// begin returns a body to be read. cut ends its reading from another goroutine.
func (b *budget) begin(cut func()) *body {
	p := &body{of: b, dropped: make(chan struct{}), cut: cut}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, p)
	return p
}

// reserve lets p hold size bytes, or reports that there is no room.
func (b *budget) reserve(p *body, size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.waiting, p) {
		return false // dropped
	}
	for b.left < size-p.held {
		var largest *body
		most, earlier := 0, true
		for _, other := range b.waiting {
			if other == p {
				earlier = false
			} else if other.held > most && (earlier || other.held >= size) {
				largest, most = other, other.held
			}
		}
		if largest == nil {
			return false
		}
		b.free(largest)
		close(largest.dropped)
		largest.cut()
	}
	b.left -= size - p.held
	p.held = size
	return true
}

// free returns the memory of p to the budget. The caller holds b.mu.
func (b *budget) free(p *body) {
	b.waiting = slices.DeleteFunc(b.waiting, func(other *body) bool { return other == p })
	b.left += p.held
	b.verified += p.kept
	p.held, p.kept = 0, 0
}

// keep keeps p until it is released. It is false if p was dropped before or there is no room.
func (p *body) keep() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !slices.Contains(p.of.waiting, p) || p.of.verified < len(p.data) {
		return false
	}
	p.of.free(p)
	p.data = bytes.Clone(p.data) // without the room for more
	p.kept = len(p.data)
	p.of.verified -= p.kept
	return true
}

// release returns the memory of p to the budget. It may be called again.
func (p *body) release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.free(p)
}

// read reads at most most bytes.
func (p *body) read(r io.Reader, most int) error {
	data, whole, err := feishu.ReadUpTo(r, firstRead, most, func(size int) bool { return p.of.reserve(p, size) })
	p.data = data
	switch {
	case errors.Is(err, feishu.ErrNoRoom):
		return errNoRoom
	case err == nil && !whole:
		return errTooLarge
	}
	return err
}
