package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

// Bounds.
const (
	maxUnacked = 10_000           // messages that wait; the next is refused with AGENT_BUSY
	maxWatched = 1_000            // messages that wait, when one more without an acknowledgement is not watched
	maxUnsaved = 64 << 10         // bytes of a message that is watched and not written down yet
	watchAfter = 2 * time.Second  // when a message that is watched is looked at first
	maxRetries = 10               // most retries that a message may ask for in its metadata
	storeLimit = 10 * time.Second // for one call of the store
)

// Options is what a box stands on.
type Options struct {
	Store  mailbox.Store
	Online func(context.Context, mailbox.AgentID) bool // nil: all are
	// Acknowledges reports whether an agent's mailbox acknowledges a message when its
	// bot has it: one in its inbox, other than a task or its step, is in progress.
	// nil: no mailbox does.
	Acknowledges func(context.Context, mailbox.AgentID) bool
	Died         func(DeadLetter) // called by Run or Nacked once a dead letter is on disk; nil: nobody asks
	Logger       *slog.Logger     // nil: discard

	// Signing is of the envelopes on disk. What is not signed with its secret, since it is
	// older or somebody else put it there, is a dead letter in place of being sent.
	Signing mailbox.Signing

	AckTimeout time.Duration // 0: 30 s
	RetryBase  time.Duration // pause before the first retry, doubled for each further one; 0: 1 s
	MaxRetries int           // for messages whose metadata says nothing; 0: none is sent again
}

// Box is what one agent sent and nobody acknowledged yet. Its methods are safe
// for concurrent use.
type Box struct {
	unacked, dead *os.Root
	opts          Options
	random        func() float64 // for backoff
	wake          chan struct{}  // tells Run to look again
	replaying     sync.Mutex     // one Replay at a time

	mu        sync.Mutex
	entries   map[ref][]*entry              // guarded by mu, and so is each entry
	count     int                           // of entries, also of those just being made; guarded by mu
	receivers map[mailbox.AgentID]*receiver // of all entries; guarded by mu
	graves    []grave                       // the dead letters, the oldest first; guarded by mu
	planned   time.Time                     // when Run goes round next; zero: it waits for wake; guarded by mu
	named     int64                         // the time in the newest entry's name, in nanoseconds; guarded by mu
}

// ref is what an acknowledgement says of the message: its id, and from whom it
// comes. Several messages may share one.
type ref struct {
	id string
	to mailbox.AgentID
}

// Open opens a box with what an earlier process left in its two folders. A file
// that cannot be read is renamed to *.broken, with a warning.
func Open(unacked, dead *os.Root, opts Options) (*Box, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.AckTimeout = cmp.Or(opts.AckTimeout, 30*time.Second)
	opts.RetryBase = cmp.Or(opts.RetryBase, time.Second)
	if opts.Online == nil {
		opts.Online = func(context.Context, mailbox.AgentID) bool { return true }
	}
	if opts.Acknowledges == nil {
		opts.Acknowledges = func(context.Context, mailbox.AgentID) bool { return false }
	}
	if opts.Died == nil {
		opts.Died = func(DeadLetter) {}
	}
	b := &Box{unacked: unacked, dead: dead, opts: opts, random: rand.Float64, wake: make(chan struct{}, 1),
		entries: map[ref][]*entry{}, receivers: map[mailbox.AgentID]*receiver{}}
	if err := b.loadDead(); err != nil {
		return nil, fmt.Errorf("open dead letters %s: %w", dead.Name(), err)
	}
	if err := b.loadUnacked(); err != nil {
		return nil, fmt.Errorf("open unacknowledged messages %s: %w", unacked.Name(), err)
	}
	return b, nil
}

// Send hands e to the store, and returns nil as soon as it is safe: in the
// store, or on disk, from where it is tried again until its life ends, and before
// what is sent to the same agent later. One that asks for an acknowledgement
// (metadata.requiresAck) stays on disk until then.
//
// Errors: [mailbox.ErrFull] for a full inbox; a [*mailbox.Error] for an
// envelope that nobody would accept, or with AGENT_BUSY when 10,000 messages
// wait; what disk and store say when both fail; ctx's. Then e is not sent.
func (b *Box) Send(ctx context.Context, e mailbox.Envelope) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !e.Metadata.RequiresAck && !b.waiting(e.To) {
		key, err := b.put(ctx, e)
		if err == nil {
			b.through(e.To)
			b.watch(e, key)
			return nil
		}
		if refused(err) || ctx.Err() != nil {
			return err
		}
		n, _, err2 := b.add(e)
		if err2 != nil {
			return errors.Join(err, err2)
		}
		return b.kept(n, err)
	}
	n, raw, err := b.add(e)
	if err != nil {
		return err
	}
	if b.queued(n) {
		return nil
	}
	key, err := b.put(ctx, e)
	if err != nil {
		return b.kept(n, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n.busy = false
	b.sent(n, key, raw)
	return nil
}

// waiting reports whether messages to an agent wait for the store.
func (b *Box) waiting(to mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.anyWaits(to)
}

// anyWaits is waiting with b.mu held. Nothing goes behind what a full inbox
// refused: the caller hears of it, and it does not heap up here.
func (b *Box) anyWaits(to mailbox.AgentID) bool {
	if r := b.receivers[to]; r == nil || r.full {
		return false
	}
	for n := range b.all() {
		if n.ref.to == to && n.unstored() {
			return true
		}
	}
	return false
}

// queued leaves a new entry to Run where earlier messages to its receiver wait
// for the store, so that it does not overtake them; the first is tried at once.
// Without the disk it cannot wait.
func (b *Box) queued(n *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.unsaved != nil || !b.anyWaits(n.ref.to) {
		return false
	}
	n.busy = false
	n.receiver.eager = true
	b.kick()
	return true
}

// kept is what becomes of a new entry that the store did not take: it waits for
// the next try, unless it is refused for good or not on disk either.
func (b *Box) kept(n *entry, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n.busy = false
	if n.unsaved != nil {
		err = errors.Join(err, n.unsaved)
	}
	if refused(err) || n.unsaved != nil {
		b.drop(n)
		return err
	}
	b.failed(n.receiver, err)
	b.replan(n)
	return nil
}

// refused reports whether the store will not take a message, rather than
// cannot just now.
func refused(err error) bool {
	_, invalid := errors.AsType[*mailbox.Error](err)
	return invalid || errors.Is(err, mailbox.ErrFull)
}

func (b *Box) put(ctx context.Context, e mailbox.Envelope) (key string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return b.opts.Store.Put(ctx, e)
}

// Acked tells that an agent acknowledged a message, and reports whether it was
// sent to that agent and waited for it; else nothing happens. A dead letter
// that is acknowledged late goes away.
func (b *Box) Acked(id string, from mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := false
	for _, n := range slices.Clone(b.entries[ref{id, from}]) {
		b.drop(n)
		known = true
	}
	for _, g := range slices.Clone(b.graves) {
		if g.ref == (ref{id, from}) {
			b.forget(g)
			known = true
		}
	}
	return known
}

// Nacked tells that an agent refused a message, and reports whether it was sent
// to that agent and waited for an answer; else nothing happens. It is sent again
// after a pause where code is retriable, and retries are left; else it becomes a
// dead letter at once.
func (b *Box) Nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) bool {
	b.mu.Lock()
	known := false
	var died []DeadLetter
	for _, n := range slices.Clone(b.entries[ref{id, from}]) {
		if !n.ack && !n.watch || n.end != nil {
			continue
		}
		known = true
		if n.watch || !code.Retriable() || n.RetryCount >= n.retries {
			died = append(died, b.die(n, code, fmt.Sprintf("%s refused it: %s", from, brief(message)))...)
			continue
		}
		n.Refused = true
		b.pause(n)
	}
	b.mu.Unlock()
	b.tell(died)
	return known
}

// Pending tells how many messages wait: for an acknowledgement, or for the store.
func (b *Box) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	pending := b.count
	for n := range b.all() {
		if n.watch && n.Key != "" {
			pending--
		}
	}
	return pending
}

func (b *Box) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *Box) tell(died []DeadLetter) {
	for _, d := range died {
		b.opts.Died(d)
	}
}
