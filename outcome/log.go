package outcome

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	// maxPending is how many outcomes wait to be written, beside the batch that
	// is being written; then the oldest is dropped for a new one.
	maxPending = 5000
	// A batch is written when it is full, or batchAfter after the first of it.
	maxBatch   = 500
	batchAfter = 50 * time.Millisecond
	lastWrites = 2 * time.Second // for all of them when Run ends; what is left then is dropped

	backoffFirst = 200 * time.Millisecond // before a failed batch is tried again, doubled up to
	backoffMax   = 10 * time.Second
)

// Options says what a [Log] shares, and where.
type Options struct {
	Store  Store
	Agent  relay.AgentName // whose outcomes are noted
	Secret string          // signs the lines; "" leaves them unsigned and takes unsigned ones
	Logger *slog.Logger    // nil discards
}

// Log notes the outcomes at one bot, and reads those at all bots. It is safe
// for concurrent use.
type Log struct {
	opts Options
	log  *slog.Logger
	some chan struct{} // something is pending
	many chan struct{} // a full batch is

	mu      sync.Mutex
	pending []*Outcome // oldest first; guarded by mu, as the next two are
	byKey   map[key]*Outcome
	writing []Outcome // the batch that was taken from pending and is not written yet

	lines [][]byte // of writing; of the goroutine that writes

	viewing sync.Mutex
	view    *view       // nil: nobody looks on; guarded by viewing, as the rest is
	users   int         // how many need view now
	idle    *time.Timer // ends view when nobody needed it for linger
	opened  chan struct{}
	watches map[*func(Outcome)]struct{}

	showing sync.Mutex // held while an outcome is shown: one at a time, in order

	stats counters
}

// Stats counts since the start of the process.
type Stats struct {
	Written int64 `json:"written"` // outcomes
	Dropped int64 `json:"dropped"` // outcomes that were never written: too many waited, or one was none
	Failed  int64 `json:"failed"`  // writes of a batch; it is tried again
	Skipped int64 `json:"skipped"` // lines read that are no outcomes, or not signed; each time one is read
	Pending int   `json:"pending"` // outcomes that wait to be written
}

type counters struct{ written, dropped, failed, skipped atomic.Int64 }

// New makes a Log that does nothing until it is run.
func New(opts Options) *Log {
	return &Log{
		opts:    opts,
		log:     cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		some:    make(chan struct{}, 1),
		many:    make(chan struct{}, 1),
		opened:  make(chan struct{}, 1),
		byKey:   map[key]*Outcome{},
		watches: map[*func(Outcome)]struct{}{},
	}
}

// Note tells what became of a message at this agent's bot. It does not wait and
// does not fail: an outcome that cannot be shared is counted. Agent is this
// agent's, and At is now, where they are not given.
func (l *Log) Note(o Outcome) {
	now := time.Now()
	o.Agent = cmp.Or(o.Agent, l.opts.Agent)
	o.Channel = cmp.Or(o.Channel, relay.DefaultChannel)
	o.At = cmp.Or(o.At, relay.MillisOf(now))
	o, err := bounded(o, now)
	if err != nil {
		l.stats.dropped.Add(1)
		l.log.Debug("an outcome is none", "err", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := o.key()
	if known, ok := l.byKey[k]; ok {
		*known = merge(*known, o)
		return
	}
	if len(l.pending) == maxPending {
		l.stats.dropped.Add(1)
		delete(l.byKey, l.pending[0].key())
		l.pending = slices.Delete(l.pending, 0, 1)
	}
	l.byKey[k] = &o
	l.pending = append(l.pending, &o)
	switch len(l.pending) {
	case 1:
		wait.Wake(l.some)
	case maxBatch:
		wait.Wake(l.many)
	}
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	c := &l.stats
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Written: c.written.Load(), Dropped: c.dropped.Load(), Failed: c.failed.Load(), Skipped: c.skipped.Load(),
		Pending: len(l.pending) + len(l.writing),
	}
}

// Run writes what is noted, and reads while somebody looks on, until ctx is
// done. The last writes get 2 s. It may be run again afterwards.
func (l *Log) Run(ctx context.Context) error {
	outer := ctx
	ctx, fail := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { fail(l.follow(ctx)) })
	l.write(ctx)
	reading.Wait()
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// write writes batches until ctx is done, and then what is left.
func (l *Log) write(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-l.some:
			gather(ctx, l.many)
		case <-ctx.Done():
		}
		l.drain(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer cancel()
	var err error
	for batch := l.batch(); len(batch) > 0 && err == nil; batch = l.batch() {
		if err = l.opts.Store.Append(ctx, batch); err == nil {
			l.wrote()
		}
	}
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := len(l.writing) + len(l.pending)
	l.log.Warn("the last outcomes are not shared", "outcomes", left, "err", err)
	l.stats.failed.Add(1)
	l.stats.dropped.Add(int64(left))
	l.writing, l.lines, l.pending = nil, nil, nil
	clear(l.byKey)
}

// gather waits until a batch is worth writing.
func gather(ctx context.Context, full <-chan struct{}) {
	timer := time.NewTimer(batchAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-full:
	case <-ctx.Done():
	}
}

// drain writes until nothing is pending or ctx is done. A store that is away is
// tried again and again, with ever longer pauses.
func (l *Log) drain(ctx context.Context) {
	failed := false
	for pauses := wait.NewBackoff(backoffFirst, backoffMax); ctx.Err() == nil; {
		batch := l.batch()
		if len(batch) == 0 {
			return
		}
		err := l.opts.Store.Append(ctx, batch)
		if err == nil {
			l.wrote()
			if failed {
				l.log.Info("outcomes are shared again")
			}
			failed = false
			pauses.Reset()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		l.stats.failed.Add(1)
		if !failed {
			l.log.Warn("outcomes cannot be shared; trying again", "err", err)
		}
		failed = true
		_ = pauses.Sleep(ctx)
	}
}

// batch returns the lines of the batch that is to be written: the one that was
// not written, or the oldest that are pending.
func (l *Log) batch() [][]byte {
	for len(l.lines) == 0 {
		l.mu.Lock()
		n := min(len(l.pending), maxBatch)
		l.writing = make([]Outcome, n)
		for i, o := range l.pending[:n] {
			l.writing[i] = *o
			delete(l.byKey, o.key())
		}
		l.pending = slices.Delete(l.pending, 0, n)
		batch := l.writing // not changed any more
		l.mu.Unlock()
		if n == 0 {
			break
		}
		for i := range batch {
			line, err := encode(&batch[i], l.opts.Secret)
			if err != nil {
				l.stats.dropped.Add(1)
				continue
			}
			l.lines = append(l.lines, line)
		}
	}
	return l.lines
}

// wrote says that the batch was written; the next call of batch forgets it.
func (l *Log) wrote() {
	l.stats.written.Add(int64(len(l.lines)))
	l.lines = nil
	l.showWritten(l.writing)
}
