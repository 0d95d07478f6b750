package redisbox

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
)

// uncounted is the number of entries added where the server does not tell,
// before Redis 7.
const uncounted = -1

// sight is what one look at a stream shows.
type sight struct {
	exists      bool
	added       int64 // entries ever added, or uncounted
	length      int64
	first, last redislink.EntryID // of the entries there, if any; ever given out
}

// replaces reports whether the stream is another than the one that was seen
// before and read up to cursor, or an older state of it: then there may be
// entries before the cursor that were not shown. In one stream the last id and
// the count only rise, and what is added comes behind all that was there.
func (s sight) replaces(before sight, cursor redislink.EntryID) bool {
	switch {
	case !s.exists:
		return before.exists
	case s.last.Compare(cursor) < 0:
		return true
	case s.added != uncounted && s.added < before.added:
		return true
	case s.length == 0 || !before.exists:
		return false
	case before.length == 0:
		return s.first.Compare(before.last) <= 0
	}
	return s.first.Compare(before.first) < 0
}

// read notes that the entry id was read, the first behind all that was seen
// before: of a stream that had none, it is the first.
func (s *sight) read(id redislink.EntryID) {
	if s.length == 0 {
		s.length, s.first = 1, id
	}
	s.exists = true
}

// lookScript returns of the stream KEYS[1]: the last id, the number of
// entries, how many were ever added, the first entry's id. XINFO itself would send the
// first and the last entry as a whole.
var lookScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local s, info = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do s[info[i]] = info[i + 1] end
local first = s['first-entry']
return {s['last-generated-id'], s['length'], s['entries-added'] or -1, first and first[1] or ''}
`)

func look(ctx context.Context, client redis.UniversalClient, stream string) (sight, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	reply, err := lookScript.Run(ctx, client, []string{stream}).Slice()
	if err != nil || len(reply) == 0 {
		return sight{}, err
	}
	return parseSight(reply)
}

func parseSight(reply []any) (sight, error) {
	if len(reply) != 4 {
		return sight{}, errors.New("unexpected reply about a stream")
	}
	s := sight{exists: true}
	last, _ := reply[0].(string)
	first, _ := reply[3].(string)
	var okLast, okLength, okAdded bool
	s.last, okLast = redislink.ParseEntry(last)
	s.length, okLength = reply[1].(int64)
	s.added, okAdded = reply[2].(int64)
	okFirst := s.length == 0
	if !okFirst {
		s.first, okFirst = redislink.ParseEntry(first)
	}
	if !okLast || !okLength || !okAdded || !okFirst {
		return sight{}, errors.New("unexpected reply about a stream")
	}
	return s, nil
}
