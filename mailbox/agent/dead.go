package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/book"
	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
)

const (
	// Bounds of the dead letters that are kept; beyond them the oldest is removed, with a warning.
	maxDead      = 1000
	maxDeadBytes = 64 << 20
	// maxShown is the most bytes of a dead letter's text in a list.
	maxShown = 200
)

// DeadLetter is a message that could not be delivered.
type DeadLetter struct {
	ID       string       `json:"id"` // the envelope's
	Code     mailbox.Code `json:"code"`
	Reason   string       `json:"reason"`
	Attempts int          `json:"attempts"` // how often it was sent
	DeadAt   time.Time    `json:"dead_at"`
	Expired  bool         `json:"-"` // its life has just ended, before it was taken
	// Envelope has the beginning of the text, and neither data nor files.
	Envelope mailbox.Envelope `json:"envelope"`
}

// deadRecord is a dead letter in the book, with its whole envelope as it was sent.
type deadRecord struct {
	DeadLetter
	Raw json.RawMessage `json:"raw"`
}

// deadEntry is a dead letter in memory.
type deadEntry struct {
	name string
	DeadLetter
}

// makeDead makes n a dead letter; if the book cannot, Run tries it again. b.mu is held, here and below.
func (b *outgoing) makeDead(n *entry, code mailbox.Code, reason string) {
	now := time.Now().Round(0).UTC()
	m, err := b.load(n)
	if n.gone {
		return
	}
	d := DeadLetter{ID: n.ID, Code: code, Reason: reason, Attempts: n.attempts(), DeadAt: now,
		Expired: !n.Expires.IsZero() && !now.Before(n.Expires), Envelope: m.Envelope}
	d.Envelope.Content.Parts = []mailbox.Part{mailbox.TextPart(runes.Cut(m.Text(), maxShown))}
	if err == nil || errors.Is(err, errUnsigned) {
		err = b.remove(n, book.Record{Kind: kindDead, Key: n.name, Value: deadRecord{d, m.Raw}})
	}
	if err != nil {
		b.opts.Logger.Warn("write down a dead letter; tried again soon", "to", n.To, "message_id", d.ID, "err", err)
		n.hold = time.Now().Add(lookEvery)
		b.plan(n.hold)
		return
	}
	b.dead = append(b.dead, deadEntry{n.name, d})
	for ; len(b.dead) > maxDead; b.dead = b.dead[1:] { // the book has removed it
		b.opts.Logger.Warn("too many dead letters; the oldest is removed", "message_id", b.dead[0].ID, "kept", maxDead)
	}
	b.newlyDead = append(b.newlyDead, d)
}

// findDead returns the newest dead letter that is picked.
func (b *outgoing) findDead(pick func(*DeadLetter) bool) (found deadEntry, ok bool) {
	for _, d := range slices.Backward(b.dead) {
		if pick(&d.DeadLetter) {
			return d, true
		}
	}
	return found, false
}

// IsDead reports whether a message to an agent is among the dead letters.
func (b *outgoing) IsDead(id string, to mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.findDead(func(d *DeadLetter) bool { return d.ID == id && d.Envelope.To == to })
	return is
}

// removeDead removes the dead letters of an id to an agent, and reports whether there were any.
func (b *outgoing) removeDead(id string, to mailbox.AgentID) bool {
	var records []book.Record
	b.dead = slices.DeleteFunc(b.dead, func(d deadEntry) bool {
		is := d.ID == id && d.Envelope.To == to
		if is {
			records = append(records, book.Record{Kind: kindDead, Key: d.name})
		}
		return is
	})
	if len(records) == 0 {
		return false
	}
	if err := b.state.commit(records...); err != nil {
		b.opts.Logger.Warn("a dead letter that was delivered is there again after a restart", "err", err)
	}
	return true
}

// DeadLetters returns the dead letters, the newest first.
func (b *outgoing) DeadLetters() (all []DeadLetter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range slices.Backward(b.dead) {
		all = append(all, d.DeadLetter)
	}
	return all
}

// Replay sends a dead letter under the same id, as if for the first time, instead of keeping it. Its errors are
// those of Post. An id that no dead letter has is a [*mailbox.Error] about the field "id".
func (b *outgoing) Replay(id string) error {
	b.mu.Lock()
	found, ok := b.findDead(func(d *DeadLetter) bool { return d.ID == id })
	b.mu.Unlock()
	var r deadRecord
	err := b.state.load(kindDead, found.name, &r)
	if !ok || errors.Is(err, book.ErrNotFound) {
		return mailbox.Invalid("id", "there is no dead letter %.200q", id)
	}
	if err == nil {
		r.Envelope, err = b.decode(r.Raw)
	}
	if errors.Is(err, errUnsigned) {
		return mailbox.Invalid("id", "dead letter %.200q is not signed with the current RELAY_SECRET: send its text again",
			id)
	}
	if err != nil {
		return fmt.Errorf("read dead letter: %w", err)
	}
	e := r.Envelope
	e.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	e.Metadata.RetryCount = 0
	m, err := b.opts.Signing.Seal(e)
	if err == nil {
		err = b.Post(m, book.Record{Kind: kindDead, Key: found.name})
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = slices.DeleteFunc(b.dead, func(d deadEntry) bool { return d.name == found.name })
	return nil
}
