package outgoing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
)

// entry is a message that waits. Its fields, and those of its receiver, are
// guarded by the box's mu; those up to record never change.
type entry struct {
	name     string // of its file, without suffix
	ref      ref
	receiver *receiver
	ack      bool      // an acknowledgement is awaited
	watch    bool      // it is watched until the receiver has taken it; with neither, only the store has to take it
	expires  time.Time // zero: never
	life     time.Duration
	retries  int  // at most
	noted    bool // it is acknowledged when the receiver has noted it, before its bot has it

	record
	unsaved error         // why the disk does not hold it as it is; then Envelope does
	due     time.Duration // when the acknowledgement is late, on the receiver's clock
	busy    bool          // Send is just putting it into the store
	gone    bool          // acknowledged, dead or refused meanwhile
	end     *DeadLetter   // it is dead, and waits for the disk
	hold    time.Time     // nothing is done for it until then; zero: it has not come to its end
	first   time.Time     // of one that is watched: when it is looked at first; zero: it was
}

// record is what a file holds. In an entry, Envelope is nil: it stays on disk.
type record struct {
	Envelope   json.RawMessage `json:"envelope"`          // as it was sent last
	Key        string          `json:"key,omitempty"`     // what it lies under in the store; "": it is not there yet
	RetryCount int             `json:"retryCount"`        // how often it was sent again
	Next       time.Time       `json:"next,omitzero"`     // when it is sent again; zero: the acknowledgement is awaited
	Refused    bool            `json:"refused,omitempty"` // the receiver took it, and refused it
}

// add makes an entry for e, on disk if possible (see entry.unsaved), and marks
// it busy. raw is e encoded.
func (b *Box) add(e mailbox.Envelope) (n *entry, raw []byte, err error) {
	n, raw, err = b.prepare(e)
	if err != nil {
		return nil, nil, err
	}
	if _, err := mailbox.Decode(raw); err != nil { // it could not be read again either
		b.mu.Lock()
		defer b.mu.Unlock()
		b.count--
		return nil, nil, err
	}
	n.busy = true
	if n.unsaved = write(b.unacked, n.name+waits, record{Envelope: raw}); n.unsaved != nil {
		n.Envelope = raw
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.insert(n)
	return n, raw, nil
}

// prepare makes an entry for e, counts it and gives it a name.
func (b *Box) prepare(e mailbox.Envelope) (n *entry, raw []byte, err error) {
	if raw, err = b.opts.Signing.Encode(e); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count >= maxUnacked {
		return nil, nil, &mailbox.Error{Code: mailbox.AgentBusy,
			Message: fmt.Sprintf("%d messages wait for an acknowledgement, which is the most: try again later", maxUnacked)}
	}
	b.count++
	b.named = max(b.named+1, time.Now().UnixNano())
	return b.newEntry(newName(time.Unix(0, b.named), e.To), e), raw, nil
}

func (b *Box) newEntry(name string, e mailbox.Envelope) *entry {
	n := &entry{name: name, ref: ref{e.ID, e.To}, ack: e.Metadata.RequiresAck, expires: e.Expires(),
		retries: b.opts.MaxRetries,
		noted:   e.Type.AboutTask()}
	n.life = n.expires.Sub(e.Timestamp)
	n.watch = !n.ack && watchable(e)
	if e.Metadata.MaxRetries != nil {
		n.retries = *e.Metadata.MaxRetries
	}
	n.retries = min(n.retries, maxRetries)
	return n
}

// watchable reports whether the sender of e wants to know that it expired.
func watchable(e mailbox.Envelope) bool { return !e.Type.Control() && !e.Expires().IsZero() }

// watch keeps an eye on e, which asks for no acknowledgement and has that key in
// the store, until the receiver has taken it or it expires. Most messages are taken
// at once, so it is written down only when it still waits after watchAfter, or when
// Run ends: a crash before that costs the notice, not the message.
func (b *Box) watch(e mailbox.Envelope, key string) {
	b.mu.Lock()
	full := b.count >= maxWatched
	b.mu.Unlock()
	if full || !watchable(e) {
		return
	}
	n, raw, err := b.prepare(e)
	if err != nil {
		b.opts.Logger.Warn("a message that was sent is not watched; nobody is told should it expire", "to", e.To,
			"message_id", e.ID, "err", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n.Key, n.Envelope, n.first = key, raw, time.Now().Add(watchAfter)
	b.insert(n)
	if len(raw) > maxUnsaved {
		b.keep(n)
	}
	b.replan(n)
}

// keep writes down a message that is watched and still waits.
func (b *Box) keep(n *entry) {
	n.first = time.Time{}
	b.save(n, n.Envelope)
	b.await(n)
}

// keepAll writes down what is only in memory yet.
func (b *Box) keepAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.all() {
		if !n.first.IsZero() && n.end == nil {
			b.keep(n)
		}
	}
}

// await begins to wait for what the receiver of n, which is in the store, does.
func (b *Box) await(n *entry) {
	now := time.Now()
	n.receiver.settle(now)
	n.due = n.receiver.clock(now) + b.opts.AckTimeout
	b.replan(n)
}

func (n *entry) expired(now time.Time) bool { return !n.expires.IsZero() && !now.Before(n.expires) }

// insert makes n known. b.mu is held, here and in all that follows.
func (b *Box) insert(n *entry) {
	r := b.receivers[n.ref.to]
	if r == nil {
		r = new(receiver)
		b.receivers[n.ref.to] = r
	}
	r.entries++
	n.receiver = r
	b.entries[n.ref] = append(b.entries[n.ref], n)
}

// drop forgets n, which is acknowledged, dead or refused.
func (b *Box) drop(n *entry) {
	if n.gone {
		return
	}
	n.gone = true
	b.count--
	list := slices.DeleteFunc(b.entries[n.ref], func(x *entry) bool { return x == n })
	b.entries[n.ref] = list
	if len(list) == 0 {
		delete(b.entries, n.ref)
	}
	if n.receiver.entries--; n.receiver.entries == 0 {
		delete(b.receivers, n.ref.to)
	}
	b.remove(b.unacked, n.name+waits)
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
	}
}

// pause lets n be sent again after a while.
func (b *Box) pause(n *entry) {
	if n.Next.IsZero() {
		n.Next = time.Now().Add(backoff(n.RetryCount, b.opts.RetryBase, b.random()))
	}
	raw, _, err := b.load(n)
	if n.gone {
		return
	}
	if err == nil { // else it is read again when it is sent
		b.save(n, raw)
	}
	b.replan(n)
}

// save writes n down with its envelope. Where that fails, memory knows better,
// and a crash costs a repeat.
func (b *Box) save(n *entry, raw []byte) {
	r := n.record
	r.Envelope = raw
	n.Envelope, n.unsaved = nil, write(b.unacked, n.name+waits, r)
	if n.unsaved != nil {
		n.Envelope = raw
		b.opts.Logger.Warn("write down a message that waits", "to", n.ref.to, "message_id", n.ref.id, "err", n.unsaved)
	}
}

// load returns n's envelope as it was sent last, encoded and decoded. One whose
// file is gone or damaged is given up; with errUnsigned, only sending it is.
func (b *Box) load(n *entry) (raw []byte, e mailbox.Envelope, err error) {
	if raw = n.Envelope; raw == nil {
		var r record
		r, err = read[record](b.unacked, n.name+waits)
		raw = r.Envelope
	}
	if err == nil {
		e, err = b.decode(raw)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.opts.Logger.Error("the file of a message that waits was removed; the message is given up", "to", n.ref.to,
			"message_id", n.ref.id)
		b.drop(n)
	case errors.Is(err, errBroken):
		_ = b.setAside(b.unacked, n.name+waits, err) // the next process tries that again
		b.drop(n)
	}
	return raw, e, err
}

// errUnsigned says that an envelope on disk is not signed with the secret of now.
var errUnsigned = &mailbox.Error{Code: mailbox.BadSignature, Field: "sig",
	Message: "what waited here is not signed with the RELAY_SECRET of now, and is not sent"}

// decode reads an envelope on disk, also one with errUnsigned.
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
		return e, fmt.Errorf("%w: %w", errBroken, err)
	}
	return e, unsigned
}

// brief cuts what another agent said of a refusal.
func brief(text string) string {
	const most = 500
	text = strings.ToValidUTF8(text, "\uFFFD")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
