package longconn

import (
	"slices"
	"sync"
	"time"
)

// Beyond these an event's pieces go to the bot one by one, unseen by the tap.
const (
	maxSets     = 64       // events in pieces side by side: the oldest goes
	maxSetBytes = 16 << 20 // of all pieces together: the oldest go
	maxPieces   = 1024     // of one event
	// for the last piece, from the first; as long as the most patient SDK (docs/feishu.md 1.5)
	fragmentsWait = 10 * time.Second
)

// fragments collects the pieces of events that Feishu sends in several.
type fragments struct {
	give func(frames [][]byte) // takes what will not become whole

	mu    sync.Mutex
	sets  []*pieces // oldest first; guarded by mu
	bytes int       // guarded by mu
}

type pieces struct {
	id       string
	frames   [][]byte // as they came
	payloads [][]byte // by seq; nil: missing
	missing  int
	bytes    int
	timer    *time.Timer
}

// add takes a piece. Once its event is whole it returns all frames, in the
// order in which they came, and the event. A piece that cannot be one is
// not taken: ok is false, and what came before it is handed on.
func (c *fragments) add(f *frame) (frames [][]byte, event []byte, ok bool) {
	sum, seq := f.sum, f.seq
	c.mu.Lock()
	s := c.find(f.id)
	var out [][]byte // of sets that are given up
	switch {
	case f.id == "" || sum > maxPieces || seq < 0 || seq >= sum || s != nil && sum != len(s.payloads) ||
		len(f.raw) > maxSetBytes:
		if s != nil {
			out = c.drop(s)
		}
		c.mu.Unlock()
		c.hand(out)
		return nil, nil, false
	case s == nil:
		if len(c.sets) == maxSets {
			out = append(out, c.drop(c.sets[0])...)
		}
		s = &pieces{id: f.id, payloads: make([][]byte, sum), missing: sum}
		s.timer = time.AfterFunc(fragmentsWait, func() { c.expire(s) })
		c.sets = append(c.sets, s)
	}
	if s.payloads[seq] == nil {
		s.missing--
	}
	s.payloads[seq] = f.payload
	if f.payload == nil {
		s.payloads[seq] = []byte{}
	}
	s.frames = append(s.frames, f.raw)
	s.bytes += len(f.raw)
	c.bytes += len(f.raw)
	if s.missing == 0 {
		frames = c.drop(s)
		for _, p := range s.payloads {
			event = append(event, p...)
		}
	}
	for c.bytes > maxSetBytes {
		out = append(out, c.drop(c.sets[0])...)
	}
	c.mu.Unlock()
	c.hand(out)
	return frames, event, true
}

// find returns the set of an event, nil if there is none. The caller holds mu.
func (c *fragments) find(id string) *pieces {
	for _, s := range c.sets {
		if s.id == id {
			return s
		}
	}
	return nil
}

// drop forgets a set and returns its frames. The caller holds mu.
func (c *fragments) drop(s *pieces) [][]byte {
	i := slices.Index(c.sets, s)
	if i < 0 {
		return nil // dropped before
	}
	c.sets = slices.Delete(c.sets, i, i+1)
	c.bytes -= s.bytes
	s.timer.Stop()
	return s.frames
}

func (c *fragments) expire(s *pieces) {
	c.mu.Lock()
	frames := c.drop(s)
	c.mu.Unlock()
	c.hand(frames)
}

func (c *fragments) hand(frames [][]byte) {
	if len(frames) > 0 {
		c.give(frames)
	}
}
