package redisbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

const (
	pruneEvery = time.Hour
	pruneMost  = 1000            // inboxes looked at in a round
	pruneLimit = 5 * time.Minute // for a round: each inbox at a node that does not answer takes a callLimit
)

// pruneScript deletes an inbox, KEYS[1], into which nothing was put for ARGV[1] milliseconds on the clock
// of Redis, and what is known of it, the other KEYS. It returns when something
// was last put into an inbox that stays, in milliseconds, else 0. What is no inbox is an error.
var pruneScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info, last = redis.pcall('XINFO', 'STREAM', KEYS[1]), 0
  if info.err then return info end -- as it is: before Redis 7 the error of a call has other words
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = tonumber(string.match(info[i + 1], '%d+')) end
  end
  if last >= redis.call('TIME')[1] * 1000 - ARGV[1] then return string.format('%.0f', last) end
end
redis.call('DEL', unpack(KEYS))
return '0'
`)

// unlistScript takes ARGV[1] from the set of inboxes, KEYS[1], unless a sender put it there after ARGV[2].
var unlistScript = redis.NewScript(`
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if at and tonumber(at) <= tonumber(ARGV[2]) then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 0
`)

// list puts an agent's inbox among those that are pruned one day. Without the right to that, it
// stays until its agent reads it, or a person deletes it.
func (s *Store) list(ctx context.Context, agent mailbox.AgentID) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit/2) // the set may be at another node than the inbox
	defer cancel()
	err := s.calls.ZAdd(ctx, inboxesKey, redis.Z{Score: float64(time.Now().UnixMilli()), Member: string(agent)}).Err()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

// keep notes that the agent's inbox is in use, if something waits there.
func (s *Store) keep(ctx context.Context, agent mailbox.AgentID) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if n, err := s.calls.XLen(ctx, inboxKey(agent)).Result(); err != nil || n == 0 {
		return err
	}
	return s.list(ctx, agent)
}

// prune deletes, now and then until ctx is done, inboxes whose agents do not come back, and keeps
// that of agent, which is here. What fails is logged, once as a warning, and tried again an hour later.
// Its error is ctx's.
func (s *Store) prune(ctx context.Context, agent mailbox.AgentID) error {
	for {
		err := errors.Join(s.keep(ctx, agent), s.pruneOnce(ctx))
		if err != nil && ctx.Err() == nil {
			level, text := slog.LevelWarn, "unused inboxes stay for another hour"
			if redis.HasErrorPrefix(err, "NOPERM") {
				text = "unused inboxes stay; give the user in REDIS_URL the line of docs/redis.md"
			}
			if _, again := s.warned.LoadOrStore(text, true); again {
				level = slog.LevelDebug
			}
			s.log.Log(ctx, level, text, "err", err)
		}
		if err := wait.Sleep(ctx, pruneEvery); err != nil {
			return err
		}
	}
}

// pruneOnce looks at the inboxes that may be unused. A fault at one does not stop it; one that
// cannot be looked at is so again behind the others.
func (s *Store) pruneOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	before := time.Now().Add(-mailLife).UnixMilli()
	agents, err := s.calls.ZRangeByScore(ctx, inboxesKey,
		&redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(before, 10), Count: pruneMost}).Result()
	for _, agent := range agents {
		if fault := s.pruneInbox(ctx, mailbox.AgentID(agent), before); fault != nil {
			err = errors.Join(err, fmt.Errorf("inbox of %s: %w", agent, fault),
				s.calls.ZAddXX(ctx, inboxesKey, redis.Z{Score: float64(before), Member: agent}).Err())
		}
	}
	return err
}

// pruneInbox deletes an inbox if it is unused, and takes it from the set, where it was before that time.
// A key of that name which is no inbox is left alone.
func (s *Store) pruneInbox(ctx context.Context, agent mailbox.AgentID, before int64) error {
	ctx, cancel := within(ctx)
	defer cancel()
	last, err := pruneScript.Run(ctx, s.calls, []string{inboxKey(agent), malformedKey(agent), asideKey(agent),
		takenKey(agent)},
		mailLife.Milliseconds()).Float64()
	other := redis.HasErrorPrefix(err, "WRONGTYPE")
	if err != nil && !other {
		return err
	}
	if last > 0 {
		return s.calls.ZAdd(ctx, inboxesKey, redis.Z{Score: last, Member: string(agent)}).Err()
	}
	if !other {
		s.log.Info("deleted an inbox that nothing was put into for 30 days", "of", agent)
	}
	return errors.Join(err, unlistScript.Run(ctx, s.calls, []string{inboxesKey}, string(agent), before).Err())
}
