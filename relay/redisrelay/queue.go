package redisrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

const (
	maxChannel = 200 // bytes of a channel's name; a longer one is refused by New

	grace       = 2 * time.Second // for an answer of Redis, beside what the command itself waits
	callTimeout = 5 * time.Second // for one call of the publishing client, the script included
	publishPool = 4               // connections of that client; a further caller waits
	readPool    = 2               // connections of a reading session, beside the channel's
)

// Options says which queue, and for whom.
type Options struct {
	URL     string // see [redislink.ParseURL]
	Channel string // such as nanobot:feishu:outbound; the stream is <Channel>:log
	Agent   string // whose cursor it is; needed by Subscribe
	Dir     string // RELAY_DIR: the cursor is a file in its folder offsets; needed by Subscribe
	Stream  string // another stream than <Channel>:log; then the channel is not used, and nobody looks for a rival
	MaxLen  int64  // entries the stream keeps, about; 0 means 10,000. What is older is trimmed
	// Block is how long a read waits for something new before the link and
	// the stream are looked at; 0 means 1 s. It is the heartbeat: a dead link is
	// found within twice Block, plus 2 s.
	Block  time.Duration
	Logger *slog.Logger // nil discards
}

// Queue is one channel on a Redis, and the stream behind it. It is safe for
// concurrent use.
type Queue struct {
	opts       Options
	conn       *redis.UniversalOptions
	log        *slog.Logger
	stream     string
	publish    redis.UniversalClient
	beat       time.Duration // how often announce writes
	rival      atomic.Bool   // another sidecar has the agent's name
	subscribed atomic.Bool   // Subscribe is running
	closed     context.Context
	close      func() error
	stats      counters

	mu     sync.Mutex
	reader *reader // the last one of Subscribe, at first none that runs; guarded by mu, and so is its state
}

var _ relay.Backend = (*Queue)(nil)

// Stats counts since the start of the process.
type Stats struct {
	Foreign        int64 `json:"foreign"`         // messages of foreign programs heard on the channel
	ForeignDropped int64 `json:"foreign_dropped"` // of these, dropped: too many at once, or longer than a line
	Trimmed        int64 `json:"trimmed"`         // times the cap took entries before they were read
	Junk           int64 `json:"junk"`            // entries without a payload, or with one longer than a line
	Reconnects     int64 `json:"reconnects"`      // reading sessions that ended by a fault
	Restarts       int64 `json:"restarts"`        // times the stream was another than before
}

type counters struct {
	foreign, foreignDropped, trimmed, junk, reconnects, restarts atomic.Int64
}

// New checks the options and does no I/O.
func New(opts Options) (*Queue, error) {
	conn, err := redislink.ParseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	if opts.Channel == "" || len(opts.Channel) > maxChannel || relay.CheckID(opts.Channel) != nil {
		return nil, fmt.Errorf("redis channel: wants 1 to %d bytes without control characters", maxChannel)
	}
	opts.MaxLen, opts.Block = cmp.Or(opts.MaxLen, 10_000), cmp.Or(opts.Block, time.Second)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	q := &Queue{opts: opts, conn: conn, stream: cmp.Or(opts.Stream, opts.Channel+":log"), beat: presenceEvery,
		log: opts.Logger.With("channel", opts.Channel)}
	if opts.Stream != "" {
		q.log = opts.Logger.With("stream", opts.Stream)
	}
	q.reader = q.newReader(nil)
	q.publish = redislink.NewClient(q.options(publishPool, callTimeout))
	var end context.CancelFunc
	q.closed, end = context.WithCancel(context.Background())
	q.close = sync.OnceValue(func() error {
		end()
		return q.publish.Close()
	})
	return q, nil
}

// options are those of a client that hides nothing: no retries, no time without limit.
func (q *Queue) options(pool int, timeout time.Duration) *redis.UniversalOptions {
	return redislink.Options(q.conn, pool, grace, timeout)
}

// Status tells how reading goes. Error holds the fault that is waited out, or
// says that another sidecar uses this agent's name.
func (q *Queue) Status() relay.Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.reader.state
	s.Unsettled = q.reader.window.Unsettled() + q.reader.foreign.window.Unsettled()
	if s.Error == "" && q.rival.Load() {
		s.Error = rivalText
	}
	return s
}

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	c := &q.stats
	return Stats{
		Foreign: c.foreign.Load(), ForeignDropped: c.foreignDropped.Load(),
		Trimmed: c.trimmed.Load(), Junk: c.junk.Load(),
		Reconnects: c.reconnects.Load(), Restarts: c.restarts.Load(),
	}
}

// Close ends Subscribe and all calls, and frees the connections.
func (q *Queue) Close() error { return q.close() }

// Claim sets a key, as [relay.Claimer] says.
func (q *Queue) Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key = q.opts.Channel + ":claim:" + key
	for holder == "" && err == nil {
		pipe := q.publish.Pipeline()
		pipe.SetNX(ctx, key, owner, life)
		get := pipe.Get(ctx, key)
		if _, err = pipe.Exec(ctx); errors.Is(err, redis.Nil) {
			err = nil // another's claim expired between the two
		}
		holder = get.Val()
	}
	if err != nil {
		return "", fmt.Errorf("claim on redis: %w", q.explain(err))
	}
	return holder, nil
}

// explain makes err fit to be shown.
func (q *Queue) explain(err error) error {
	return redislink.Explain(err, redislink.Words{
		Rights: "the redis user lacks rights: it needs the keys <RELAY_CHANNEL>:*, the channel RELAY_CHANNEL, and scripts",
		WrongType: "the key " + cmp.Or(q.opts.Stream, "<RELAY_CHANNEL>:log") +
			" is not a stream: another program uses it; rename or delete it",
		Closed: "the queue is closed",
		TLS:    q.conn.TLSConfig != nil,
	})
}
