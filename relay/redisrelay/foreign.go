package redisrelay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

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

// listen reads the channel. It has no deadline: one that struck in the middle
// of a message would leave its rest to be read as a reply. [reader.watch]
// ends it when the link is dead.
func (r *reader) listen(ctx context.Context, channel *redis.PubSub, heard *atomic.Int64) error {
	for {
		got, err := channel.ReceiveTimeout(ctx, 0)
		if err != nil {
			return err
		}
		heard.Store(int64(time.Since(r.began)))
		m, ok := got.(*redis.Message)
		if !ok {
			continue
		}
		if numbered(m.Payload) {
			continue // a sidecar's: it comes by the stream
		}
		line := []byte(m.Payload)
		r.q.stats.foreign.Add(1)
		dropped := 1
		if len(line) < relay.MaxLine {
			dropped = r.sub.foreign.push(line)
		}
		if dropped > 0 && r.q.stats.foreignDropped.Add(int64(dropped)) == int64(dropped) {
			r.q.log.Error("messages of other programs are too many or too long; some are dropped (logged once)")
		}
	}
}

// watch asks for a sign of life when the channel was silent for a Block, and
// returns when there was none for two and the grace. The library's own check
// writes a ping and does not wait for the answer.
func (r *reader) watch(ctx context.Context, channel *redis.PubSub, heard *atomic.Int64) error {
	block := r.q.opts.Block
	tick := time.NewTicker(block)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		silent := time.Since(r.began) - time.Duration(heard.Load())
		if silent > 2*block+grace {
			return errSilent
		}
		if silent < block/2 {
			continue
		}
		if err := channel.Ping(ctx); err != nil {
			return err
		}
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
