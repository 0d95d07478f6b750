// Package redisbox is the mailbox's store on Redis: a stream for each inbox, a
// hash of all agents' cards, and a channel for each goal, on which programs that know
// only peer inboxes publish and listen (docs/protocol.md 6.7).
//
// # Keys
//
//	nanobot:mailbox:{<agent>}:inbox      stream, an envelope in the field "envelope"
//	nanobot:mailbox:{<agent>}:malformed  list, what was no envelope, the newest first, at most 1000
//	nanobot:mailbox:{<agent>}:aside      sorted set, the inbox entries that these were, by the time in ms
//	nanobot:mailbox:{<agent>}:taken      sorted set, the last 10,000 inbox entries that were taken, by the time in ms
//	nanobot:mailbox:{<agent>}:alive      string, gone when the agent's heartbeat stopped
//	nanobot:mailbox:agents               hash, agent id → card
//
// The braces keep the keys of an agent in one slot of a Cluster; in an agent's
// name } is written %7D and % is written %25. A list of malformed mail expires 30 days after
// something was last put there. An inbox, and the sets of what was taken from it and was malformed in it, have
// no expiry, since Redis with a volatile policy evicts keys that have one. They stay when
// an agent is gone for good, as its folder does on files.
//
// # Mail
//
// [Store.Put] is one script: it counts the inbox, adds the envelope and, for a
// message to a goal, publishes it on "agent.inbox.<goal>" with the field "id",
// by which readers of the stream know that they need not listen. A script,
// because a MULTI cannot count first, and because in a Cluster a script may
// publish on a channel of any slot. Mail that was taken is deleted, and its id noted in the same step: mail
// that is neither in the inbox nor noted was lost, and its sender sends it again.
//
// [Store.Receive] reads the stream with a cursor of its own and looks, once a
// second, whether the first entry is one that it was shown there: of another
// stream it begins at the start. Beside it it listens on the channels of the agent's goals. A
// payload for its agent without an "id" is another program's, and is put into
// the agent's inbox. A channel remembers nothing: what is published while
// nobody listens is lost, as it is for every reader of peer inboxes.
//
// # Cards
//
// A card of ours carries "presence":"key": whether its agent is there is shown by
// the alive key, on the clock of Redis. A card without it is a foreign
// program's, and is judged by its heartbeat.
//
// # Faults
//
// Every call is answered within 2.5 s or fails, and the error says how to fix it. A call
// that was not answered may have been carried out: what is put again has the same id, and
// the receiver drops the repeat. Receive returns at a fault, a dead link
// included, and is called again.
package redisbox

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
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
	// Self is who uses the store; it is in the alive keys that it sets, for
	// a person who looks at them, and in the log.
	Self    mailbox.AgentID
	Signing mailbox.Signing // of what is published
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

	mu    sync.Mutex
	goals map[mailbox.AgentID][]string // of the cards that were set; guarded by mu
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
		goals: map[mailbox.AgentID][]string{}, life: max(time.Millisecond, cmp.Or(opts.HeartbeatTimeout, defaultHeartbeatTimeout)),
	}
	s.calls = s.client(callPool)
	return s, nil
}

// client makes a client that hides nothing: no retries, no time without limit.
func (s *Store) client(pool int) redis.UniversalClient {
	return redislink.NewClient(redislink.Options(s.conn, pool, ioLimit, ioLimit))
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
func takenKey(agent mailbox.AgentID) string     { return key(agent, "taken") }
func aliveKey(agent mailbox.AgentID) string     { return key(agent, "alive") }

// explain makes err fit to be shown. uses names the keys of the call and what
// they are.
func (s *Store) explain(err error, uses string) error {
	return redislink.Explain(err, redislink.Words{
		Rights: "the redis user lacks rights: it needs the keys " + prefix + "*, the channels " + peerChannels +
			", and scripts",
		WrongType: uses + " has another type: another program uses it; rename or delete it",
		Closed:    "the mailbox's store is closed",
		TLS:       s.conn.TLSConfig != nil,
	})
}

func usesStream(key string) string { return "the key " + key + " (a stream)" }
