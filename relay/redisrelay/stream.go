package redisrelay

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
)

// place is a position in a stream, behind an entry.
type place struct {
	ID  redislink.EntryID `json:"id"`
	Sum string            `json:"sum,omitempty"` // of the entry's line
}

// sum tells a line from another one with the same id, which two servers may give out that each take themselves for
// the primary.
func sum(line []byte) string {
	sum := sha1.Sum(line)
	return hex.EncodeToString(sum[:8])
}

// luaSum is sum in Lua, of an entry.
const luaSum = `
local function sum(entry)
  local line, fields = '', entry[2]
  for i = 1, #fields, 2 do if fields[i] == 'payload' then line = fields[i + 1] end end
  return string.sub(redis.sha1hex(line), 1, 16)
end
`

// lookScript returns of the stream KEYS[1]: id and sum of the newest entry up to the id ARGV[1], the ids of the first
// and the last entry, and the number of entries.
var lookScript = redis.NewScript(luaSum + `
local function entry(command, from, to)
  return redis.call(command, KEYS[1], from, to, 'COUNT', 1)[1] or {'0-0', {}}
end
local at = entry('XREVRANGE', ARGV[1], '-')
return {at[1], sum(at), entry('XRANGE', '-', '+')[1], entry('XREVRANGE', '+', '-')[1],
  tostring(redis.call('XLEN', KEYS[1]))}
`)

// sight is what a look at a stream shows.
type sight struct {
	at          place             // of the newest entry up to the position
	first, last redislink.EntryID // zero: there is none
	length      int64
}

func look(ctx context.Context, client redis.UniversalClient, stream string, at redislink.EntryID) (s sight, err error) {
	reply, err := lookScript.Run(ctx, client, []string{stream}, at.String()).StringSlice()
	if err != nil || len(reply) != 5 {
		return s, cmp.Or(err, errReply)
	}
	s.at.ID, _ = redislink.ParseEntry(reply[0])
	s.first, _ = redislink.ParseEntry(reply[2])
	s.last, _ = redislink.ParseEntry(reply[3])
	s.at.Sum = reply[1]
	s.length, err = strconv.ParseInt(reply[4], 10, 64)
	return s, err
}

var errReply = errors.New("unexpected reply about a stream")

// lag estimates how many entries are behind at: Redis counts all of them alone, so their times decide.
func (s sight) lag(at redislink.EntryID) int64 {
	if s.last.Compare(at) <= 0 {
		return 0
	}
	left := float64(s.last.MS-max(at.MS, s.first.MS)) / float64(max(1, s.last.MS-s.first.MS))
	return max(1, int64(left*float64(s.length)))
}
