package redisrelay

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/safefile"
)

const (
	presenceLife  = 15 * time.Second // a sidecar that is gone is forgotten after this
	presenceEvery = 5 * time.Second
)

const rivalText = "another sidecar runs with this AGENT_NAME on this redis; each needs a name of its own"

// presenceScript takes or refreshes the key for this instance, or returns
// whose it is and for how many milliseconds. KEYS: the agent's key. ARGV: the
// instance, the life in milliseconds.
var presenceScript = redis.NewScript(`
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return {holder, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], tonumber(ARGV[2])}
`)

// presence knows whether another sidecar holds this agent's name.
type presence struct {
	life, every time.Duration
	rival       atomic.Bool
}

// Rival reports whether another sidecar runs with the same agent name on this
// Redis. Both go on working: nothing is lost, but both bots are handed the
// same messages, and each takes the other's for its own.
func (q *Queue) Rival() bool { return q.presence.rival.Load() }

// claim is what the presence key showed at one look.
type claim struct {
	holder string
	left   time.Duration
	at     time.Time
}

// alive reports whether the other instance that holds the key refreshed it
// between two looks. One that was just ended, this agent's on another host
// perhaps, leaves a key that only runs out.
func alive(before, now claim) bool {
	if before.holder == "" || before.holder != now.holder {
		return false
	}
	return now.left > before.left-now.at.Sub(before.at)/2
}

// announce holds the agent's name on Redis until ctx is done.
func (q *Queue) announce(ctx context.Context, instance string) {
	defer q.presence.rival.Store(false)
	key := q.opts.Channel + ":agent:" + q.opts.Agent
	tick := time.NewTicker(q.presence.every)
	defer tick.Stop()
	for before := (claim{}); ; {
		if now, err := q.claim(ctx, key, instance); err == nil {
			switch was := q.presence.rival.Load(); {
			case now.holder == instance:
				before = claim{}
				q.presence.rival.Store(false)
			case alive(before, now):
				q.presence.rival.Store(true)
				before = now
				if !was {
					q.log.Error(rivalText, "agent", q.opts.Agent)
				}
			default:
				before = now
			}
		} // else Redis is away, which the reader reports
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (q *Queue) claim(ctx context.Context, key, instance string) (claim, error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	reply, err := presenceScript.Run(ctx, q.publish, []string{key}, instance, q.presence.life.Milliseconds()).Slice()
	if err != nil || len(reply) != 2 {
		return claim{holder: instance}, err
	}
	holder, _ := reply[0].(string)
	left, _ := reply[1].(int64)
	return claim{holder: holder, left: time.Duration(left) * time.Millisecond, at: time.Now()}, nil
}

// claimInstance gives this sidecar's id. It is in a file, so that a restart is the
// same instance, and holds the file's lock: a second sidecar that shares the
// folder, and so would share the id, gets one of its own. Without a usable
// file the id lasts as long as the process.
func claimInstance(root *os.Root, name string) (instance string, release func()) {
	instance, release = rand.Text(), func() {}
	f, err := safefile.Open(root, name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return instance, release
	}
	release = func() { _ = f.Close() } // frees the lock too
	if locked, err := safefile.TryLock(f); err != nil || !locked {
		return instance, release
	}
	const size = 26 // of rand.Text
	data, err := io.ReadAll(io.LimitReader(f, size))
	if stored := strings.TrimSpace(string(data)); err == nil && len(stored) == size {
		return stored, release
	}
	_, _ = f.WriteAt([]byte(instance), 0) // where it fails, a restart counts as another instance for 15 s
	return instance, release
}
