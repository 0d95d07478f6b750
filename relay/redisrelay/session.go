package redisrelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

// readCount is how many entries one read takes at most. A reply is in
// memory as a whole: 64 MiB where every line has the most it may have.
const readCount = 64

// connectLimit bounds the first exchange of a session: to find the server
// (Sentinel, Cluster), to connect, to look at the stream.
const connectLimit = 5 * time.Second

var errNoID = errors.New("unexpected id of a stream's entry")

// session reads over connections of its own until something fails, and says
// whether it got as far as reading. A fault ends all of its connections: a
// dead link is seldom dead for one of them alone.
func (r *reader) session(ctx context.Context) (live bool, err error) {
	outer := ctx
	ctx, fail := context.WithCancelCause(ctx)
	client := r.q.client(readPool, grace)
	var channel *redis.PubSub // nil: Follow does not hear the channel
	closing := []io.Closer{client}
	if r.sub != nil {
		channelClient := r.q.channelClient()
		channel = channelClient.Subscribe(ctx) // to nothing yet: no I/O
		closing = []io.Closer{channel, channelClient, client}
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		<-ctx.Done() // a blocked read ends only with its connection
		for _, c := range closing {
			_ = c.Close()
		}
	})
	defer func() {
		if cause := context.Cause(ctx); cause != nil && outer.Err() == nil {
			err = cause // the first fault, not what followed from it
		}
		fail(nil)
		parts.Wait()
	}()

	if err := r.connect(ctx, client, channel); err != nil {
		return false, redislink.Explain(err, r.q.words(r.q.conn.TLSConfig != nil))
	}
	if channel != nil {
		block := r.q.opts.Block
		parts.Go(func() { fail(redislink.Listen(ctx, channel, block, 2*block+grace, r.sub.heard)) })
	}
	r.up()
	return true, r.read(outer, ctx, client)
}

func (r *reader) connect(ctx context.Context, client redis.UniversalClient, channel *redis.PubSub) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if err := r.look(ctx, client); err != nil || channel == nil {
		return err
	}
	if err := channel.Subscribe(ctx, r.q.opts.Channel); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return redislink.Subscribed(ctx, channel, grace)
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
		block := r.q.opts.Block
		entries, err := redislink.Read(ctx, client, r.q.stream, r.at.ID, readCount, block, block+grace)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := r.hand(outer, ctx, entry); err != nil {
				return err
			}
		}
		if len(entries) > 0 {
			r.points.Note(point{r.at, r.sum})
		}
		if len(entries) < readCount && r.caughtUp != nil {
			at := r.at
			if err := r.lookWithin(ctx, client); err != nil { // was any of it lost before it was read?
				return err
			}
			if r.at.ID == at.ID { // else the stream was replaced
				r.noteEnd()
			}
		}
		if gather.due(len(entries), readCount, time.Now()) {
			time.Sleep(gatherFor)
		}
	}
}

// hand hands one entry over. outer is what the handler gets; ctx ends with the session.
func (r *reader) hand(outer, ctx context.Context, entry redis.XMessage) error {
	id, ok := redislink.ParseEntry(entry.ID)
	if !ok {
		return fmt.Errorf("read stream: %w", errNoID)
	}
	behind := place{ID: id, N: unknown}
	if r.at.N != unknown {
		behind.N = r.at.N + 1
	}
	text, ok := entry.Values["payload"].(string)
	settled := func() {}
	if r.sub != nil {
		var err error
		if settled, err = r.sub.begin(ctx, behind, len(text)); err != nil {
			return err
		}
	}
	r.at, r.sum = behind, redislink.Sum(bytesOf(text)) // before the handler owns the text
	r.noteRead()
	switch {
	case !ok || len(text) >= relay.MaxLine:
		r.q.stats.junk.Add(1)
		settled()
	case r.sub != nil:
		r.sub.hand(outer, relay.Delivery{Line: bytesOf(text), History: r.sub.isHistory(id), Settle: settled})
	case outer.Err() == nil:
		r.take(bytesOf(text))
	}
	return nil
}

// bytesOf returns the bytes of a text that the library made for this reader alone, which
// nobody else can see: a copy would be a good part of the memory that a message takes.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// noteEnd tells Follow's caller, once, that all that was there has been handed over.
func (r *reader) noteEnd() {
	if r.caughtUp != nil {
		r.caughtUp(r.whole)
		r.caughtUp = nil
	}
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
	replaced := s.replaces(r.at)
	r.whole = r.whole && !replaced && s.whole() && !s.lacks(r.seen)
	r.seen = s
	if replaced {
		if err := r.goBack(ctx, client, s); err != nil {
			return err
		}
	} else if r.sum != "" {
		r.points.Note(point{r.at, r.sum})
	}
	at, missed := s.adjust(r.at)
	if r.at = at; missed > 0 && r.sub != nil {
		r.q.stats.trimmed.Add(missed)
		r.q.log.Error("entries were trimmed from the stream before they were read; they are lost here: raise the cap",
			"entries", missed)
	}
	if r.sub != nil {
		r.sub.window.Skip(r.at)
	}
	r.looked = time.Now()
	lag := s.lag(r.at)
	r.noteLag(lag)
	if lag == 0 {
		r.noteEnd()
	}
	return nil
}

// point is a place with the [redislink.Sum] of its entry.
type point struct {
	place
	sum string
}

// goBack moves the position to what a stream that was replaced, of which s is a look, has of what was read: all up to
// the newest point that it still has, as after a failover to a replica that lacked the newest entries, or nothing.
func (r *reader) goBack(ctx context.Context, client redis.UniversalClient, s sight) error {
	points := r.points.Places()
	if over := slices.IndexFunc(points, func(p point) bool { return s.added != unknown && p.N > s.added }); over >= 0 {
		points = points[:over]
	}
	if s.holds { // only the numbers do not fit: those of the points do not either
		points = nil
	}
	n := 0
	if s.exists && len(points) > 0 {
		entries := make([]redislink.Entry, len(points))
		for i, p := range points {
			entries[i] = redislink.Entry{ID: p.ID, Sum: p.sum}
		}
		var err error
		if n, err = redislink.Newest(ctx, client, r.q.stream, entries); err != nil {
			return fmt.Errorf("look for what the stream still has: %w", err)
		}
	}
	r.points.Keep(n)
	r.q.stats.restarts.Add(1)
	if r.at, r.sum = (place{}), ""; n > 0 {
		r.at, r.sum = points[n-1].place, points[n-1].sum
		r.q.log.Warn("the stream has lost its newest entries; reading on behind those that it still has")
	} else {
		r.q.log.Warn("the stream was replaced; reading it from its beginning")
	}
	if r.sub != nil {
		// What came since is news, also where the clock of this server is behind the other one's.
		if id := r.at.ID; id.Compare(*r.sub.history.Load()) < 0 {
			r.sub.history.Store(&id)
		}
		r.sub.window.Skip(r.at)
	}
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

// firstSight counts what has left the stream already, and sets the border of history: all
// that the stream holds. If this reader had waited for Redis, then what was added
// since it began to wait was sent while it was up, and is news.
func (r *reader) firstSight(ctx context.Context, client redis.UniversalClient, s sight) error {
	border := s.last
	if r.sub != nil && r.tried {
		at, err := serverTime(ctx, client, r.began)
		if err != nil {
			return fmt.Errorf("ask for the time: %w", err)
		}
		began := redislink.EntryID{MS: uint64(max(0, at.UnixMilli()))}
		if began.Compare(border) < 0 {
			border = began
		}
	}
	if s.exists && s.added != unknown {
		r.at.N = s.gone()
	}
	r.fresh = false
	if r.sub != nil {
		r.sub.history.Store(&border)
		r.sub.window.Skip(r.at)
		r.sub.seen() // the goroutine that saves has had nothing to do yet
	}
	return nil
}

// see takes one look.
func (r *reader) see(ctx context.Context, client redis.UniversalClient) (sight, error) {
	v, holds, err := redislink.Look(ctx, client, r.q.stream, r.at.ID, r.sum)
	s := sight{exists: v.Exists, added: v.Added, length: v.Length, first: v.First, last: v.Last, holds: holds}
	if s.added < s.length || s.added == 0 && s.last != (redislink.EntryID{}) {
		s.added = unknown
	}
	return s, err
}
