package redisrelay

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// What may wait between the channel and the handler; beyond it the oldest is
// dropped, counted and logged.
const (
	maxForeign      = 1000
	maxForeignBytes = 8 << 20
)

// foreign is the queue of other programs' messages. What was handed over and
// is not settled is bounded by the window.
type foreign struct {
	window *relay.Window[struct{}]
	wake   chan struct{}

	mu    sync.Mutex
	lines [][]byte // guarded by mu
	bytes int      // guarded by mu
}

func newForeign() *foreign {
	return &foreign{window: relay.NewWindow(struct{}{}), wake: make(chan struct{}, 1)}
}

// push adds a line and returns how many it pushed out.
func (f *foreign) push(line []byte) (dropped int) {
	f.mu.Lock()
	f.lines = append(f.lines, line)
	f.bytes += len(line)
	for len(f.lines) > maxForeign || f.bytes > maxForeignBytes {
		f.bytes -= len(f.lines[0])
		f.lines[0] = nil
		f.lines = f.lines[1:]
		dropped++
	}
	f.mu.Unlock()
	wait.Wake(f.wake)
	return dropped
}

// pop takes the oldest line, and waits for one.
func (f *foreign) pop(ctx context.Context) ([]byte, bool) {
	for {
		f.mu.Lock()
		if len(f.lines) > 0 {
			line := f.lines[0]
			f.lines[0] = nil
			f.lines = f.lines[1:]
			f.bytes -= len(line)
			f.mu.Unlock()
			return line, true
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, false
		case <-f.wake:
		}
	}
}

// heard keeps what was published on the channel for the handler, unless a sidecar
// published it: then it comes by the stream.
func (s *subscription) heard(m *redis.Message) {
	if numbered(m.Payload) {
		return
	}
	line := []byte(m.Payload)
	s.q.stats.foreign.Add(1)
	dropped := 1
	if len(line) < relay.MaxLine {
		dropped = s.foreign.push(line)
	}
	if dropped > 0 && s.q.stats.foreignDropped.Add(int64(dropped)) == int64(dropped) {
		s.q.log.Error("messages of other programs are too many or too long; some are dropped (logged once)")
	}
}

// handForeign hands over what other programs published.
func (s *subscription) handForeign(ctx context.Context) {
	for {
		line, ok := s.foreign.pop(ctx)
		if !ok {
			return
		}
		settle, err := s.foreign.window.Begin(ctx, struct{}{}, len(line))
		if err != nil {
			return
		}
		s.hand(ctx, relay.Delivery{Line: line, Settle: settle})
	}
}
