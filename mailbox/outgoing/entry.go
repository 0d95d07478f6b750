package outgoing

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/mailbox"
)

// entry is a message that waits. Its fields, and those of its receiver, are
// guarded by the box's mu; those up to record never change.
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
	noted    bool // it is acknowledged when the receiver has noted it, before its bot has it

	record
	due   time.Duration // when the acknowledgement is late, on the receiver's clock
	busy  bool          // Send is just putting it into the store
	gone  bool          // acknowledged, dead or refused meanwhile
	died  *DeadLetter   // it is a dead letter that could not be written down yet
	fresh bool          // it is watched, and not written down before hold
	hold  time.Time     // nothing is done for it until then; zero: no matter
}

// record is what a file holds. In an entry, Envelope is nil.
type record struct {
	Envelope   json.RawMessage `json:"envelope"`          // as it was sent last
	Key        string          `json:"key,omitempty"`     // what the store has it under; "": it is not there yet
	RetryCount int             `json:"retryCount"`        // how often it was sent again
	Next       time.Time       `json:"next,omitzero"`     // when it is sent again; zero: the acknowledgement is awaited
	Refused    bool            `json:"refused,omitempty"` // the receiver took it, and refused it
}

// entryOf makes an entry for e, which is not among the others yet.
func (b *Box) entryOf(name string, e mailbox.Envelope) *entry {
	n := &entry{name: name, id: e.ID, to: e.To, ack: e.Metadata.RequiresAck, expires: e.Expires(),
		retries: b.opts.MaxRetries, noted: e.Type.AboutTask()}
	n.life = n.expires.Sub(e.Timestamp)
	n.watch = !n.ack && !e.Type.Control() && !n.expires.IsZero()
	if e.Metadata.MaxRetries != nil {
		n.retries = *e.Metadata.MaxRetries
	}
	n.retries = min(n.retries, maxRetries)
	return n
}

// newName makes the name of a message's files, without suffix: they sort by
// time, those to one agent also within a millisecond.
func newName(at time.Time, to mailbox.AgentID) string {
	return fmt.Sprintf("%013d_%s_%06d%s", at.UnixMilli(), safefile.Name(string(to)), at.Nanosecond()%1e6,
		strings.ToLower(rand.Text()[:8]))
}

// timeOf is the time that a name was made of, in nanoseconds; 0 where this program did
// not make it.
func timeOf(name string) int64 {
	ms, _, _ := strings.Cut(name, "_")
	fine := name[strings.LastIndexByte(name, '_')+1:]
	ns, err := strconv.ParseInt(ms+fine[:min(6, len(fine))], 10, 64)
	if err != nil || len(ms) != 13 {
		return 0
	}
	return ns
}

// add takes n, which is raw, among the entries, and marks it busy. It is on disk then, but
// for the error unsaved, with which it is only in memory. b.mu is held, here and below.
func (b *Box) add(n *entry, raw []byte) (unsaved, err error) {
	r := n.record
	r.Envelope = raw
	if unsaved = b.unacked.Save(n.name, r); unsaved != nil && b.unacked.Hold(n.name, r, len(raw)) != nil {
		return nil, mailbox.Refused(mailbox.AgentBusy, "",
			"%d messages wait for an acknowledgement, which is the most: try again later", b.unacked.Len())
	}
	n.busy = true
	b.insert(n)
	return unsaved, nil
}

// insert takes n among the entries.
func (b *Box) insert(n *entry) {
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
func (b *Box) drop(n *entry) {
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
func (b *Box) sentTo(id string, to mailbox.AgentID) (list []*entry) {
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
func (b *Box) watch(n *entry, key string, raw []byte) {
	b.worked(b.receivers[n.to])
	if !n.watch || b.unacked.Len() >= maxWatched {
		return
	}
	n.Key, n.fresh, n.hold = key, true, time.Now().Add(watchAfter)
	r := n.record
	r.Envelope = raw
	if err := b.unacked.Hold(n.name, r, len(raw)); err != nil {
		return // too much waits
	}
	b.insert(n)
	if len(raw) > maxUnsaved {
		b.keep(n)
	}
	b.plan(n)
}

// keep writes down a fresh message that still waits.
func (b *Box) keep(n *entry) {
	n.fresh, n.hold = false, time.Time{}
	if b.save(n, nil); !n.gone {
		b.await(n)
	}
}

// sent notes that the store has n, which is raw now, under key.
func (b *Box) sent(n *entry, key string, raw []byte) {
	b.worked(n.receiver)
	switch {
	case n.gone: // an acknowledgement can be faster than the store's answer
	case !n.ack && !n.watch:
		b.drop(n)
	default:
		n.Key = key
		b.save(n, raw)
		b.await(n)
		b.plan(n)
	}
}

// await begins to wait for what the receiver of n, which the store has, does.
func (b *Box) await(n *entry) {
	now, r := time.Now(), n.receiver
	if now.Sub(r.looked) > lookEvery { // nobody looked for a while, since no mail waited: its clock may not have run
		r.looked, r.online = time.Time{}, false
	}
	n.due = r.clock(now) + b.opts.AckTimeout
}

// pause lets n be sent again after a while.
func (b *Box) pause(n *entry) {
	if n.Next.IsZero() {
		n.Next = time.Now().Add(backoff(n.RetryCount, b.opts.RetryBase, b.random()))
	}
	b.save(n, nil)
}

// save writes n down with its envelope; without raw, with that of the last time. Where that
// fails it is kept in memory, and a crash costs a repeat.
func (b *Box) save(n *entry, raw []byte) {
	if raw == nil {
		var err error
		if raw, _, err = b.load(n); err != nil {
			return // it is read again when it is sent
		}
	}
	r := n.record
	r.Envelope = raw
	if err := b.unacked.Save(n.name, r); err != nil {
		b.opts.Logger.Warn("write down a message that waits", "to", n.to, "message_id", n.id, "err", err)
		_ = b.unacked.Hold(n.name, r, len(raw)) // else the disk has an older form of it
	}
}

// load returns n's envelope as it was sent last, encoded and decoded. One whose file is
// missing or broken is dropped; with errUnsigned, it only cannot be sent.
func (b *Box) load(n *entry) (raw []byte, e mailbox.Envelope, err error) {
	r, err := b.unacked.Read(n.name)
	if err == nil {
		e, err = b.decode(r.Envelope)
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
	return r.Envelope, e, err
}

// loadUnacked reads what waited when an earlier process ended. Dead letters are
// loaded before.
func (b *Box) loadUnacked() error {
	return b.unacked.Load(func(name string, r record) error {
		if b.isDead(name) {
			b.unacked.Remove(name) // the process ended between the two files
			return nil
		}
		e, err := b.decode(r.Envelope)
		if err != nil && !errors.Is(err, errUnsigned) {
			return err
		}
		n := b.entryOf(name, e)
		n.record = r
		n.Envelope, n.RetryCount, n.due = nil, max(r.RetryCount, 0), b.opts.AckTimeout
		if last := time.Now().Add(maxPause); n.Next.After(last) {
			n.Next = last // the clock was set back
		}
		b.named = max(b.named, timeOf(name))
		b.insert(n)
		b.plan(n)
		return nil
	})
}

// errUnsigned says that an envelope on disk is not signed with the current secret.
var errUnsigned = &mailbox.Error{Code: mailbox.BadSignature, Field: "sig",
	Message: "what waited here is not signed with the current RELAY_SECRET, and is not sent"}

// decode reads an envelope on disk, also one with errUnsigned. Other errors wrap
// [spool.ErrBroken].
func (b *Box) decode(raw []byte) (mailbox.Envelope, error) {
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
func (n *entry) unstored() bool { return n.Key == "" && !n.busy && !n.gone && n.died == nil }
