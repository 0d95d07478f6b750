package redislink

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Uncounted is the number of entries added if the server does not report it, before Redis
// 7.
const Uncounted = -1

// Sight is the state of a stream at one time.
type Sight struct {
	Exists      bool
	Added       int64 // entries ever added, or Uncounted
	Length      int64
	First, Last EntryID // first entry, if any; last id ever assigned
}

// lookScript returns of the stream KEYS[1]: the last id, the number of entries, the
// number ever added, the first entry's id, and whether an entry has the id ARGV[1].
// XINFO itself would send the first and the last entry as a whole.
var lookScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local s, info = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do s[info[i]] = info[i + 1] end
local first = s['first-entry']
return {s['last-generated-id'], s['length'], s['entries-added'] or -1, first and first[1] or '',
  #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])}
`)

// Look reads the state of a stream atomically; holds reports whether it has an
// entry with the id at.
func Look(ctx context.Context, client redis.UniversalClient, stream string, at EntryID) (
	s Sight, holds bool, err error) {
	reply, err := lookScript.Run(ctx, client, []string{stream}, at.String()).Slice()
	if err != nil || len(reply) == 0 {
		return Sight{}, false, err
	}
	return parseSight(reply)
}

func parseSight(reply []any) (s Sight, holds bool, err error) {
	unexpected := errors.New("unexpected reply about a stream")
	if len(reply) != 5 {
		return Sight{}, false, unexpected
	}
	s.Exists = true
	last, _ := reply[0].(string)
	first, _ := reply[3].(string)
	var okLast, okLength, okAdded bool
	s.Last, okLast = ParseEntry(last)
	s.Length, okLength = reply[1].(int64)
	s.Added, okAdded = reply[2].(int64)
	held, okHolds := reply[4].(int64)
	okFirst := s.Length == 0
	if !okFirst {
		s.First, okFirst = ParseEntry(first)
	}
	if !okLast || !okLength || !okAdded || !okFirst || !okHolds {
		return Sight{}, false, unexpected
	}
	return s, held > 0, nil
}
