package redisrelay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	backoffFirst = 50 * time.Millisecond // between reading sessions, doubled up to
	backoffMax   = 5 * time.Second

	saveAfter = 200 * time.Millisecond // how old the stored position may get,
	saveCount = 1000                   // or after so many settled lines

	maxFileName = 200 // longer names of files are replaced by a hash
)

// reader is one run of Subscribe.
type reader struct {
	q       *Queue
	handler relay.Handler
	root    *os.Root // the folder of the cursor
	file    string
	began   time.Time

	handing sync.Mutex // held while the handler runs: the stream and the channel take turns
	window  *relay.Window[place]
	foreign *foreign

	// Of the goroutine that reads the stream.
	at      place
	fresh   bool // no position was ever stored, and the stream was not seen yet
	tried   bool // a session failed before the stream was seen
	looked  time.Time
	outage  string // the fault that was logged and goes on
	history atomic.Pointer[streamID]

	unsaved atomic.Int64
	settled chan struct{} // something was settled
	many    chan struct{} // saveCount lines were settled
	saved   *cursor       // nil: nothing yet; of the goroutine that saves
	broken  bool          // the last save failed; of the same

	mu    sync.Mutex
	state relay.Status // guarded by mu
}

// Subscribe reads the stream from this agent's position, and the channel for
// what foreign programs publish; see [relay.Subscriber]. Of a foreign
// program's messages up to 1,000 (8 MiB) wait for the handler, and the
// oldest is dropped for a new one; they have no position and are not handed
// over again after a restart.
//
// It returns an error only when the folder of the cursor cannot be used, or
// when it is running already.
func (q *Queue) Subscribe(ctx context.Context, h relay.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.opts.Agent == "" || q.opts.Dir == "" {
		return errors.New("redis queue: Agent and Dir are needed to subscribe")
	}
	r := &reader{
		q: q, handler: h, began: time.Now(), foreign: newForeign(),
		settled: make(chan struct{}, 1), many: make(chan struct{}, 1),
	}
	ended := make(chan struct{})
	defer close(ended)
	q.mu.Lock()
	if q.closed || q.cancel != nil {
		defer q.mu.Unlock()
		if q.closed {
			return nil
		}
		return errors.New("redis queue: Subscribe is running already")
	}
	q.cancel, q.ended, q.reader = cancel, ended, r
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		q.cancel = nil
		q.mu.Unlock()
	}()
	return r.run(ctx)
}

func (r *reader) run(ctx context.Context) error {
	var err error
	if r.root, err = safefile.OpenDir(filepath.Join(r.q.opts.Dir, "offsets")); err != nil {
		return fmt.Errorf("redis queue: %w", err)
	}
	defer r.root.Close()
	name := fileName(r.q.opts.Agent, r.q.opts.Channel)
	r.file = name + ".json"
	if err := r.load(); err != nil {
		return fmt.Errorf("redis queue: %w", err)
	}
	instance, release := claimInstance(r.root, name+".instance")
	defer release()

	var parts sync.WaitGroup
	parts.Go(func() { r.save(ctx) })
	parts.Go(func() { r.handForeign(ctx) })
	parts.Go(func() { r.q.announce(ctx, instance) })
	r.sessions(ctx)
	parts.Wait()
	if !r.fresh { // else the next start is the first again
		r.store()
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

// sessions reads until ctx is done, and waits out the faults between.
func (r *reader) sessions(ctx context.Context) {
	for pauses := wait.NewBackoff(backoffFirst, backoffMax); ; {
		live, err := r.session(ctx)
		if ctx.Err() != nil {
			r.note(false, "")
			return
		}
		r.tried = true
		if live {
			pauses.Reset()
			r.q.stats.reconnects.Add(1)
		}
		r.down(err)
		if pauses.Sleep(ctx) != nil {
			return
		}
	}
}

// down shows a fault, and logs it unless it is the one that was there before.
func (r *reader) down(err error) {
	err = explain(err)
	r.note(false, err.Error())
	if r.outage != err.Error() {
		r.outage = err.Error()
		r.q.log.Error("redis queue is not read; trying again", "err", err)
	}
}

func (r *reader) up() {
	r.note(true, "")
	if r.outage != "" {
		r.outage = ""
		r.q.log.Info("redis queue is read again")
	}
}

func (r *reader) note(connected bool, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Connected, r.state.Reading, r.state.Error = connected, connected, fault
}

func (r *reader) noteLag(lag int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Lag = lag
}

// noteRead counts one entry less to be read; the next look corrects it.
func (r *reader) noteRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Lag = max(0, r.state.Lag-1)
}

func (r *reader) status() relay.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Unsettled = r.foreign.window.Unsettled()
	if r.window != nil {
		s.Unsettled += r.window.Unsettled()
	}
	return s
}

// hand calls the handler, unless ctx is done: then the line stays unsettled.
func (r *reader) hand(ctx context.Context, d relay.Delivery) {
	r.handing.Lock()
	defer r.handing.Unlock()
	if ctx.Err() == nil {
		r.handler(ctx, d)
	}
}

// load reads the stored position. A file that cannot be understood means the
// stream's beginning: what was handled already is a repeat, nothing is lost.
func (r *reader) load() error {
	data, err := safefile.ReadFile(r.root, r.file)
	c := cursor{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.fresh = true
	case err != nil:
		return fmt.Errorf("read cursor: %w", err)
	default:
		if c, err = parseCursor(data); err != nil {
			r.q.log.Error("the stored position is unreadable; reading the stream from its beginning", "file", r.file, "err", err)
		}
	}
	r.at = c.place
	r.history.Store(&c.History)
	r.mu.Lock()
	r.window = relay.NewWindow(r.at)
	r.mu.Unlock()
	return nil
}

// noteSettled wakes the goroutine that saves.
func (r *reader) noteSettled() {
	if r.unsaved.Add(1) == saveCount {
		wait.Wake(r.many)
	}
	wait.Wake(r.settled)
}

// save stores the position soon after it moved.
func (r *reader) save(ctx context.Context) {
	timer := time.NewTimer(saveAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.settled:
		}
		timer.Reset(saveAfter)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.many:
		}
		r.store()
	}
}

// store writes the position if it moved. It is called by one goroutine at a time.
func (r *reader) store() {
	r.unsaved.Store(0)
	at, _ := r.window.Position()
	c := cursor{place: at, History: *r.history.Load()}
	if r.saved != nil && c == *r.saved {
		return
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = safefile.ReplaceFast(r.root, r.file, data)
	}
	if err != nil {
		if !r.broken {
			r.q.log.Error("the position is not stored; a restart repeats messages", "file", r.file, "err", err)
		}
		r.broken = true
		return
	}
	r.saved, r.broken = &c, false
}
