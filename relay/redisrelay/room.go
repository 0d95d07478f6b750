package redisrelay

import (
	"bufio"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// How many bytes of Redis' memory a stream takes at most. All streams of the relay together
// take 60 % of maxmemory: then none is evicted, and others have room.
const (
	modestBytes    = 8 << 20   // what is taken before it is known how much there is
	unknownBytes   = 16 << 20  // where Redis refuses to tell
	unlimitedBytes = 256 << 20 // where Redis has no maxmemory
	logShare       = 5         // one part in so many of maxmemory for messages
	sideShare      = 10        // and for another stream

	askEvery   = time.Minute // after an answer; without one it is asked again after presenceEvery
	freedPause = time.Minute // without a trim for want of memory, after which the next one is logged
	nearlyFull = 90          // per cent of maxmemory, from which on there is a warning
)

// room is how many bytes a stream may take, and took at the last look.
type room struct {
	limit, used atomic.Int64
	known       atomic.Bool  // limit is what there is; before, nothing is trimmed for it
	unmeasured  atomic.Int64 // bytes published since that look

	redisUsed, redisMost atomic.Int64 // memory of the server, at the last answer; 0: not known, or no maxmemory

	askAt atomic.Int64 // when memory is asked for again, in Unix nanoseconds; 0: at once
	full  atomic.Bool  // it was logged that Redis is nearly full

	mu     sync.Mutex
	freed  time.Time // when entries were last trimmed for want of memory; guarded by mu
	capped bool      // it was logged that the stream is at its limit; guarded by mu
}

// Memory is what the stream takes of Redis' memory, in bytes, at the last look, and the most that
// it may take; 0 before the first publish.
func (q *Queue) Memory() (used, limit int64) { return q.room.used.Load(), q.room.limit.Load() }

// RedisMemory is how much memory the Redis that has the stream uses, in bytes, and its maxmemory, at the last
// answer; 0 where Redis does not tell, and for a maxmemory that is not set.
func (q *Queue) RedisMemory() (used, most int64) {
	return q.room.redisUsed.Load(), q.room.redisMost.Load()
}

// measures reports whether the next call of the script, with so many bytes, is to look at the size.
func (q *Queue) measures(bytes int) bool {
	return q.room.unmeasured.Add(int64(bytes)) >= q.room.limit.Load()/16 || q.measured.due()
}

// most is how many bytes the script lets the stream take.
func (r *room) most() int64 {
	if !r.known.Load() {
		return 1 << 50
	}
	return r.limit.Load()
}

// noteSize takes what a call of the script found: the stream's size, how many entries it trimmed
// for that, and for want of memory.
func (q *Queue) noteSize(used string, trimmed, freed int64) {
	r := &q.room
	r.mu.Lock()
	defer r.mu.Unlock()
	q.stats.capped.Add(trimmed)
	q.stats.freed.Add(freed)
	if freed > 0 {
		if time.Since(r.freed) >= freedPause {
			q.log.Error("redis was out of memory: the oldest entries of the stream made room; raise its maxmemory",
				"entries", freed)
		}
		r.freed = time.Now()
	}
	n, err := strconv.ParseInt(used, 10, 64)
	if err != nil {
		return
	}
	r.used.Store(n)
	if trimmed > 0 && !r.capped {
		r.capped = true
		q.log.Warn("the stream has reached its share of redis' memory and keeps fewer entries; raise its maxmemory to keep more (logged once)",
			"bytes", n, "limit", r.limit.Load())
	}
}

// askMemory learns every minute how much memory Redis has and uses, whatever the stream takes: others fill Redis,
// too. It waits for nothing: the answer may take as long as a fault does.
func (q *Queue) askMemory() {
	now, at := time.Now(), q.room.askAt.Load()
	if now.UnixNano() < at || !q.room.askAt.CompareAndSwap(at, now.Add(askEvery).UnixNano()) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Err() == nil {
		q.running.Go(q.learnMemory)
	}
}

// learnMemory sets the limit by what Redis answers. Without an answer the limit stays.
func (q *Queue) learnMemory() {
	r := &q.room
	ctx, cancel := context.WithTimeout(q.closed, grace)
	defer cancel()
	used, most, err := q.memory(ctx)
	if err != nil && !untold(err) {
		r.askAt.Store(time.Now().Add(q.presence.every).UnixNano())
		return
	}
	r.redisUsed.Store(used)
	r.redisMost.Store(most)
	full := most > 0 && used > most/100*nearlyFull
	if was := r.full.Swap(full); full && !was {
		q.log.Warn("redis is nearly full", "bytes", used, "maxmemory", most)
	}
	if q.opts.MaxBytes > 0 {
		return
	}
	limit := int64(unknownBytes)
	switch {
	case err != nil:
	case most == 0:
		limit = unlimitedBytes
	default:
		limit = Share(most)
		if q.opts.Stream != "" {
			limit = most / sideShare
		}
	}
	r.limit.Store(limit)
	r.known.Store(true)
}

// Share is how much of a Redis with that maxmemory a stream of messages takes, in bytes.
func Share(maxmemory int64) int64 { return min(unlimitedBytes, maxmemory/logShare) }

// errNoMemory is an answer to INFO without what is asked for.
var errNoMemory = errors.New("INFO has no memory")

// untold reports whether Redis refuses to tell how much memory there is, and will refuse again: it forbids
// the command or does not have it.
func untold(err error) bool {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		text := strings.ToLower(reply.Error())
		return strings.HasPrefix(text, "noperm ") || strings.HasPrefix(text, "err ") && strings.Contains(text, "command")
	}
	return errors.Is(err, errNoMemory)
}

// infoScript asks for the section ARGV[1] of INFO at the server that has KEYS[1], if the user has the right to. Since
// 7.0 Redis tells that without an entry in ACL LOG; before, ARGV[2] is "1" to ask all the same.
var infoScript = redis.NewScript(`
local known, may = pcall(redis.acl_check_cmd or error, 'INFO', ARGV[1])
if not redis.acl_check_cmd then may = ARGV[2] == '1'
elseif not known then return redis.error_reply('ERR unknown command INFO') end
if not may then return redis.error_reply('NOPERM this user has no right to INFO') end
return redis.call('INFO', ARGV[1])
`)

// Info returns a section of what the server that has key tells of itself. A user without the right to INFO leaves
// nothing in ACL LOG. Before Redis 7, which cannot tell who may, it asks only if loud, and then a refusal is logged there.
func Info(ctx context.Context, client redis.Scripter, key, section string, loud bool) (map[string]string, error) {
	asks := ""
	if loud {
		asks = "1"
	}
	text, err := infoScript.Run(ctx, client, []string{key}, section, asks).Text()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok {
			found[name] = value
		}
	}
	return found, nil
}

// memory asks the server that has the stream how much of its memory is used, and maxmemory.
func (q *Queue) memory(ctx context.Context) (used, most int64, err error) {
	found, err := Info(ctx, q.publish, q.stream, "memory", q.opts.MaxBytes == 0)
	if err != nil {
		return 0, 0, err
	}
	used, errUsed := strconv.ParseInt(found["used_memory"], 10, 64)
	most, errMost := strconv.ParseInt(found["maxmemory"], 10, 64)
	if errUsed != nil || errMost != nil {
		return 0, 0, errNoMemory
	}
	return used, most, nil
}
