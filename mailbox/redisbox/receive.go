package redisbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
)

const (
	// block is how long a read waits for mail before the link and the stream
	// are looked at; it is answered within readLimit, or the link is dead.
	block     = time.Second
	readLimit = block + ioLimit
	// readCount is how many entries one read takes at most. A reply stands in
	// memory as a whole: 32 MiB where every envelope has the most it may have.
	readCount = 32

	readPool = 2 // connections of a Receive, beside the channels'
)

// reader is one run of Receive.
type reader struct {
	store *Store
	agent mailbox.AgentID
	inbox string
	take  func(mailbox.Item)
	// caughtUp is called, and then nil, when all that lay there at the start was shown.
	caughtUp func()

	client redis.UniversalClient
	cursor redislink.EntryID
	before sight
	looked time.Time

	began time.Time
	heard atomic.Int64 // when the channels' connection last gave a sign of life: nanoseconds since began
}

// Receive shows the inbox over connections of its own, and puts into it what
// foreign programs publish for the agent; see [mailbox.Store]. It returns at
// the first fault. Two Receives for one agent would each put a foreign message in.
func (s *Store) Receive(ctx context.Context, agent mailbox.AgentID, take func(mailbox.Item), looked func()) error {
	if err := mailbox.CheckAgent(agent); err != nil {
		return err
	}
	r := &reader{
		store: s, agent: agent, inbox: inboxKey(agent), take: take, caughtUp: looked,
		client: s.client(readPool), began: time.Now(),
	}
	err := r.run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("receive for %s: %w", agent, s.explain(err, usesStream(r.inbox)))
}

// run reads until something fails. A fault ends all connections: a dead link
// is seldom dead for one of them alone.
func (r *reader) run(outer context.Context) (err error) {
	ctx, fail := context.WithCancelCause(outer)
	channels := r.client.PSubscribe(ctx) // to nothing yet: no I/O
	var parts sync.WaitGroup
	parts.Go(func() {
		<-ctx.Done() // a blocked read ends only with its connection
		_ = channels.Close()
		_ = r.client.Close()
	})
	defer func() {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // the first fault, not what followed from it
		}
		fail(nil)
		parts.Wait()
	}()

	if err := r.look(ctx); err != nil {
		return err
	}
	if err := subscribe(ctx, channels); err != nil {
		return err
	}
	r.heard.Store(int64(time.Since(r.began)))
	parts.Go(func() { fail(r.listen(ctx, channels)) })
	parts.Go(func() { fail(r.watch(ctx, channels)) })
	return r.read(ctx)
}

// read shows what the stream has behind the cursor.
func (r *reader) read(ctx context.Context) error {
	for {
		if time.Since(r.looked) >= block {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
		entries, err := r.readSome(ctx)
		if err != nil {
			return err
		}
		if len(entries) == 0 && r.caughtUp != nil {
			r.caughtUp()
			r.caughtUp = nil
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			id, ok := redislink.ParseEntry(entry.ID)
			if !ok {
				return errors.New("unexpected id of an entry")
			}
			r.cursor = id
			r.before.read(id)
			r.take(item(entry))
		}
	}
}

// readSome waits for entries, up to block; none is no error. It does not wait
// before all that lay there at the start was shown.
func (r *reader) readSome(ctx context.Context) ([]redis.XMessage, error) {
	wait := block
	if r.caughtUp != nil {
		wait = -1
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	streams, err := r.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{r.inbox, r.cursor.String()}, Count: readCount, Block: wait,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) == 0 {
		return nil, err
	}
	return streams[0].Messages, nil
}

// look compares the stream with what it was, and begins anew on another one.
func (r *reader) look(ctx context.Context) error {
	now, err := look(ctx, r.client, r.inbox)
	if err != nil {
		return err
	}
	if now.replaces(r.before, r.cursor) {
		r.store.log.Warn("the inbox on redis is not the one that was read before; reading it from its beginning")
		r.cursor = redislink.EntryID{}
	}
	r.before, r.looked = now, time.Now()
	return nil
}
