// Package outgoing keeps what an agent sent until it was acknowledged: it is
// sent again, and becomes a dead letter when that does not help (docs/protocol.md 6.8).
//
// # Promise
//
// What [Box.Send] accepted reaches the receiver's inbox, also when the store is
// away or the process is killed at any point, or it becomes a dead letter. It
// may come twice, with the same id.
//
// # When a message is sent again
//
// An acknowledgement is awaited for AckTimeout, and only while the receiver is
// online: mail for an agent that is away just waits. Then the message is sent
// again after a pause ([backoff]), a few times. A message that is in the inbox of an
// agent whose mailbox acknowledges is in progress: it is not sent again, and waits until
// its life ends, since a bot may think for minutes. The receiver may also refuse a
// message and be asked again. A message's life in seconds (metadata.ttl) runs always,
// and ends all that.
//
// A message without an acknowledgement is watched: when it expires in the
// receiver's inbox, it becomes a dead letter, too. At most [maxWatched] are.
//
// # Disk
//
// Two spools: a file for each message that is not acknowledged, and one for each dead
// letter, named <ms>_<to>_<random>.json and ….msg.json. A message that becomes a dead
// letter keeps its name, so that a crash in between is seen.
package outgoing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"feishu-relay/internal/spool"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	maxUnacked = 10_000           // messages that wait; the next is refused with AGENT_BUSY
	maxBytes   = 1 << 30          // of these; likewise
	maxHeld    = 128 << 20        // bytes of those that are in memory only, since the disk fails or they are new
	maxFile    = 2 << 20          // bytes of a file: an envelope and what is known of it
	maxWatched = 1_000            // messages that wait, when one more without an acknowledgement is not watched
	maxUnsaved = 64 << 10         // bytes of a message that is watched and not written down yet
	watchAfter = 2 * time.Second  // when a message that is watched is looked at first
	maxRetries = 10               // most retries that a message may ask for in its metadata
	maxPause   = time.Minute      // longest pause before a message is sent again
	storeLimit = 10 * time.Second // for one call of the store
)

// Suffixes of the files, and the version of what they hold.
const (
	unackedSuffix = ".json"
	deadSuffix    = ".msg.json"
	version       = 1
)

// Options of a box. Store is required.
type Options struct {
	Store  mailbox.Store
	Online func(context.Context, mailbox.AgentID) bool // nil: all are
	// Acknowledges reports whether an agent's mailbox acknowledges a message when its
	// bot has it: one in its inbox, other than a task or its step, is in progress.
	// nil: no mailbox does.
	Acknowledges func(context.Context, mailbox.AgentID) bool
	Died         func(DeadLetter) // called by Run or Nacked once a dead letter is on disk; may be nil
	Logger       *slog.Logger     // nil: discard

	// Signing is of the envelopes on disk. What is not signed with its secret, since it is
	// older or somebody else put it there, becomes a dead letter instead of being sent.
	Signing mailbox.Signing

	AckTimeout time.Duration // 0: 30 s
	RetryBase  time.Duration // pause before the first retry, doubled for each further one; 0: 1 s
	MaxRetries int           // for messages whose metadata says nothing; 0: none is sent again
}

// Box is what one agent sent and nobody acknowledged yet. Its methods are safe
// for concurrent use.
type Box struct {
	unacked   *spool.Spool[record]
	dead      *spool.Spool[letter]
	opts      Options
	random    func() float64 // for backoff
	replaying sync.Mutex     // one Replay at a time

	mu        sync.Mutex
	entries   map[string]*entry             // by name; guarded by mu, and so is each entry
	receivers map[mailbox.AgentID]*receiver // of all entries; guarded by mu
	letters   []deadRef                     // the dead letters, the oldest first; guarded by mu
	named     int64                         // the time in the newest entry's name, in nanoseconds; guarded by mu
	died      []DeadLetter                  // what unlock reports; guarded by mu
}

// Open opens a box with what an earlier process left in its two folders. A file
// that cannot be read is quarantined.
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
	b := &Box{opts: opts, random: rand.Float64, entries: map[string]*entry{}, receivers: map[mailbox.AgentID]*receiver{},
		unacked: spool.New[record](unacked, unackedOptions(opts.Logger)),
		dead:    spool.New[letter](dead, spool.Options{Suffix: deadSuffix, Version: version, MaxFile: maxFile, Logger: opts.Logger})}
	if err := b.loadDead(); err != nil {
		return nil, fmt.Errorf("open dead letters %s: %w", dead.Name(), err)
	}
	if err := b.loadUnacked(); err != nil {
		return nil, fmt.Errorf("open unacknowledged messages %s: %w", unacked.Name(), err)
	}
	return b, nil
}

func unackedOptions(log *slog.Logger) spool.Options {
	return spool.Options{Suffix: unackedSuffix, Version: version, MaxFile: maxFile, MaxDocs: maxUnacked,
		MaxBytes: maxBytes, MaxHeld: maxHeld, Logger: log}
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
	raw, err := b.opts.Signing.Encode(e)
	if err == nil && e.Type != mailbox.TypeAck && e.Type != mailbox.TypeNack { // those are made here
		_, err = mailbox.Decode(raw)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.unlock()
	b.named = max(b.named+1, time.Now().UnixNano())
	n := b.entryOf(newName(time.Unix(0, b.named), e.To), e)
	var unsaved error // why the disk does not have n
	if r := b.receivers[e.To]; n.ack || r != nil && r.storeWaits() {
		if unsaved, err = b.add(n, raw); err != nil {
			return err
		}
		if unsaved == nil && n.receiver.storeWaits() { // earlier mail goes first, and is tried at once
			n.busy, n.receiver.eager = false, true
			b.planAll(n.receiver)
			return nil
		}
	}
	key, err := outside(ctx, b, func(ctx context.Context) (string, error) { return b.opts.Store.Put(ctx, e) })
	switch {
	case n.receiver != nil:
	case err == nil:
		b.watch(n, key, raw)
		return nil
	case refused(err) || ctx.Err() != nil:
		return err
	default:
		var full error
		if unsaved, full = b.add(n, raw); full != nil {
			return errors.Join(err, full)
		}
	}
	n.busy = false
	switch {
	case err == nil:
		b.sent(n, key, raw)
	case refused(err) || unsaved != nil:
		b.drop(n)
		return errors.Join(err, unsaved)
	default:
		b.failed(n.receiver, err)
		b.plan(n)
	}
	return nil
}

// outside calls f, with a bounded context, while mu, which the caller holds, is free.
func outside[T any](ctx context.Context, b *Box, f func(context.Context) (T, error)) (T, error) {
	b.unlock()
	defer b.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return f(ctx)
}

// unlock frees mu, and calls Options.Died for the messages that became dead letters.
func (b *Box) unlock() {
	died := b.died
	b.died = nil
	b.mu.Unlock()
	for _, d := range died {
		b.opts.Died(d)
	}
}

// refused reports whether the store will not take a message, rather than
// cannot just now.
func refused(err error) bool {
	_, invalid := errors.AsType[*mailbox.Error](err)
	return invalid || errors.Is(err, mailbox.ErrFull)
}

// Acked notes that an agent acknowledged a message, and reports whether it was
// sent to that agent and waited for it; else nothing happens. A dead letter
// that is acknowledged late is removed.
func (b *Box) Acked(id string, from mailbox.AgentID) (known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.sentTo(id, from) {
		b.drop(n)
		known = true
	}
	return b.removeDead(func(d deadRef) bool { return d.id == id && d.to == from }) || known
}

// Nacked notes that an agent refused a message, and reports whether it was sent
// to that agent and waited for an answer; else nothing happens. It is sent again
// after a pause where code is retriable, and retries are left; else it becomes a
// dead letter at once.
func (b *Box) Nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) (known bool) {
	b.mu.Lock()
	defer b.unlock()
	for _, n := range b.sentTo(id, from) {
		switch {
		case !n.ack && !n.watch || n.died != nil:
			continue
		case n.watch || !code.Retriable() || n.RetryCount >= n.retries:
			b.die(n, code, fmt.Sprintf("%s refused it: %s", from, message))
		default:
			n.Refused = true
			b.pause(n)
			b.plan(n)
		}
		known = true
	}
	return known
}

// Pending returns how many messages wait: for an acknowledgement, or for the store.
func (b *Box) Pending() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if !e.watch || e.Key == "" {
			n++
		}
	}
	return n
}

// backoff is the pause before the retry after n retries: base·2^n, and up to a
// quarter more, at random (from 0 to 1), so that many senders do not come back
// together. It is never over 60 s.
func backoff(n int, base time.Duration, random float64) time.Duration {
	pause := wait.Doubled(max(base, 0), maxPause, n)
	if random > 0 { // false for NaN, too
		pause += time.Duration(float64(pause) / 4 * min(random, 1))
	}
	return min(pause, maxPause)
}
