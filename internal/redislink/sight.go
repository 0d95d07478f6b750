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

// lookScript returns of the stream KEYS[1]: the last id, the number of entries, the
// number ever added, the first entry's id, and whether an entry has the id ARGV[1], and
// a payload with the sum ARGV[2] ("" for any).
// XINFO itself would send the first and the last entry as a whole.
var lookScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local s, info = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do s[info[i]] = info[i + 1] end
local first = s['first-entry']
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if entries[1] and ARGV[2] ~= '' then
  local fields, payload = entries[1][2], ''
  for i = 1, #fields, 2 do if fields[i] == 'payload' then payload = fields[i + 1] end end
  if string.sub(redis.sha1hex(payload), 1, #ARGV[2]) ~= ARGV[2] then entries = {} end
end
return {s['last-generated-id'], s['length'], s['entries-added'] or -1, first and first[1] or '',
  #entries}
`)

// Sum identifies the text in the field payload of an entry: two servers may give out one id for two of them, while each
// takes itself for the primary. The scripts compute it, too.
func Sum(payload string) string {
	sum := sha1.Sum([]byte(payload))
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
