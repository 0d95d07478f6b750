package redisbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

const (
	malformedLife = 30 * 24 * time.Hour // of the list, from the last entry on
	maxMalformed  = 1000                // what is quarantined for one agent; the oldest makes room
	field         = "envelope"
)

// putScript puts an envelope into an inbox, in the place of an earlier copy,
// and publishes it.
//
// KEYS: the inbox. ARGV: how many it holds; the envelope; the entry of the earlier
// copy or ""; the channel or ""; what is published.
//
// It returns the new entry, or nothing when the inbox is full. Adding comes first: out of memory, it changes nothing.
// A user of Redis without the right to publish is no error, since the mail is there: Receive reports it.
var putScript = redis.NewScript(`
local inbox, old = KEYS[1], ARGV[3]
local waits = old ~= '' and redis.call('XRANGE', inbox, old, old)[1]
if not waits and redis.call('XLEN', inbox) >= tonumber(ARGV[1]) then return false end
local entry = redis.call('XADD', inbox, '*', 'envelope', ARGV[2])
if waits then redis.call('XDEL', inbox, old) end
if ARGV[4] ~= '' then redis.pcall('PUBLISH', ARGV[4], ARGV[5]) end
return entry
`)

// whereScript returns 1 where the entry ARGV[1] waits, 2 where it was taken, 3 where it was
// quarantined, else 0. XRANGE alone would send it.
var whereScript = redis.NewScript(`
if redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then return 1 end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return 2 end
return redis.call('ZSCORE', KEYS[3], ARGV[1]) and 3 or 0
`)

// settleScript moves the id of the entry ARGV[1] from the inbox KEYS[1] to the set KEYS[2], by the time
// ARGV[2], for its sender. The set keeps the newest ARGV[3], and has no life: if Redis evicted it, senders would
// send again what was taken. With ARGV[4], the life in milliseconds of the list KEYS[3], the entry goes there:
// its only value, or all fields and values. Out of memory, Redis allows the rest once the entry is deleted.
var settleScript = redis.NewScript(`
local entry = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not entry then return 0 end
if ARGV[4] then
  redis.call('LPUSH', KEYS[3], #entry[2] == 2 and entry[2][2] or cjson.encode(entry[2]))
  redis.call('LTRIM', KEYS[3], 0, ARGV[3] - 1)
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[3])
`)

// Put adds m to the inbox of m.To. A message for a goal is also published on
// the goal's channel.
func (s *Store) Put(ctx context.Context, m mailbox.Sealed) (string, error) {
	channel, payload, err := s.announcement(m.Envelope)
	if err != nil {
		return "", err
	}
	return s.put(ctx, m, "", channel, payload)
}

// Again adds m again and deletes the earlier copy, in one step. It publishes
// nothing: who listens on a channel only has heard the first one, and cannot
// recognise a repeat.
func (s *Store) Again(ctx context.Context, key string, m mailbox.Sealed) (string, error) {
	return s.put(ctx, m, key, "", nil)
}

func (s *Store) put(ctx context.Context, m mailbox.Sealed, old, channel string, payload []byte) (string, error) {
	if err := cmp.Or(mailbox.CheckAgent(m.To), mailbox.CheckAgent(m.From), m.CheckSize()); err != nil {
		return "", err
	}
	if _, ok := redislink.ParseEntry(old); !ok {
		old = "" // another store's: it is not here
	}
	ctx, cancel := within(ctx)
	defer cancel()
	inbox := inboxKey(m.To)
	got, err := putScript.Run(ctx, s.calls, []string{inbox}, mailbox.MaxInbox, m.Raw, old, channel, payload).Text()
	if errors.Is(err, redis.Nil) {
		err = mailbox.ErrFull
	} else if err != nil {
		err = s.explain(err, usesStream(inbox))
	}
	if err != nil {
		return "", fmt.Errorf("put into the inbox of %s: %w", m.To, err)
	}
	return got, nil
}

// Where implements [mailbox.Store]. What was taken is known among the last 10,000 that were. Mail that is
// [mailbox.Gone] is lost, or was deleted by a program that does not write down what it takes.
func (s *Store) Where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	n := 0
	err := s.onEntry(ctx, "look into", to, key, func(ctx context.Context, inbox string) (err error) {
		n, err = whereScript.Run(ctx, s.calls, []string{inbox, takenKey(to), asideKey(to)}, key).Int()
		return err
	})
	return [...]mailbox.Place{mailbox.Gone, mailbox.Waiting, mailbox.Processed, mailbox.Aside}[n], err
}

// Read returns the entry key.
func (s *Store) Read(ctx context.Context, agent mailbox.AgentID, key string) (mailbox.Item, error) {
	var entries []redis.XMessage
	err := s.onEntry(ctx, "read from", agent, key, func(ctx context.Context, inbox string) (err error) {
		entries, err = s.calls.XRangeN(ctx, inbox, key, key, 1).Result()
		return err
	})
	if err != nil || len(entries) == 0 {
		return mailbox.Item{}, cmp.Or(err, mailbox.ErrGone)
	}
	return item(entries[0]), nil
}

// Settle deletes mail that was taken, and moves what was no envelope to the
// list of malformed mail.
func (s *Store) Settle(ctx context.Context, agent mailbox.AgentID, key string, how mailbox.Outcome) error {
	return s.onEntry(ctx, "settle in", agent, key, func(ctx context.Context, inbox string) error {
		now := time.Now().UnixMilli()
		keys, args := []string{inbox, takenKey(agent)}, []any{key, now, mailbox.MaxInbox}
		if how == mailbox.Malformed {
			keys = []string{inbox, asideKey(agent), malformedKey(agent)}
			args = []any{key, now, maxMalformed, malformedLife.Milliseconds()}
		}
		return s.explain(settleScript.Run(ctx, s.calls, keys, args...).Err(),
			"one of the keys "+inbox+" (a stream), "+keys[1]+" (a sorted set) and "+malformedKey(agent)+" (a list)")
	})
}

// onEntry has do, which what names for the error, deal with an entry of an agent's inbox. It
// does nothing if key is of another store, as none of its entries can be here.
func (s *Store) onEntry(ctx context.Context, what string, agent mailbox.AgentID, key string,
	do func(ctx context.Context, inbox string) error) error {
	if err := mailbox.CheckAgent(agent); err != nil {
		return err
	}
	if _, ok := redislink.ParseEntry(key); !ok {
		return nil
	}
	ctx, cancel := within(ctx)
	defer cancel()
	inbox := inboxKey(agent)
	if err := do(ctx, inbox); err != nil {
		return fmt.Errorf("%s the inbox of %s: %w", what, agent, s.explain(err, usesStream(inbox)))
	}
	return nil
}

// item is an entry as mail. Another program may call the field otherwise;
// several fields, none of which is "envelope", are not an envelope, and are shown as an
// object so that a person can see what they were.
func item(entry redis.XMessage) mailbox.Item {
	value, ok := entry.Values[field].(string)
	if !ok && len(entry.Values) == 1 {
		for _, v := range entry.Values {
			value, ok = v.(string)
		}
	}
	raw := []byte(value)
	if !ok {
		raw, _ = relay.Marshal(entry.Values) // strings by strings: it cannot fail
	}
	return mailbox.Item{Key: entry.ID, Raw: raw}
}
