package outcome

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

const (
	maxEntries = 20_000 // about how many the stream keeps; older ones are trimmed
	field      = "payload"

	callLimit = 5 * time.Second // for a batch as a whole; then Append fails
	ioLimit   = 2 * time.Second // for one step of it: to connect, to write, to read
	writePool = 1               // connections of Append; a further caller waits
)

// Redis is a [Store] in a stream that all sidecars share.
type Redis struct {
	conn   *redis.UniversalOptions
	key    string
	log    *slog.Logger
	writer redis.UniversalClient
}

var _ Store = (*Redis)(nil)

var quiet sync.Once

// OpenRedis shares outcomes in the stream key, such as <RELAY_CHANNEL>:outcomes,
// of the Redis at url, see [redislink.ParseURL]. It does no I/O: Redis need not
// be there. The library's own log is switched off for the whole process: every
// fault it tells is also an error here.
func OpenRedis(url, key string, logger *slog.Logger) (*Redis, error) {
	conn, err := redislink.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if key == "" || relay.CheckID(key) != nil {
		return nil, fmt.Errorf("outcomes: the stream's key wants 1 to %d bytes without control characters", relay.MaxID)
	}
	quiet.Do(logging.Disable)
	r := &Redis{conn: conn, key: key, log: cmp.Or(logger, slog.New(slog.DiscardHandler))}
	r.writer = r.client(writePool)
	return r, nil
}

// client makes a client that hides nothing: no retries, no time without limit.
func (r *Redis) client(pool int) redis.UniversalClient {
	return redis.NewUniversalClient(redislink.Options(r.conn, pool, ioLimit, ioLimit))
}

// Append adds lines to the stream, in one exchange.
func (r *Redis) Append(ctx context.Context, lines [][]byte) error {
	if len(lines) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := r.writer.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, line := range lines {
			p.XAdd(ctx, &redis.XAddArgs{Stream: r.key, MaxLen: maxEntries, Approx: true, Values: []any{field, line}})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("share outcomes: %w", r.explain(err))
	}
	return nil
}

// Close frees the connection of Append.
func (r *Redis) Close() error {
	if err := r.writer.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// explain makes err fit to be shown.
func (r *Redis) explain(err error) error {
	return redislink.Explain(err, redislink.Words{
		Rights:    "the redis user lacks rights: it needs the keys <RELAY_CHANNEL>:*",
		WrongType: "the key " + r.key + " is not a stream: another program uses it; rename or delete it",
		Closed:    errClosed.Error(),
		TLS:       r.conn.TLSConfig != nil,
	})
}
