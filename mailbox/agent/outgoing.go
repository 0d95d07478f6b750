package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	maxUnacked  = 10_000           // messages that wait; the next is refused with AGENT_BUSY
	maxBytes    = 1 << 30          // of these; likewise
	maxHeld     = 128 << 20        // bytes of those that are in memory only, since the disk fails or they are new
	maxSentFile = 2 << 20          // bytes of a file: an envelope and what is known of it
	maxWatched  = 1_000            // messages that wait, when one more without an acknowledgement is not watched
	maxUnsaved  = 64 << 10         // bytes of a message that is watched and not written down yet
	watchAfter  = 2 * time.Second  // when a message that is watched is looked at first
	maxRetries  = 10               // most retries that a message may ask for in its metadata
	maxPause    = time.Minute      // longest pause before a message is sent again
	storeLimit  = 10 * time.Second // for one call of the store
)

// Suffixes of the files.
const (
	unackedSuffix = ".json"
	deadSuffix    = ".msg.json"
)

// outgoingOptions are those of an outgoing.
type outgoingOptions struct {
	Store  mailbox.Store
	Online func(context.Context, mailbox.AgentID) bool
	// Acknowledges reports whether an agent's mailbox acknowledges a message when its
	// bot has it: one in its inbox, other than a task or its step, is in progress.
	Acknowledges func(context.Context, mailbox.AgentID) bool
	Died         func(DeadLetter) // called by Run or Nacked once a dead letter is on disk
	Logger       *slog.Logger

	// Signing is of the envelopes on disk. What is not signed with its secret, since it is
	// older or somebody else put it there, becomes a dead letter instead of being sent.
	Signing mailbox.Signing

	AckTimeout time.Duration
	RetryBase  time.Duration // pause before the first retry, doubled for each further one
	MaxRetries int           // for messages whose metadata says nothing; 0: none is sent again
}

// outgoing keeps what an agent sent until it was acknowledged: it is
// sent again, and becomes a dead letter when that does not help (docs/protocol.md 6.8). Its
// methods are safe for concurrent use.
//
// What Post accepted reaches the receiver's inbox, also when the store is
// away or the process is killed at any point, or it becomes a dead letter. It
// may come twice, with the same id.
//
// An acknowledgement is awaited for AckTimeout, and only while the receiver is
// online: mail for an agent that is away just waits. Then the message is sent
// again after a pause ([backoff]), a few times. A message that is in the inbox of an
// agent whose mailbox acknowledges is in progress: it is not sent again, and waits until
// its life ends, since a bot may think for minutes. The receiver may also refuse a
// message and be asked again. A message's life in seconds (metadata.ttl) runs always,
// and ends all that. A message without an acknowledgement is watched: when it expires in the
// receiver's inbox, it becomes a dead letter, too. At most [maxWatched] are. What the store has
// lost is sent again, as a retry.
//
// On disk are a file for each message that is not acknowledged, and one for each dead
// letter, named <ms>_<to>_<random>.json and ….msg.json. A message that becomes a dead
// letter keeps its name, so that a crash in between is seen.
type outgoing struct {
	unacked   *spool.Spool[sentFile]
	dead      *spool.Spool[deadFile]
	opts      outgoingOptions
	random    func() float64 // for backoff
	replaying sync.Mutex     // one Replay at a time

	mu          sync.Mutex
	entries     map[string]*entry             // by name; guarded by mu, and so is each entry
	receivers   map[mailbox.AgentID]*receiver // of all entries; guarded by mu
	deadEntries []*entry                      // the dead letters on disk, the oldest first; guarded by mu
	named       int64                         // the time in the newest entry's name, in nanoseconds; guarded by mu
	newlyDead   []DeadLetter                  // what unlock reports; guarded by mu
}

// openOutgoing opens an outgoing with what an earlier process left in its two folders. A
// file that cannot be read is quarantined.
func openOutgoing(unacked, dead *os.Root, opts outgoingOptions) (*outgoing, error) {
	b := &outgoing{opts: opts, random: mathrand.Float64, entries: map[string]*entry{},
		receivers: map[mailbox.AgentID]*receiver{},
		unacked:   spool.New[sentFile](unacked, unackedOptions(opts.Logger)),
		dead: spool.New[deadFile](dead, spool.Options{Suffix: deadSuffix, MaxFile: maxSentFile,
			Logger: opts.Logger})}
	if err := b.loadDead(); err != nil {
		return nil, fmt.Errorf("open dead letters %s: %w", dead.Name(), err)
	}
	if err := b.loadUnacked(); err != nil {
		return nil, fmt.Errorf("open unacknowledged messages %s: %w", unacked.Name(), err)
	}
	return b, nil
}

func unackedOptions(log *slog.Logger) spool.Options {
	return spool.Options{Suffix: unackedSuffix, MaxFile: maxSentFile, MaxDocs: maxUnacked,
		MaxBytes: maxBytes, MaxHeld: maxHeld, Logger: log}
}

// Post hands m to the store, and returns nil as soon as it is safe: in the
// store, or on disk, from where it is tried again until its life ends, and before
// what is sent to the same agent later. One that asks for an acknowledgement
// (metadata.requiresAck) stays on disk until then.
//
// Errors: [mailbox.ErrFull] for a full inbox; a [*mailbox.Error] with AGENT_BUSY when
// 10,000 messages wait, or of a store that refuses m; what disk and store say when both
// fail; ctx's. Then m is not sent. Where the disk fails and memory is full, only the store
// gets m: it is not sent again.
func (b *outgoing) Post(ctx context.Context, m mailbox.Sealed) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, raw := m.Envelope, m.Raw
	b.mu.Lock()
	defer b.unlock()
	b.named = max(b.named+1, time.Now().UnixNano())
	n := b.entryOf(newName(time.Unix(0, b.named), e.To), e)
	var unsaved, err error // unsaved: why the disk does not have n
	if r := b.receivers[e.To]; n.ack || r != nil && r.storeWaits() {
		unsaved, err = b.add(n, raw)
		if err != nil && (unsaved == nil || r != nil && r.storeWaits()) {
			return err
		}
		if unsaved == nil && n.receiver.storeWaits() { // earlier mail goes first, and is tried at once
			n.busy, n.receiver.eager = false, true
			b.planAll(n.receiver)
			return nil
		}
	}
	key, err := outside(ctx, b, func(ctx context.Context) (string, error) { return b.opts.Store.Put(ctx, m) })
	switch {
	case n.receiver != nil:
	case err == nil && n.ack:
		b.worked(b.receivers[n.to])
		b.unwatched(n, unsaved)
		return nil
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
func outside[T any](ctx context.Context, b *outgoing, f func(context.Context) (T, error)) (T, error) {
	b.unlock()
	defer b.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return f(ctx)
}

// unlock frees mu, and calls the option Died for the messages that became dead letters.
func (b *outgoing) unlock() {
	died := b.newlyDead
	b.newlyDead = nil
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
func (b *outgoing) Acked(id string, from mailbox.AgentID) (known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.sentTo(id, from) {
		b.drop(n)
		known = true
	}
	return b.removeDead(func(n *entry) bool { return n.id == id && n.to == from }) || known
}

// Nacked notes that an agent refused a message, and reports whether it was sent
// to that agent and waited for an answer; else nothing happens. It is sent again
// after a pause where code is retriable, and retries are left; else it becomes a
// dead letter at once.
func (b *outgoing) Nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) (known bool) {
	b.mu.Lock()
	defer b.unlock()
	for _, n := range b.sentTo(id, from) {
		switch {
		case !n.ack && !n.watch || n.dead != nil:
			continue
		case n.watch || !code.Retriable() || n.RetryCount >= n.retries:
			b.makeDead(n, code, fmt.Sprintf("%s refused it: %s", from, message))
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
func (b *outgoing) Pending() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if !e.watch || e.Key == "" {
			n++
		}
	}
	return n
}

// backoff is the pause before the retry after n retries: base·2^n, but at most longest, and up
// to a quarter more, at random (from 0 to 1), so that many senders do not come back
// together. It is never over 60 s.
func backoff(n int, base, longest time.Duration, random float64) time.Duration {
	pause := wait.Doubled(max(base, 0), longest, n)
	return min(pause+time.Duration(float64(pause)/4*random), maxPause)
}

// entry is a message that waits. Its fields, and those of its receiver, are
// guarded by the mu of outgoing; those up to sentFile never change.
type entry struct {
	name     string // of its file, without suffix
	id       string // of the envelope; several messages may share one
	to       mailbox.AgentID
	receiver *receiver // nil: it is not among the entries yet
	ack      bool      // an acknowledgement is awaited
	watch    bool      // it is watched until the receiver has taken it; with neither, only the store has to take it
	expires  time.Time // zero: never
	life     time.Duration
	retries  int  // at most
	recorded bool // it is acknowledged when the receiver has recorded it, before its bot has it

	sentFile
	due     time.Duration // when the acknowledgement is late, on the receiver's clock
	busy    bool          // Post is just putting it into the store
	gone    bool          // acknowledged, dead or refused meanwhile
	dead    *DeadLetter   // it is a dead letter, without its envelope; nil: it is not
	unsaved bool          // it is watched, and not written down before hold
	hold    time.Time     // nothing is done for it until then; zero: no matter
}

// sentFile is what a file holds. In an entry, Envelope is nil.
type sentFile struct {
	Envelope   json.RawMessage `json:"envelope"`          // as it was sent last
	Key        string          `json:"key,omitempty"`     // what the store has it under; "": it is not there yet
	RetryCount int             `json:"retryCount"`        // how often it was sent again
	Next       time.Time       `json:"next,omitzero"`     // when it is sent again; zero: the acknowledgement is awaited
	Refused    bool            `json:"refused,omitempty"` // the receiver took it, and refused it
}

// entryOf makes an entry for e, which is not among the others yet.
func (b *outgoing) entryOf(name string, e mailbox.Envelope) *entry {
	n := &entry{name: name, id: e.ID, to: e.To, ack: e.Metadata.RequiresAck, expires: e.Expires(),
		retries: b.opts.MaxRetries, recorded: e.Type.AboutTask()}
	n.life = n.expires.Sub(e.Timestamp)
	n.watch = !n.ack && !e.Type.Control() && !n.expires.IsZero()
	if e.Metadata.MaxRetries != nil {
		n.retries = *e.Metadata.MaxRetries
	}
	return n
}

// newName makes the name of a message's files, without suffix: they sort by
// time, those to one agent also within a millisecond.
func newName(at time.Time, to mailbox.AgentID) string {
	return fmt.Sprintf("%013d_%s_%06d%s", at.UnixMilli(), safefile.Name(string(to)), at.Nanosecond()%1e6,
		strings.ToLower(rand.Text()[:8]))
}

// add takes n, which is raw, among the entries, and marks it busy. It is on disk then, but
// for the error unsaved, with which it is only in memory; with err, it is in neither. b.mu is
// held, here and below.
func (b *outgoing) add(n *entry, raw []byte) (unsaved, err error) {
	r := n.sentFile
	r.Envelope = raw
	unsaved = b.unacked.Save(n.name, r)
	switch {
	case unsaved == nil:
	case errors.Is(unsaved, spool.ErrFull):
		return nil, mailbox.Refused(mailbox.AgentBusy, "",
			"%d messages wait for an acknowledgement, and no more fit: try again later", b.unacked.Len())
	case b.unacked.Hold(n.name, r, len(raw)) != nil:
		return unsaved, mailbox.Refused(mailbox.AgentBusy, "", "the disk takes no message, and those in memory have "+
			"%d MiB, which is the most: try again when the disk works (%v)", maxHeld>>20, unsaved)
	}
	n.busy = true
	b.insert(n)
	return unsaved, nil
}

// insert takes n among the entries.
func (b *outgoing) insert(n *entry) {
	r := b.receivers[n.to]
	if r == nil {
		r = &receiver{entries: map[*entry]struct{}{}}
		b.receivers[n.to] = r
	}
	r.entries[n] = struct{}{}
	n.receiver = r
	b.entries[n.name] = n
}

// drop forgets n, which is acknowledged, dead or refused.
func (b *outgoing) drop(n *entry) {
	if n.gone {
		return
	}
	n.gone = true
	delete(b.entries, n.name)
	if delete(n.receiver.entries, n); len(n.receiver.entries) == 0 {
		delete(b.receivers, n.to)
	}
	b.unacked.Remove(n.name)
}

// sentTo returns the entries with an id to an agent.
func (b *outgoing) sentTo(id string, to mailbox.AgentID) (list []*entry) {
	if r := b.receivers[to]; r != nil {
		for n := range r.entries {
			if n.id == id {
				list = append(list, n)
			}
		}
	}
	return list
}

// watch keeps n, which asks for no acknowledgement and which the store has under key,
// until the receiver has taken it or it expires. Most messages are taken at once, so it is
// written down only when it still waits after watchAfter, or when Run ends: a crash before
// that costs the notice, not the message.
func (b *outgoing) watch(n *entry, key string, raw []byte) {
	b.worked(b.receivers[n.to])
	if !n.watch || b.unacked.Len() >= maxWatched {
		return
	}
	n.Key, n.unsaved, n.hold = key, true, time.Now().Add(watchAfter)
	r := n.sentFile
	r.Envelope = raw
	if err := b.unacked.Hold(n.name, r, len(raw)); err != nil {
		b.unwatched(n, err)
		return
	}
	b.insert(n)
	n.receiver.last = key
	if len(raw) > maxUnsaved {
		b.keep(n)
	}
	b.plan(n)
}

// unwatched warns that nothing is known of n any more, which the store has.
func (b *outgoing) unwatched(n *entry, err error) {
	b.opts.Logger.Warn("a message that was sent is not watched; nobody is told should it expire", "to", n.to,
		"message_id", n.id, "err", err)
}

// keep writes down a fresh message that still waits.
func (b *outgoing) keep(n *entry) {
	n.unsaved, n.hold = false, time.Time{}
	if b.save(n, nil); !n.gone {
		b.await(n)
	}
}

// sent notes that the store has n, which is raw now, under key.
func (b *outgoing) sent(n *entry, key string, raw []byte) {
	b.worked(n.receiver)
	switch {
	case n.gone: // an acknowledgement can be faster than the store's answer
	case !n.ack && !n.watch:
		b.drop(n)
	default:
		n.Key, n.receiver.last = key, key
		b.save(n, raw)
		b.await(n)
		b.plan(n)
	}
}

// await begins to wait for what the receiver of n, which the store has, does.
func (b *outgoing) await(n *entry) {
	now, r := time.Now(), n.receiver
	if now.Sub(r.looked) > lookEvery { // nobody looked for a while, since no mail waited: its clock may not have run
		r.looked, r.online = time.Time{}, false
	}
	n.due = r.clock(now) + b.opts.AckTimeout
}

// pause lets n be sent again after a while.
func (b *outgoing) pause(n *entry) {
	if n.Next.IsZero() {
		n.Next = time.Now().Add(backoff(n.RetryCount, b.opts.RetryBase, maxPause, b.random()))
	}
	b.save(n, nil)
}

// save writes n down with its envelope; without raw, with that of the last time. Where that
// fails it is kept in memory, and a crash costs a repeat.
func (b *outgoing) save(n *entry, raw []byte) {
	if raw == nil {
		m, err := b.load(n)
		if err != nil {
			return // it is read again when it is sent
		}
		raw = m.Raw
	}
	r := n.sentFile
	r.Envelope = raw
	if err := b.unacked.Save(n.name, r); err != nil {
		b.opts.Logger.Warn("write down a message that waits", "to", n.to, "message_id", n.id, "err", err)
		_ = b.unacked.Hold(n.name, r, len(raw)) // else the disk has an older form of it
	}
}

// load returns n's envelope as it was sent last. One whose file is
// missing or broken is dropped; with errUnsigned, it only cannot be sent.
func (b *outgoing) load(n *entry) (m mailbox.Sealed, err error) {
	r, err := b.unacked.Read(n.name)
	if m.Raw = r.Envelope; err == nil {
		m.Envelope, err = b.decode(m.Raw)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.opts.Logger.Error("the file of a message that waits was removed; the message is not sent again", "to", n.to,
			"message_id", n.id)
		b.drop(n)
	case errors.Is(err, spool.ErrBroken):
		_ = b.unacked.Quarantine(n.name, err) // the next process tries that again
		b.drop(n)
	}
	return m, err
}

// loadUnacked reads what waited when an earlier process ended. Dead letters are
// loaded before.
func (b *outgoing) loadUnacked() error {
	return b.unacked.Load(func(name string, r sentFile) error {
		if slices.ContainsFunc(b.deadEntries, func(n *entry) bool { return n.name == name }) {
			b.unacked.Remove(name) // the process ended between the two files
			return nil
		}
		e, err := b.decode(r.Envelope)
		if err != nil && !errors.Is(err, errUnsigned) {
			return err
		}
		n := b.entryOf(name, e)
		n.sentFile = r
		n.Envelope, n.RetryCount, n.due = nil, max(r.RetryCount, 0), b.opts.AckTimeout
		if last := time.Now().Add(maxPause); n.Next.After(last) {
			n.Next = last // the clock was set back
		}
		b.insert(n)
		n.receiver.last = cmp.Or(n.Key, n.receiver.last)
		b.plan(n)
		return nil
	})
}

// errUnsigned says that an envelope on disk is not signed with the current secret.
var errUnsigned = &mailbox.Error{Code: mailbox.BadSignature, Field: "sig",
	Message: "what waited here is not signed with the current RELAY_SECRET, and is not sent"}

// decode reads an envelope on disk, also one with errUnsigned. Other errors wrap
// [spool.ErrBroken].
func (b *outgoing) decode(raw []byte) (mailbox.Envelope, error) {
	var unsigned error
	e, _, err := b.opts.Signing.Decode(raw)
	if no, ok := errors.AsType[*mailbox.Error](err); ok && no.Code == mailbox.BadSignature {
		unsigned = errUnsigned
		e, err = mailbox.Decode(raw)
	}
	if err == nil {
		err = mailbox.CheckAgent(e.To)
	}
	if err != nil {
		return e, fmt.Errorf("%w: %w", spool.ErrBroken, err)
	}
	return e, unsigned
}

// attempts is how often n was sent.
func (n *entry) attempts() int {
	if n.Key == "" {
		return 0
	}
	return n.RetryCount + 1
}

func (n *entry) expired(now time.Time) bool { return !n.expires.IsZero() && !now.Before(n.expires) }

// unstored reports whether n waits for the store.
func (n *entry) unstored() bool { return n.Key == "" && !n.busy && !n.gone && n.dead == nil }
