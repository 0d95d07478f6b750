package redisbox

import (
	"context"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
)

// sight is what one look at a stream shows.
type sight redislink.Sight

// replaces reports whether the stream is another than the one that was seen
// before and read up to cursor, or an older state of it: then there may be
// entries before the cursor that were not shown. In one stream the last id and
// the count only rise, and what is added comes behind all that was there.
func (s sight) replaces(before sight, cursor redislink.EntryID) bool {
	switch {
	case !s.Exists:
		return before.Exists
	case s.Last.Compare(cursor) < 0:
		return true
	case s.Added != redislink.Uncounted && s.Added < before.Added:
		return true
	case s.Length == 0 || !before.Exists:
		return false
	case before.Length == 0:
		return s.First.Compare(before.Last) <= 0
	}
	return s.First.Compare(before.First) < 0
}

// read notes that the entry id was read, the first behind all that was seen
// before: of a stream that had none, it is the first.
func (s *sight) read(id redislink.EntryID) {
	if s.Length == 0 {
		s.Length, s.First = 1, id
	}
	s.Exists = true
}

func look(ctx context.Context, client redis.UniversalClient, stream string) (sight, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	s, _, err := redislink.Look(ctx, client, stream, redislink.EntryID{})
	return sight(s), err
}
