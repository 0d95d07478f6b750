package redisrelay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	saveAfter = 200 * time.Millisecond // how old the stored position may get,
	saveCount = 1000                   // or after so many settled lines

	maxFileName = 200 // longer names of files are replaced by a hash
)

// subscription is what Subscribe adds to reading: the stored position, the window of
// unsettled lines, the border of history, and what other programs publish.
type subscription struct {
	q       *Queue
	handler relay.Handler
	root    *os.Root // the folder of the cursor
	file    string

	handing sync.Mutex // held while the handler runs: the stream and the channel take turns
	foreign *foreign
	window  *relay.Window[place]
	history atomic.Pointer[redislink.EntryID]

	saver  *wait.Saver
	saved  *cursor // nil: nothing yet; of the goroutine that saves
	broken bool    // the last save failed; of the same
}

// Subscribe reads the stream from this agent's position, and the channel for
// what other programs publish; see [relay.Subscriber]. Of a foreign
// program's messages up to 1,000 (8 MiB) wait for the handler, and the
// oldest is dropped for a new one; they have no position and are not handed
// over again after a restart.
//
// It returns an error only when the folder of the cursor cannot be used, or
// when it is running already.
func (q *Queue) Subscribe(ctx context.Context, h relay.Handler) error {
	if q.opts.Agent == "" || q.opts.Dir == "" {
		return errors.New("redis queue: Agent and Dir are needed to subscribe")
	}
	root, err := safefile.OpenDir(filepath.Join(q.opts.Dir, "offsets"))
	if err != nil {
		return fmt.Errorf("redis queue: %w", err)
	}
	defer root.Close()
	name := fileName(q.opts.Agent, q.opts.Channel)
	s := &subscription{
		q: q, handler: h, root: root, file: name + ".json", foreign: newForeign(),
		saver: wait.NewSaver(saveCount, saveAfter, q.opts.Block),
	}
	r := &reader{q: q, began: time.Now(), sub: s}
	if r.at, r.fresh, err = s.load(); err != nil {
		return fmt.Errorf("redis queue: %w", err)
	}
	if r.fresh {
		r.began, r.tried = s.waitingSince(r.began)
	}
	ctx, done, err := q.run(ctx, r)
	if err != nil {
		return fmt.Errorf("redis queue: subscribe: %w", err)
	}
	defer done()
	instance, release := claimInstance(root, name+".instance")
	defer release()

	var parts sync.WaitGroup
	parts.Go(func() { s.saver.Run(ctx, s.store) })
	parts.Go(func() { s.handForeign(ctx) })
	parts.Go(func() { q.announce(ctx, instance) })
	r.sessions(ctx)
	parts.Wait()
	if !r.fresh { // else the next start is the first again
		_ = s.store() // logged
	}
	return nil
}

// fileName is the stem of an agent's files for one channel.
func fileName(agent, channel string) string {
	name := safefile.Name(agent) + ".redis-" + safefile.Name(channel)
	if len(name) > maxFileName {
		name = safefile.Name(agent+"\n"+channel) + ".redis"
	}
	return name
}

// hand calls the handler, unless ctx is done: then the line stays unsettled.
func (s *subscription) hand(ctx context.Context, d relay.Delivery) {
	s.handing.Lock()
	defer s.handing.Unlock()
	if ctx.Err() == nil {
		s.handler(ctx, d)
	}
}

// load reads the stored position; fresh: none was ever stored. A file that cannot be
// understood means the stream's beginning: what was handled already is a repeat, nothing
// is lost.
func (s *subscription) load() (at place, fresh bool, err error) {
	data, err := safefile.ReadFile(s.root, s.file)
	c := cursor{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fresh = true
	case err != nil:
		return at, false, fmt.Errorf("read cursor: %w", err)
	default:
		if c, err = parseCursor(data); err != nil {
			s.q.log.Error("the stored position is unreadable; reading the stream from its beginning",
				"file", s.file, "err", err)
		}
	}
	s.history.Store(&c.History)
	s.window = relay.NewWindow(c.place)
	return c.place, fresh, nil
}

// waitingFile is, beside the position that was never stored, since when this agent has waited
// for Redis: what is sent from then on is news to it, also after a restart.
const waitingFile = ".waiting"

// waitingSince is that time; earlier reports whether an earlier process has noted it.
func (s *subscription) waitingSince(now time.Time) (since time.Time, earlier bool) {
	if data, err := safefile.ReadFile(s.root, s.file+waitingFile); err == nil {
		if ms, err := strconv.ParseInt(string(data), 10, 64); err == nil && ms > 0 && ms <= now.UnixMilli() {
			return time.UnixMilli(ms), true
		}
	}
	text := strconv.AppendInt(nil, now.UnixMilli(), 10)
	if err := safefile.ReplaceFast(s.root, s.file+waitingFile, text); err != nil {
		s.q.log.Warn("until redis is reachable, a restart makes earlier messages history", "err", err)
	}
	return now, false
}

// seen ends the waiting.
func (s *subscription) seen() {
	if s.store() == nil { // else it is logged, and the next start is the first again
		_ = s.root.Remove(s.file + waitingFile) // without effect once a position is stored
	}
}

func (s *subscription) unsettled() int { return s.foreign.window.Unsettled() + s.window.Unsettled() }

// begin waits for room for an entry and returns what settles it.
func (s *subscription) begin(ctx context.Context, behind place, size int) (settled func(), err error) {
	settle, err := s.window.Begin(ctx, behind, size)
	return func() {
		settle()
		s.saver.Note()
	}, err
}

func (s *subscription) isHistory(id redislink.EntryID) bool {
	return id.Compare(*s.history.Load()) <= 0
}

// store writes the position if it moved. It is called by one goroutine at a time.
func (s *subscription) store() error {
	s.saver.Saved()
	at, _ := s.window.Position()
	c := cursor{place: at, History: *s.history.Load()}
	if s.saved != nil && c == *s.saved {
		return nil
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = safefile.ReplaceFast(s.root, s.file, data)
	}
	if err != nil && !s.broken {
		s.q.log.Error("the position cannot be stored; a restart repeats messages", "file", s.file, "err", err)
	}
	if s.broken = err != nil; !s.broken {
		s.saved = &c
	}
	return err
}
