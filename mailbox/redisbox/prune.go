package redisbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/mailbox"
)

const (
	pruneEvery = time.Hour
	pruneMost  = 1000 // inboxes looked at in a round
)

// pruneScript deletes an inbox, KEYS[1], into which nothing was put for ARGV[1] milliseconds on the clock
// of Redis, and what was set aside of it, KEYS[2] and KEYS[3]. It returns when something
// was last put into an inbox that stays, in milliseconds, else 0.
var pruneScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info, last = redis.call('XINFO', 'STREAM', KEYS[1]), 0
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = tonumber(string.match(info[i + 1], '%d+')) end
  end
  if last >= redis.call('TIME')[1] * 1000 - ARGV[1] then return string.format('%.0f', last) end
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return '0'
`)

// list puts an agent's inbox among those that are pruned one day. Without the right to that, it
// stays until its agent reads it, or a person deletes it.
func (s *Store) list(ctx context.Context, agent mailbox.AgentID) error {
	err := s.calls.ZAdd(ctx, inboxesKey, redis.Z{Score: float64(time.Now().UnixMilli()), Member: string(agent)}).Err()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

// keep takes the life from the agent's inbox, which it has if an earlier version put mail into it.
func (s *Store) keep(ctx context.Context, agent mailbox.AgentID) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if n, err := s.calls.Exists(ctx, inboxKey(agent)).Result(); n == 0 {
		return err
	}
	if err := s.list(ctx, agent); err != nil {
		return err
	}
	return s.calls.Persist(ctx, inboxKey(agent)).Err()
}

// prune deletes, now and then until ctx is done, inboxes whose agents do not come back, and keeps
// that of agent, which is here. What fails is tried again an hour later.
func (s *Store) prune(ctx context.Context, agent mailbox.AgentID) {
	for {
		if err := errors.Join(s.keep(ctx, agent), s.pruneOnce(ctx)); err != nil && ctx.Err() == nil {
			s.log.Debug("prune inboxes; tried again later", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pruneEvery):
		}
	}
}

func (s *Store) pruneOnce(ctx context.Context) error {
	before := time.Now().Add(-mailLife).UnixMilli()
	asking, cancel := within(ctx)
	agents, err := s.calls.ZRangeByScore(asking, inboxesKey,
		&redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(before, 10), Count: pruneMost}).Result()
	cancel()
	if err != nil {
		return err
	}
	for _, agent := range agents {
		if err := s.pruneInbox(ctx, mailbox.AgentID(agent)); err != nil {
			return fmt.Errorf("inbox of %s: %w", agent, err)
		}
	}
	return nil
}

func (s *Store) pruneInbox(ctx context.Context, agent mailbox.AgentID) error {
	ctx, cancel := within(ctx)
	defer cancel()
	last, err := pruneScript.Run(ctx, s.calls, []string{inboxKey(agent), malformedKey(agent), asideKey(agent)},
		mailLife.Milliseconds()).Float64()
	if err != nil {
		return err
	}
	if last > 0 {
		return s.calls.ZAdd(ctx, inboxesKey, redis.Z{Score: last, Member: string(agent)}).Err()
	}
	s.log.Info("deleted an inbox that nothing was put into for 30 days", "of", agent)
	return s.calls.ZRem(ctx, inboxesKey, string(agent)).Err()
}
