package redisrelay

import (
	"context"
	"crypto/rand"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

// What may wait between the channel and the handler; beyond it the oldest is
// dropped, counted and logged.
const (
	maxForeign      = 1000
	maxForeignBytes = 8 << 20
)

// spacing is how much later what came on the channel is looked at: the copies there are not to compete for a processor
// with the entries of the stream, which they only repeat.
const spacing = 2 * time.Millisecond

// spaced is a connection of which what was read is looked at a little later. Behind a read that filled its buffer
// there is no wait.
type spaced struct{ net.Conn }

func (c spaced) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n < len(p) && err == nil {
		time.Sleep(spacing)
	}
	return n, err
}

// channelClient makes the client for the channel's connection.
func (q *Queue) channelClient() redis.UniversalClient {
	o := q.options(1, grace)
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return spaced{conn}, nil
	}
	return redislink.NewClient(o)
}

// foreign is the queue of other programs' messages. What was handed over and
// is not settled is bounded by the window.
type foreign struct {
	window *relay.Window[struct{}]
	lines  chan []byte
	bytes  atomic.Int64 // of lines
}

func newForeign() *foreign {
	return &foreign{window: relay.NewWindow(struct{}{}), lines: make(chan []byte, maxForeign)}
}

// heard keeps what was published on the channel for the handler, unless a sidecar
// published it: then it comes by the stream.
func (r *reader) heard(m *redis.Message) {
	line := []byte(m.Payload)
	if numbered(line) {
		return
	}
	r.q.stats.foreign.Add(1)
	if len(line) >= relay.MaxLine {
		r.dropped()
		return
	}
	f := r.foreign
	for f.bytes.Add(int64(len(line))); ; {
		if f.bytes.Load() <= maxForeignBytes {
			select {
			case f.lines <- line:
				return
			default:
			}
		}
		select {
		case oldest := <-f.lines:
			f.bytes.Add(-int64(len(oldest)))
			r.dropped()
		default: // the handler has just taken it
		}
	}
}

func (r *reader) dropped() {
	if r.q.stats.foreignDropped.Add(1) == 1 {
		r.q.log.Error("messages of other programs are too many or too long; some are dropped (logged once)")
	}
}

// handForeign hands over what other programs published.
func (r *reader) handForeign(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-r.foreign.lines:
			r.foreign.bytes.Add(-int64(len(line)))
			settle, err := r.foreign.window.Begin(ctx, struct{}{}, len(line))
			if err != nil {
				return
			}
			r.give(ctx, relay.Delivery{Line: line, Settle: settle})
		}
	}
}

const (
	presenceLife  = 15 * time.Second // a sidecar that is gone is forgotten after this
	presenceEvery = 5 * time.Second

	rivalText = "another sidecar runs with this AGENT_NAME on this redis; each needs a name of its own"
)

// announce writes a text of its own to the key of the agent's name until ctx is done. Another text there, between two
// of its writes, is that of another sidecar; before the first it may be of one that has ended.
func (q *Queue) announce(ctx context.Context) {
	defer q.rival.Store(false)
	key, self, wrote := q.opts.Channel+":agent:"+q.opts.Agent, rand.Text(), false
	for tick := time.NewTicker(q.beat); ; {
		calling, cancel := context.WithTimeout(ctx, grace)
		pipe := q.publish.Pipeline()
		holder, set := pipe.Get(calling, key), pipe.Set(calling, key, self, presenceLife)
		_, _ = pipe.Exec(calling) // the reader reports that Redis is away
		cancel()
		if set.Err() == nil {
			rival := wrote && holder.Val() != "" && holder.Val() != self
			if !q.rival.Swap(rival) && rival {
				q.log.Error(rivalText, "agent", q.opts.Agent)
			}
			wrote = true
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}
