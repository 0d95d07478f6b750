package outcome

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/wait"
)

const (
	// block is how long a read waits for something new before the stream is
	// looked at. A read is answered within block and ioLimit, or the link is dead.
	block = time.Second
	// readCount is how many entries one read takes at most. A reply stands in
	// memory as a whole: 4 MiB where every line has the most it may have.
	readCount = 256

	againFirst = 50 * time.Millisecond // between reading sessions, doubled up to
	againMax   = 5 * time.Second
)

// Follow reads the stream over a connection of its own.
func (r *Redis) Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error {
	s := &streamReader{store: r, take: take, caughtUp: caughtUp}
	failed := false
	for pauses := wait.NewBackoff(againFirst, againMax); ; {
		s.live = false
		err := s.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.live {
			failed = false
			pauses.Reset()
		}
		if !failed {
			r.log.Warn("outcomes of others cannot be read; trying again", "err", r.explain(err))
		}
		failed = true
		_ = pauses.Sleep(ctx)
	}
}

// streamReader is one run of Follow.
type streamReader struct {
	store    *Redis
	take     func([]byte)
	caughtUp func(bool)
	client   redis.UniversalClient

	at     redislink.EntryID // the last entry that was read
	last   redislink.EntryID // the last that was ever added, when that was looked at
	caught bool              // caughtUp was called
	whole  bool              // the stream held all that was ever added when it was first seen
	seen   bool              // it was seen
	live   bool              // a read of this session was answered
}

// session reads until something fails.
func (s *streamReader) session(ctx context.Context) error {
	s.client = s.store.client(1)
	stop := context.AfterFunc(ctx, func() { _ = s.client.Close() }) // a blocked read ends only with its connection
	defer func() {
		if stop() {
			_ = s.client.Close()
		}
	}()
	for idle := true; ; {
		if idle {
			if err := s.look(ctx); err != nil {
				return err
			}
		}
		entries, err := s.readSome(ctx)
		if err != nil {
			return err
		}
		s.live = true
		for _, e := range entries {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			id, ok := redislink.ParseEntry(e.ID)
			if !ok {
				return errors.New("unexpected id of an entry")
			}
			s.at = id
			s.hand(e)
		}
		if idle = len(entries) == 0; len(entries) < readCount || s.at.Compare(s.last) >= 0 {
			s.catchUp()
		}
	}
}

func (s *streamReader) hand(e redis.XMessage) {
	text, ok := e.Values[field].(string)
	if !ok || len(text) > maxLine {
		s.take(nil)
		return
	}
	s.take([]byte(text))
}

func (s *streamReader) catchUp() {
	if !s.caught {
		s.caught = true
		s.caughtUp(s.whole)
	}
}

// readSome waits for entries, up to block; none is no error.
func (s *streamReader) readSome(ctx context.Context) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, block+ioLimit)
	defer cancel()
	streams, err := s.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{s.store.key, s.at.String()}, Count: readCount, Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) == 0 {
		return nil, err
	}
	return streams[0].Messages, nil
}

// look begins anew where the stream is not the one that was read: its entries
// lie before the place of reading, or it is gone. One that holds nothing has
// been read.
func (s *streamReader) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := s.client.XInfoStream(ctx, s.store.key).Result()
	gone := err != nil && strings.Contains(err.Error(), "no such key")
	if err != nil && !gone {
		return err
	}
	s.last = redislink.EntryID{}
	if !gone {
		var ok bool
		if s.last, ok = redislink.ParseEntry(info.LastGeneratedID); !ok {
			return errors.New("unexpected id of an entry")
		}
	}
	if s.last.Compare(s.at) < 0 {
		s.store.log.Warn("the outcomes on redis are not those that were read before; reading them from their beginning")
		s.at = redislink.EntryID{}
	}
	if !s.seen { // a server before version 7 does not count what was added
		s.seen, s.whole = true, gone || info.EntriesAdded == info.Length
	}
	if s.last == s.at {
		s.catchUp()
	}
	return nil
}
