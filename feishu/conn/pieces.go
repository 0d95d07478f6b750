package conn

import (
	"slices"
	"sync"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// Bounds of what waits for the rest of its event; beyond them the oldest events are dropped.
const (
	maxIncomplete = 64       // events
	maxBytes      = 16 << 20 // of all frames together
	maxPieces     = 1024     // of one event
	// piecesWait is for the last piece, from the first: as long as the most patient SDK
	// waits (docs/feishu.md 1.5).
	piecesWait = 10 * time.Second
)

// Pieces puts events together that come in several frames, in any order (docs/feishu.md 1.5). It
// is safe for concurrent use.
type Pieces struct {
	// Dropped is called with the frames, as they came, of an event that does not become
	// complete, from any goroutine.
	Dropped func(frames [][]byte)

	mu     sync.Mutex
	events []*incomplete // oldest first; guarded by mu
	bytes  int           // guarded by mu
}

type incomplete struct {
	id      string
	frames  [][]byte // as they came
	bySeq   [][]byte // the same by seq; nil: missing
	missing int
	bytes   int
	timer   *time.Timer
}

// Add takes a frame of an event. Once the event is complete it returns it with all of its
// frames, as and in the order in which they came; until then frames is nil. ok is false for a frame that
// is not a piece of its event, or larger than what may wait; it is not kept.
func (p *Pieces) Add(f *Frame) (frames [][]byte, event []byte, ok bool) {
	h := larkws.Headers(f.Headers)
	id, sum, seq := f.ID(), h.GetInt(larkws.HeaderSum), h.GetInt(larkws.HeaderSeq)
	if sum <= 1 {
		return [][]byte{f.Raw}, f.Payload, true
	}
	if id == "" || sum > maxPieces || seq < 0 || seq >= sum || len(f.Raw) > maxBytes {
		return nil, nil, false
	}
	p.mu.Lock()
	e := p.find(id)
	if e != nil && len(e.bySeq) != sum {
		p.mu.Unlock()
		return nil, nil, false
	}
	var dropped [][]byte
	if e == nil {
		if len(p.events) == maxIncomplete {
			dropped = p.remove(p.events[0])
		}
		e = &incomplete{id: id, bySeq: make([][]byte, sum), missing: sum}
		e.timer = time.AfterFunc(piecesWait, func() { p.drop(e) })
		p.events = append(p.events, e)
	}
	if e.bySeq[seq] == nil {
		e.missing--
	}
	e.bySeq[seq] = f.Raw
	e.frames = append(e.frames, f.Raw)
	e.bytes += len(f.Raw)
	p.bytes += len(f.Raw)
	complete := e.missing == 0
	if complete {
		p.remove(e)
	}
	for p.bytes > maxBytes {
		dropped = append(dropped, p.remove(p.events[0])...)
	}
	p.mu.Unlock()
	p.report(dropped)
	if !complete {
		return nil, nil, true
	}
	for _, raw := range e.bySeq {
		if piece, ok := ParseFrame(raw); ok { // as it did before
			event = append(event, piece.Payload...)
		}
	}
	return e.frames, event, true
}

// Drop drops what waits of an event.
func (p *Pieces) Drop(id string) {
	p.mu.Lock()
	e := p.find(id)
	p.mu.Unlock()
	if e != nil {
		p.drop(e)
	}
}

func (p *Pieces) drop(e *incomplete) {
	p.mu.Lock()
	frames := p.remove(e)
	p.mu.Unlock()
	p.report(frames)
}

func (p *Pieces) report(dropped [][]byte) {
	if len(dropped) > 0 {
		p.Dropped(dropped)
	}
}

// find returns what is there of an event, nil for none. The caller holds mu.
func (p *Pieces) find(id string) *incomplete {
	if i := slices.IndexFunc(p.events, func(e *incomplete) bool { return e.id == id }); i >= 0 {
		return p.events[i]
	}
	return nil
}

// remove forgets an event and returns its frames, nil where it is not there. The caller holds mu.
func (p *Pieces) remove(e *incomplete) [][]byte {
	i := slices.Index(p.events, e)
	if i < 0 {
		return nil
	}
	p.events = slices.Delete(p.events, i, i+1)
	p.bytes -= e.bytes
	e.timer.Stop()
	return e.frames
}
