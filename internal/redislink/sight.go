package redislink

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
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

// luaHolds is a function in Lua: whether the stream has an entry with an id and, unless it is "", a [Sum].
const luaHolds = `
local function holds(id, sum)
  local e = redis.call('XRANGE', KEYS[1], id, id)[1]
  if not e then return false end
  local payload = ''
  for i = 1, #e[2], 2 do if e[2][i] == 'payload' then payload = e[2][i + 1] end end
  return sum == '' or string.sub(redis.sha1hex(payload), 1, #sum) == sum
end
`

// lookScript returns of the stream KEYS[1]: the last id, the number of entries, the
// number ever added, the first entry's id, and whether an entry has the id ARGV[1], and
// a payload with the sum ARGV[2] ("" for any).
// XINFO itself would send the first and the last entry as a whole.
var lookScript = redis.NewScript(luaHolds + `
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local s, info = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do s[info[i]] = info[i + 1] end
local first = s['first-entry']
return {s['last-generated-id'], s['length'], s['entries-added'] or -1, first and first[1] or '',
  holds(ARGV[1], ARGV[2]) and 1 or 0}
`)

// Sum identifies the text in the field payload of an entry: two servers, each of which takes itself for the
// primary, may give one id to two entries. The scripts compute it, too.
func Sum(payload []byte) string {
	sum := sha1.Sum(payload)
	return hex.EncodeToString(sum[:8])
}

// Look reads the state of a stream atomically; holds reports whether it has an
// entry with the id at and, unless sum is "", with that [Sum].
func Look(ctx context.Context, client redis.UniversalClient, stream string, at EntryID, sum string) (
	s Sight, holds bool, err error) {
	reply, err := lookScript.Run(ctx, client, []string{stream}, at.String(), sum).Slice()
	if err != nil || len(reply) == 0 {
		return Sight{}, false, err
	}
	return parseSight(reply)
}

// Entry is an entry of a stream: its id, and the [Sum] of its payload.
type Entry struct {
	ID  EntryID
	Sum string
}

// newestScript returns the number of the last of the entries in ARGV, each an id and a sum, that the stream has, or 0.
var newestScript = redis.NewScript(luaHolds + `
for i = #ARGV - 1, 1, -2 do if holds(ARGV[i], ARGV[i + 1]) then return (i + 1) / 2 end end
return 0
`)

// Newest returns how many of the entries there are up to the last one that a stream has; 0: it has none.
func Newest(ctx context.Context, client redis.UniversalClient, stream string, entries []Entry) (n int, err error) {
	args := make([]any, 0, 2*len(entries))
	for _, e := range entries {
		args = append(args, e.ID.String(), e.Sum)
	}
	n, err = newestScript.Run(ctx, client, []string{stream}, args...).Int()
	if err == nil && (n < 0 || n > len(entries)) {
		return 0, errors.New("unexpected reply about a stream")
	}
	return n, err
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
