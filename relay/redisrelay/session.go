package redisrelay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

// readCount is how many entries one read takes at most. A reply stands in
// memory as a whole: 64 MiB where every line has the most it may have.
const readCount = 64

// connectLimit bounds the first exchange of a session: to find the server
// (Sentinel, Cluster), to connect, to look at the stream.
const connectLimit = 5 * time.Second

var (
	errSilent = &redislink.Fault{Says: "redis does not answer on the channel's connection"}
	errNoSub  = errors.New("unexpected reply to SUBSCRIBE")
)

// session reads over connections of its own until something fails, and says
// whether it got as far as reading. A fault ends all of its connections: a
// dead link is seldom dead for one of them alone.
func (r *reader) session(ctx context.Context) (live bool, err error) {
	outer := ctx
	ctx, fail := context.WithCancelCause(ctx)
	client, channelClient := r.q.client(readPool, grace), r.q.channelClient()
	channel := channelClient.Subscribe(ctx) // to nothing yet: no I/O
	var parts sync.WaitGroup
	parts.Go(func() {
		<-ctx.Done() // a blocked read ends only with its connection
		_ = channel.Close()
		_ = channelClient.Close()
		_ = client.Close()
	})
	defer func() {
		if cause := context.Cause(ctx); cause != nil && outer.Err() == nil {
			err = cause // the first fault, not what followed from it
		}
		fail(nil)
		parts.Wait()
	}()

	if err := r.connect(ctx, client, channel); err != nil {
		if r.q.conn.TLSConfig != nil && redislink.TimedOut(err) {
			err = &redislink.Fault{Says: "redis does not answer; perhaps it speaks no TLS: then use redis:// instead of rediss://", Err: err}
		}
		return false, err
	}
	var heard atomic.Int64 // nanoseconds since began
	heard.Store(int64(time.Since(r.began)))
	parts.Go(func() { fail(r.listen(ctx, channel, &heard)) })
	parts.Go(func() { fail(r.watch(ctx, channel, &heard)) })
	r.up()
	return true, r.read(outer, ctx, client)
}

func (r *reader) connect(ctx context.Context, client redis.UniversalClient, channel *redis.PubSub) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if err := r.look(ctx, client); err != nil {
		return err
	}
	if err := channel.Subscribe(ctx, r.q.opts.Channel); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	reply, err := channel.ReceiveTimeout(ctx, grace)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if _, ok := reply.(*redis.Subscription); !ok {
		return errNoSub
	}
	return nil
}

// read hands over what the stream has behind r.at. A handler that takes long
// holds this goroutine, not the liveness of the session: the channel's
// connection goes on to be watched.
func (r *reader) read(outer, ctx context.Context, client redis.UniversalClient) error {
	var gather gatherer
	for {
		if time.Since(r.looked) >= r.q.opts.Block {
			if err := r.lookWithin(ctx, client); err != nil {
				return err
			}
		}
		entries, err := r.readSome(ctx, client)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := r.take(outer, ctx, entry); err != nil {
				return err
			}
		}
		if gather.due(len(entries), readCount, time.Now()) {
			time.Sleep(gatherFor)
		}
	}
}

// readSome waits for entries, up to Block; none is no error.
func (r *reader) readSome(ctx context.Context, client redis.UniversalClient) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, r.q.opts.Block+grace)
	defer cancel()
	streams, err := client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{r.q.stream, r.at.ID.String()}, Count: readCount, Block: r.q.opts.Block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) == 0 {
		return nil, err
	}
	return streams[0].Messages, nil
}

// take hands one entry over. outer is what the handler gets; ctx ends with the
// session, and with it the wait for room.
func (r *reader) take(outer, ctx context.Context, entry redis.XMessage) error {
	id, err := parseID(entry.ID)
	if err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	behind := place{ID: id, N: unknown}
	if r.at.N != unknown {
		behind.N = r.at.N + 1
	}
	text, ok := entry.Values["payload"].(string)
	settle, err := r.window.Begin(ctx, behind, len(text))
	if err != nil {
		return err
	}
	r.at = behind
	r.noteRead()
	if !ok || len(text) >= relay.MaxLine {
		r.q.stats.junk.Add(1)
		settle()
		r.noteSettled()
		return nil
	}
	r.hand(outer, relay.Delivery{
		Line:    []byte(text),
		History: id.compare(*r.history.Load()) <= 0,
		Settle: func() {
			settle()
			r.noteSettled()
		},
	})
	return nil
}

func (r *reader) lookWithin(ctx context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return r.look(ctx, client)
}

// look compares the stream with the position: at the start of a session, and
// then once in a Block. On the first start of all it draws the line between
// history and news.
func (r *reader) look(ctx context.Context, client redis.UniversalClient) error {
	s, err := r.see(ctx, client)
	if err != nil {
		return fmt.Errorf("look at the stream: %w", err)
	}
	if r.fresh {
		if err := r.firstSight(ctx, client, s); err != nil {
			return err
		}
	}
	if s.replaces(r.at) {
		r.q.stats.restarts.Add(1)
		r.q.log.Warn("the stream is not the one that was read before; reading it from its beginning")
		r.at = place{}
		r.history.Store(&streamID{})
		r.window.Skip(r.at)
	}
	at, missed := s.adjust(r.at)
	if r.at = at; missed > 0 {
		r.q.stats.trimmed.Add(missed)
		r.q.log.Error("entries were trimmed from the stream before they were read; they are lost here: raise the cap", "entries", missed)
	}
	r.window.Skip(r.at)
	r.looked = time.Now()
	r.noteLag(s.lag(r.at))
	return nil
}

// serverTime is a time of this machine by the server's clock: not later than that, so
// that what was sent afterwards counts as news, and earlier by what the quickest of
// three answers took.
func serverTime(ctx context.Context, client redis.UniversalClient, local time.Time) (at time.Time, err error) {
	quickest := time.Duration(math.MaxInt64)
	for range 3 {
		asked := time.Now()
		now, err := client.Time(ctx).Result()
		if err != nil {
			return at, err
		}
		if took := time.Since(asked); took < quickest {
			quickest, at = took, now.Add(local.Sub(asked)-took)
		}
	}
	return at, nil
}

// firstSight sets the border of history: all that the stream holds. If this
// reader had waited for Redis, then what was added since it began to wait was
// sent while it was up, and is news.
func (r *reader) firstSight(ctx context.Context, client redis.UniversalClient, s sight) error {
	border := s.last
	if r.tried {
		at, err := serverTime(ctx, client, r.began)
		if err != nil {
			return fmt.Errorf("ask for the time: %w", err)
		}
		began := streamID{ms: uint64(max(0, at.UnixMilli()))}
		if began.compare(border) < 0 {
			border = began
		}
	}
	r.history.Store(&border)
	if s.exists && s.added != unknown {
		r.at.N = s.gone()
	}
	r.fresh = false
	r.window.Skip(r.at)
	r.store() // the goroutine that saves has had nothing to do yet
	return nil
}

// see takes one look, in one step of the server.
func (r *reader) see(ctx context.Context, client redis.UniversalClient) (sight, error) {
	var info *redis.XInfoStreamCmd
	var entry *redis.XMessageSliceCmd
	at := r.at.ID.String()
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		info = p.XInfoStream(ctx, r.q.stream)
		entry = p.XRangeN(ctx, r.q.stream, at, at, 1)
		return nil
	})
	if e := info.Err(); e != nil && strings.Contains(e.Error(), "no such key") {
		return sight{}, entry.Err()
	}
	if err != nil {
		return sight{}, err
	}
	v := info.Val()
	s := sight{exists: true, added: v.EntriesAdded, length: v.Length, holds: len(entry.Val()) > 0}
	if s.added < s.length || s.added == 0 && v.LastGeneratedID != "0-0" {
		s.added = unknown
	}
	if s.last, err = parseID(v.LastGeneratedID); err != nil {
		return sight{}, err
	}
	if v.Length > 0 {
		if s.first, err = parseID(v.FirstEntry.ID); err != nil {
			return sight{}, err
		}
	}
	return s, nil
}
