package redisbox

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
)

const (
	callLimit = 2500 * time.Millisecond // for one call as a whole; then it fails
	ioLimit   = 2 * time.Second         // for one step of it: to connect, to write, to read
	callPool  = 8                       // connections for calls; a further call waits, within its limit

	defaultHeartbeatTimeout = 90 * time.Second // docs/protocol.md 6.5
)

// Options says which Redis, and for whom.
type Options struct {
	URL    string       // see [redislink.ParseURL]
	Logger *slog.Logger // nil discards
	// HeartbeatTimeout is how long an agent counts as there after SetCard; 0 means 90 s.
	HeartbeatTimeout time.Duration
	// Self is who uses the store; it stands in the alive keys that it sets, for
	// a person who looks at them, and in the log.
	Self    mailbox.AgentID
	Signing mailbox.Signing // of what is put and published
}

// Store is a [mailbox.Store] on Redis.
type Store struct {
	conn    *redis.UniversalOptions
	log     *slog.Logger
	life    time.Duration // of an alive key
	self    mailbox.AgentID
	signing mailbox.Signing
	calls   redis.UniversalClient
	dropped atomic.Int64
}

var _ mailbox.Store = (*Store)(nil)

// Open checks the options and does no I/O: Redis need not be there.
func Open(opts Options) (*Store, error) {
	conn, err := redislink.ParseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		conn: conn, log: opts.Logger.With("agent", string(opts.Self)), self: opts.Self, signing: opts.Signing,
		life: max(time.Millisecond, cmp.Or(opts.HeartbeatTimeout, defaultHeartbeatTimeout)),
	}
	s.calls = s.client(callPool)
	return s, nil
}

// client makes a client that hides nothing: no retries, no time without limit.
func (s *Store) client(pool int) redis.UniversalClient {
	return redis.NewUniversalClient(redislink.Options(s.conn, pool, ioLimit, ioLimit))
}

// Dropped counts what was published on the peer channels and not taken: no
// peer message, or one for this agent for which the inbox had no room.
func (s *Store) Dropped() int { return int(s.dropped.Load()) }

// Close frees the connections.
func (s *Store) Close() error { return s.calls.Close() }

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callLimit)
}

const (
	prefix   = "nanobot:mailbox:"
	cardsKey = prefix + "agents"
)

// In a key, the first } ends the part that a Cluster looks at, and an empty
// part does not count.
var escapeTag = strings.NewReplacer("}", "%7D", "%", "%25")

func key(agent mailbox.AgentID, what string) string {
	return prefix + "{" + escapeTag.Replace(string(agent)) + "}:" + what
}

func inboxKey(agent mailbox.AgentID) string     { return key(agent, "inbox") }
func malformedKey(agent mailbox.AgentID) string { return key(agent, "malformed") }
func asideKey(agent mailbox.AgentID) string     { return key(agent, "aside") }
func aliveKey(agent mailbox.AgentID) string     { return key(agent, "alive") }
