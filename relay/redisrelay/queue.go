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
	defaultMaxLen = 10_000
	defaultBlock  = time.Second
	maxChannel    = 200 // bytes of a channel's name; a longer one is refused by New

	grace          = 2 * time.Second // for an answer of Redis, beside what the command itself waits
	publishTimeout = 5 * time.Second // for one call of the publishing script; then Publish fails
	publishPool    = 4               // connections for publishing; a further caller waits
	readPool       = 2               // connections of a reading session, beside the channel's
)

// Options says which queue, and for whom.
type Options struct {
	URL     string // see [redislink.ParseURL]
	Channel string // such as nanobot:feishu:outbound; the stream is <Channel>:log
	Agent   string // whose cursor it is; needed by Subscribe
	Dir     string // RELAY_DIR: the cursor is a file in its folder offsets; needed by Subscribe
	Stream  string // another stream than <Channel>:log; then nothing is published on the channel
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
	opts     Options
	conn     *redis.UniversalOptions
	log      *slog.Logger
	stream   string
	publish  redis.UniversalClient
	counted  pacer
	presence presence

	closed context.Context // done after Close
	close  context.CancelFunc

	mu         sync.Mutex
	running    sync.WaitGroup // Subscribe and Follow; added to with mu held, until closed is done
	subscribed bool           // Subscribe is running; guarded by mu
	reader     *reader        // the last one of Subscribe; guarded by mu

	stats counters
}

var _ relay.Backend = (*Queue)(nil)

// Stats counts since the start of the process.
type Stats struct {
	Foreign        int64 `json:"foreign"`         // messages of foreign programs heard on the channel
	ForeignDropped int64 `json:"foreign_dropped"` // of these, dropped: too many at once, or longer than a line
	Trimmed        int64 `json:"trimmed"`         // entries the cap took before they were read
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
	opts.MaxLen = cmp.Or(opts.MaxLen, defaultMaxLen)
	opts.Block = cmp.Or(opts.Block, defaultBlock)
	if opts.MaxLen < 0 || opts.Block < time.Millisecond {
		return nil, errors.New("redis queue: MaxLen and Block are not positive")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{opts: opts, conn: conn, stream: cmp.Or(opts.Stream, opts.Channel+":log"),
		log: opts.Logger.With("channel", opts.Channel)}
	if opts.Stream != "" {
		q.log = opts.Logger.With("stream", opts.Stream)
	}
	q.closed, q.close = context.WithCancel(context.Background())
	q.publish = q.client(publishPool, publishTimeout)
	q.presence.life, q.presence.every = presenceLife, presenceEvery
	return q, nil
}

// client makes a client that hides nothing: no retries, no time without limit.
func (q *Queue) client(pool int, timeout time.Duration) redis.UniversalClient {
	return redislink.NewClient(q.options(pool, timeout))
}

// channelClient makes the client for the channel's connection.
func (q *Queue) channelClient() redis.UniversalClient {
	o := q.options(1, grace)
	spaceReads(o)
	return redislink.NewClient(o)
}

func (q *Queue) options(pool int, timeout time.Duration) *redis.UniversalOptions {
	return redislink.Options(q.conn, pool, grace, timeout)
}

// Status tells how reading goes. Error holds the fault that is waited out, or
// says that another sidecar uses this agent's name.
func (q *Queue) Status() relay.Status {
	q.mu.Lock()
	r := q.reader
	q.mu.Unlock()
	if r == nil {
		return relay.Status{}
	}
	s := r.status()
	if s.Error == "" && q.Rival() {
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

// Close ends Subscribe, Follow and Publish, waits for the first two and frees the connections.
func (q *Queue) Close() error {
	q.mu.Lock()
	first := q.closed.Err() == nil
	q.close()
	q.mu.Unlock()
	q.running.Wait()
	if first {
		return q.publish.Close()
	}
	return nil
}

// Claim sets a key, as [relay.Claimer] says.
func (q *Queue) Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	key = q.opts.Channel + ":claim:" + key
	for {
		err := q.publish.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: life}).Err()
		if err == nil {
			return owner, nil
		}
		if errors.Is(err, redis.Nil) {
			holder, err = q.publish.Get(ctx, key).Result()
			if err == nil {
				return holder, nil
			}
		}
		if !errors.Is(err, redis.Nil) { // else it has expired in between
			return "", fmt.Errorf("claim on redis: %w", q.explain(err))
		}
	}
}

// explain makes err fit to be shown.
func (q *Queue) explain(err error) error { return redislink.Explain(err, q.words(false)) }

func (q *Queue) words(tls bool) redislink.Words {
	return redislink.Words{
		Rights: "the redis user lacks rights: it needs the keys <RELAY_CHANNEL>:*, the channel RELAY_CHANNEL, and scripts",
		WrongType: "the key " + cmp.Or(q.opts.Stream, "<RELAY_CHANNEL>:log") +
			" is not a stream: another program uses it; rename or delete it",
		Closed: "the queue is closed",
		TLS:    tls,
	}
}
