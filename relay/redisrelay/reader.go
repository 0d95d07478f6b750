package redisrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	backoffFirst = 50 * time.Millisecond // between reading sessions, doubled up to
	backoffMax   = 2 * time.Second

	// connectLimit bounds the first exchange of a session: to find the server
	// (Sentinel, Cluster), to connect, to look at the stream.
	connectLimit = 5 * time.Second

	// readCount is how many entries one read takes at most. A reply is in
	// memory as a whole: 64 MiB where every line has the most it may have.
	readCount = 64

	// gatherFor is the pause after a read that gave some entries: under load most of the work of a message is being
	// woken for it. A message on its own never waits.
	gatherFor = time.Millisecond
)

// reader reads the stream from the stored position.
type reader struct {
	q       *Queue
	handle  relay.Handler
	handing sync.Mutex // held while handle runs: the stream and the channel take turns
	window  *relay.Window[place]
	foreign *foreign

	root   *os.Root // the folder of the cursor
	file   string   // the cursor's
	saver  *wait.Saver
	saved  cursor // of the goroutine that saves; one that waits is none
	broken bool   // the last save failed; of the same

	at     place
	looked time.Time
	waited bool // Redis was away since the first start

	// Only the goroutine that reads writes these; guarded by q.mu for all others.
	state relay.Status
	since cursor // its place is not used
}

// Subscribe reads the stream from this agent's position, and, without
// Options.Stream, the channel for what other programs publish; see
// [relay.Subscriber]. Of a foreign program's messages up to 1,000 (8 MiB)
// wait for the handler, and the oldest is dropped for a new one; they have no
// position and are not handed over again after a restart.
//
// It returns an error only when the folder of the cursor cannot be used, or
// when it is running already.
func (q *Queue) Subscribe(ctx context.Context, h relay.Handler) error {
	if q.opts.Agent == "" || q.opts.Dir == "" {
		return errors.New("redis queue: Agent and Dir are needed to subscribe")
	}
	if !q.subscribed.CompareAndSwap(false, true) {
		return errors.New("redis queue: subscribe: it is running already")
	}
	defer q.subscribed.Store(false)
	root, err := safefile.OpenDir(filepath.Join(q.opts.Dir, "offsets"))
	if err != nil {
		return fmt.Errorf("redis queue: %w", err)
	}
	defer root.Close()
	r := q.newReader(h)
	r.root, r.file = root, safefile.Name(q.opts.Agent+".redis-"+cmp.Or(q.opts.Stream, q.opts.Channel))+".json"
	if err := r.load(); err != nil {
		return fmt.Errorf("redis queue: read the position: %w", err)
	}
	q.mu.Lock()
	q.reader = r
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.closed, cancel)()
	var parts sync.WaitGroup
	parts.Go(func() { r.saver.Run(ctx, r.store) })
	parts.Go(func() { r.handForeign(ctx) })
	if q.opts.Stream == "" {
		parts.Go(func() { q.announce(ctx) })
	}
	r.sessions(ctx)
	parts.Wait()
	_ = r.store() // logs its error
	return nil
}

func (q *Queue) newReader(h relay.Handler) *reader {
	return &reader{q: q, handle: h, window: relay.NewWindow(place{}), foreign: newForeign(),
		saver: wait.NewSaver(saveAfter, q.opts.Block), saved: cursor{Waits: true}}
}

// sessions reads until ctx is done, and waits out the faults between.
func (r *reader) sessions(ctx context.Context) {
	pauses := wait.NewBackoff(backoffFirst, backoffMax)
	for ctx.Err() == nil {
		err := r.q.explain(r.session(ctx, pauses.Reset))
		if ctx.Err() != nil {
			break
		}
		if r.state.Connected {
			r.q.stats.reconnects.Add(1)
		}
		if r.state.Error != err.Error() {
			r.q.log.Error("the redis queue cannot be read; trying again", "err", err)
		}
		r.show(func() { r.state.Connected, r.state.Reading, r.state.Error = false, false, err.Error() })
		if r.since.Waits && !r.waited {
			r.waited = true
			_ = r.store() // logs its error
		}
		_ = pauses.Sleep(ctx)
	}
	r.show(func() { r.state.Connected, r.state.Reading, r.state.Error = false, false, "" })
}

// show changes what others see.
func (r *reader) show(change func()) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	change()
}

// session reads over connections of its own until something fails, and calls up when it begins to read. A
// fault ends all of its connections: a dead link is seldom dead for one of them alone.
func (r *reader) session(outer context.Context, up func()) error {
	parts, ctx := errgroup.WithContext(outer)
	client := redislink.NewClient(r.q.options(readPool, grace))
	channels := r.q.channelClient()
	channel := channels.Subscribe(ctx) // to nothing yet: no I/O
	parts.Go(func() error {
		<-ctx.Done() // a blocked read ends only with its connection
		return errors.Join(channel.Close(), channels.Close(), client.Close())
	})
	parts.Go(func() error {
		connecting, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		if err := r.look(connecting, client); err != nil {
			return err
		}
		if r.q.opts.Stream == "" {
			if err := channel.Subscribe(connecting, r.q.opts.Channel); err != nil {
				return err
			}
			if err := redislink.Subscribed(connecting, channel, grace); err != nil {
				return err
			}
			block := r.q.opts.Block
			parts.Go(func() error { return redislink.Listen(ctx, channel, block, 2*block+grace, r.heard) })
		}
		up()
		if r.state.Error != "" {
			r.q.log.Info("the redis queue can be read again")
		}
		r.show(func() { r.state.Connected, r.state.Reading, r.state.Error = true, true, "" })
		return r.read(outer, ctx, client)
	})
	return parts.Wait() // the first fault, not what followed from it
}

// read hands over what the stream has behind r.at. A handler that takes long
// holds this goroutine, not the liveness of the session: the channel's
// connection goes on to be watched.
func (r *reader) read(outer, ctx context.Context, client redis.UniversalClient) error {
	for {
		if time.Since(r.looked) >= r.q.opts.Block {
			if err := r.look(ctx, client); err != nil {
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
		if len(entries) > 1 && len(entries) < readCount {
			time.Sleep(gatherFor)
		}
	}
}

// hand hands one entry over. outer is what the handler gets; ctx ends with the session.
func (r *reader) hand(outer, ctx context.Context, entry redis.XMessage) error {
	id, _ := redislink.ParseEntry(entry.ID) // Redis gives no other texts
	text, ok := entry.Values["payload"].(string)
	line := []byte(text)
	behind := place{ID: id, Sum: sum(line)}
	settle, err := r.window.Begin(ctx, behind, len(line))
	if err != nil {
		return err
	}
	r.at = behind
	settled := func() {
		settle()
		r.saver.Note()
	}
	if !ok || len(line) >= relay.MaxLine {
		r.q.stats.junk.Add(1)
		settled()
		return nil
	}
	r.give(outer, relay.Delivery{Line: line, History: id.Compare(r.since.History) <= 0, Settle: settled})
	return nil
}

// give calls the handler, unless ctx is done: then the line stays unsettled.
func (r *reader) give(ctx context.Context, d relay.Delivery) {
	r.handing.Lock()
	defer r.handing.Unlock()
	if ctx.Err() == nil {
		r.handle(ctx, d)
	}
}

// look compares the stream with the position: at the start of a session, and then once in a Block. On the first
// start of all it draws the line between history and news.
func (r *reader) look(ctx context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	s, err := look(ctx, client, r.q.stream, r.at.ID)
	if err != nil {
		return err
	}
	r.looked = time.Now()
	if r.since.Waits {
		border := s.last
		if began := r.since.History; r.waited && began.Compare(border) < 0 {
			border = began // what was added since was sent while this reader was up
		}
		r.show(func() { r.since.History, r.since.Waits = border, false })
		_ = r.store() // logs its error
	}
	if r.at != (place{}) && r.at != s.at {
		if s.length >= r.q.opts.MaxLen && s.at.ID == (redislink.EntryID{}) {
			r.q.stats.trimmed.Add(1)
			r.q.log.Error("entries were trimmed from the stream before they were read; they are lost here: " +
				"this sidecar was away, or too slow, for longer than the stream reaches back")
		} else {
			r.q.stats.restarts.Add(1)
			r.q.log.Warn("the stream was replaced, or has lost entries; reading it from its beginning")
			// What came since is news, also where the clock of this server is behind the other one's.
			r.show(func() { r.since.History = redislink.EntryID{} })
		}
		r.at = place{}
		r.window.Skip(r.at)
	}
	r.show(func() { r.state.Lag = s.lag(r.at.ID) })
	return nil
}
