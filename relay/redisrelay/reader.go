package redisrelay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	backoffFirst = 50 * time.Millisecond // between reading sessions, doubled up to
	backoffMax   = 2 * time.Second
)

var errClosed = errors.New("the queue is closed")

// reader reads the stream, for Subscribe from the stored position, for Follow from the
// oldest entry.
type reader struct {
	q     *Queue
	began time.Time

	sub      *subscription     // of Subscribe; nil: Follow runs, with the next two
	take     func(line []byte) // gets each line
	caughtUp func(whole bool)  // nil: it was called
	whole    bool              // at each look so far, all that was ever added was there
	seen     sight             // the last look

	at     place
	sum    string              // of the entry at.ID; "" if it is not known
	points relay.Points[point] // places that were read up to
	fresh  bool                // no position was ever stored, and the stream was not seen yet
	tried  bool                // a session failed before the stream was seen
	looked time.Time
	outage string // the fault that was logged and goes on

	mu    sync.Mutex
	state relay.Status // guarded by mu
}

// Follow reads the stream from its oldest entry; see [relay.Follower]. It fails only after
// Close.
func (q *Queue) Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error {
	r := &reader{q: q, began: time.Now(), take: take, caughtUp: caughtUp, whole: true, fresh: true}
	ctx, done, err := q.run(ctx, nil)
	if err != nil {
		return fmt.Errorf("redis queue: follow: %w", err)
	}
	defer done()
	r.sessions(ctx)
	return nil
}

// run begins a reading that Close ends and waits for: its ctx, and done, which says that it
// has ended. subscribed is the reader of Subscribe, of which one runs at a time.
func (q *Queue) run(ctx context.Context, subscribed *reader) (_ context.Context, done func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Err() != nil {
		return nil, nil, errClosed
	}
	if subscribed != nil && q.subscribed {
		return nil, nil, errors.New("it is running already")
	}
	if subscribed != nil {
		q.subscribed, q.reader = true, subscribed
	}
	q.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
		if subscribed != nil {
			q.mu.Lock()
			q.subscribed = false
			q.mu.Unlock()
		}
		q.running.Done()
	}, nil
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
	err = r.q.explain(err)
	r.note(false, err.Error())
	if r.outage != err.Error() {
		r.outage = err.Error()
		r.q.log.Error("the redis queue cannot be read; trying again", "err", err)
	}
}

func (r *reader) up() {
	r.note(true, "")
	if r.outage != "" {
		r.outage = ""
		r.q.log.Info("the redis queue can be read again")
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
	s.Unsettled = r.sub.unsettled()
	return s
}
