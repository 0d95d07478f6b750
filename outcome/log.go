package outcome

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
)

const (
	// maxPending is how many outcomes may wait to be written, which takes long only
	// while the disk cannot be written; then a new one replaces the oldest.
	maxPending = 5000
	// Unsettled outcomes are written noteAfter after the first of them.
	noteAfter  = 50 * time.Millisecond
	lastWrites = 2 * time.Second // for unpublished outcomes when Run ends

	backoffFirst = 200 * time.Millisecond // pause after a failed write, doubled up to backoffMax
	backoffMax   = 10 * time.Second
)

// BoxOptions are the options of the outbox that a [Log] writes to: it keeps about 8 MiB,
// or 20,000 outcomes, while the queue is unreachable, and then drops the oldest. Outcomes
// of the last keepFor are published again if the queue lost them.
func BoxOptions(secret string, keepFor time.Duration, logger *slog.Logger) outbox.Options {
	return outbox.Options{Secret: secret, KeepFor: keepFor, Size: 8 << 20, Drop: true, Gather: 20 * time.Millisecond,
		At: noted, Logger: logger}
}

// Options of a [Log]. Box and Queue are required.
type Options struct {
	Box    *outbox.Box // see [BoxOptions]
	Queue  Queue
	Agent  relay.AgentName // the agent whose outcomes are noted
	Secret string          // lines that are not signed with it are skipped; "": none are
	Logger *slog.Logger    // nil discards
}

// Queue carries the outcomes between sidecars.
type Queue interface {
	relay.Publisher
	relay.Follower
}

// Log notes the outcomes at one bot, and reads those at all bots. It is safe
// for concurrent use.
type Log struct {
	opts Options
	log  *slog.Logger
	some chan struct{} // signals that pending is not empty

	writing sync.Mutex // held while outcomes are written, one batch at a time

	mu      sync.Mutex
	pending []*Outcome // not written yet, oldest first; guarded by mu, as the rest is
	byKey   map[key]*Outcome
	due     []*Outcome // taken from pending, to be written now or being written
	failing bool       // the last write failed

	viewing sync.Mutex
	view    *view       // nil without viewers; guarded by viewing, as the rest is
	users   int         // how many calls need view now
	idle    *time.Timer // ends view when it was unused for viewFor
	opened  chan struct{}
	watches map[*func(Outcome)]struct{}

	showing sync.Mutex // held while an outcome is passed to watchers: one at a time, in order

	stats counters
}

// Stats counts since the start of the process.
type Stats struct {
	Written int64 `json:"written"` // outcomes
	Dropped int64 `json:"dropped"` // outcomes never published: too many waited, or one was invalid
	Failed  int64 `json:"failed"`  // failed attempts to write or publish outcomes; each is retried
	Skipped int64 `json:"skipped"` // lines read that are not outcomes, or not signed; each time one is read
	Pending int   `json:"pending"` // outcomes that wait to be published
}

type counters struct{ written, dropped, failed, skipped atomic.Int64 }

// New returns a Log that neither writes nor reads until Run.
func New(opts Options) *Log {
	return &Log{
		opts:    opts,
		log:     cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		some:    make(chan struct{}, 1),
		opened:  make(chan struct{}, 1),
		byKey:   map[key]*Outcome{},
		watches: map[*func(Outcome)]struct{}{},
	}
}

// Note adds to the outcome of a message at this agent's bot; [Log.Settle] or [Log.Run]
// writes it. It does not wait or fail: an outcome that cannot be published is counted.
// Agent defaults to this agent, and At to now.
func (l *Log) Note(o Outcome) {
	now := time.Now()
	o.Agent = cmp.Or(o.Agent, l.opts.Agent)
	o.Channel = cmp.Or(o.Channel, relay.DefaultChannel)
	o.At = cmp.Or(o.At, relay.MillisOf(now))
	o, err := bounded(o, now)
	if err != nil {
		l.stats.dropped.Add(1)
		l.log.Debug("an outcome is invalid", "err", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(&o)
	if len(l.pending) == 1 {
		wait.Wake(l.some)
	}
}

// add adds o to pending. The caller holds mu.
func (l *Log) add(o *Outcome) {
	k := o.key()
	if known, ok := l.byKey[k]; ok {
		*known = merge(*known, *o)
		return
	}
	if len(l.pending) == maxPending {
		l.stats.dropped.Add(1)
		delete(l.byKey, l.pending[0].key())
		l.pending = slices.Delete(l.pending, 0, 1)
	}
	l.byKey[k] = o
	l.pending = append(l.pending, o)
}

// Settle writes the noted outcome of a message at this agent's bot at once: when it
// returns, the outcome will be published even if this process dies. Concurrent calls
// share a write. If the disk cannot be written, such as a full one, it does not wait: the
// outcome stays pending, and Run retries.
func (l *Log) Settle(channel string, chat relay.ChatID, msg relay.MessageID) {
	k := key{chatKey{cmp.Or(channel, relay.DefaultChannel), chat}, msg, l.opts.Agent}
	l.mu.Lock()
	failing := l.failing
	if o, ok := l.byKey[k]; ok && !failing {
		delete(l.byKey, k)
		for i, p := range slices.Backward(l.pending) { // it is likely one of the newest
			if p == o {
				l.pending = slices.Delete(l.pending, i, i+1)
				break
			}
		}
		l.due = append(l.due, o)
	}
	l.mu.Unlock()
	if !failing {
		_ = l.write() // also for outcomes that Run has taken and not yet written; errors are counted and logged
	}
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	c, box := &l.stats, l.opts.Box.Stats()
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Written: c.written.Load(), Dropped: c.dropped.Load() + box.Dropped, Failed: c.failed.Load() + box.Failed,
		Skipped: c.skipped.Load(), Pending: len(l.pending) + len(l.due) + int(box.Pending),
	}
}

// Run writes noted outcomes, publishes written ones, and reads while there are
// viewers, until ctx is done. It spends at most 2 s on the last outcomes. It may be
// called again afterwards.
func (l *Log) Run(ctx context.Context) error {
	outer := ctx
	ctx, fail := context.WithCancelCause(ctx)
	sharing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { fail(l.follow(ctx)) })
	parts.Go(func() { l.opts.Box.Run(sharing, l.opts.Queue, lastWrites) })
	l.writeNoted(ctx)
	stop()
	parts.Wait()
	if outer.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("reading outcomes ended early"), context.Cause(ctx))
}

// writeNoted writes noted outcomes that are not settled until ctx is done, and then the
// rest.
func (l *Log) writeNoted(ctx context.Context) {
	pauses := wait.NewBackoff(backoffFirst, backoffMax)
	for ctx.Err() == nil {
		select {
		case <-l.some:
			_ = wait.Sleep(ctx, noteAfter)
		case <-ctx.Done():
		}
		for ctx.Err() == nil && l.writeAll() != nil {
			_ = pauses.Sleep(ctx)
		}
		pauses.Reset()
	}
	_ = l.writeAll() // counted and logged
}

func (l *Log) writeAll() error {
	l.mu.Lock()
	l.due = append(l.due, l.pending...)
	l.pending = nil
	clear(l.byKey)
	l.mu.Unlock()
	return l.write()
}

// write writes the due outcomes, unless another call just did, and passes them to
// watchers. If that fails, they are pending again.
func (l *Log) write() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch := slices.Clip(l.due) // other calls append after it
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := l.opts.Box.Append(len(batch), func(i int, seq relay.Seq) ([]byte, error) { return encode(batch[i], seq) })
	l.mu.Lock()
	if l.due = l.due[len(batch):]; len(l.due) == 0 {
		l.due = nil
	}
	failed := l.failing
	l.failing = err != nil
	if err != nil {
		again := slices.Concat(batch, l.pending)
		l.pending = nil
		clear(l.byKey)
		for _, o := range again {
			l.add(o)
		}
		wait.Wake(l.some)
	}
	l.mu.Unlock()
	if err != nil {
		l.stats.failed.Add(1)
		if !failed {
			l.log.Warn("outcomes cannot be written; trying again", "err", err)
		}
		return err
	}
	if failed {
		l.log.Info("outcomes can be written again")
	}
	l.stats.written.Add(int64(len(batch)))
	l.showWritten(batch)
	return nil
}
