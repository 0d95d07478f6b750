package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

// Bounds of the dead letters that are kept; beyond them the oldest is removed, with a warning.
const (
	maxDead      = 1000
	maxDeadBytes = 64 << 20
)

// DeadLetter is a message that could not be delivered.
type DeadLetter struct {
	ID       string           `json:"id"` // the envelope's
	Code     mailbox.Code     `json:"code"`
	Reason   string           `json:"reason"`
	Attempts int              `json:"attempts"` // how often it was sent
	DeadAt   time.Time        `json:"dead_at"`
	Expired  bool             `json:"expired,omitempty"` // its life ended before it was taken
	Envelope mailbox.Envelope `json:"envelope"`
}

// deadRecord is a dead letter in the book, with its envelope as it was sent.
type deadRecord struct {
	DeadLetter
	To       mailbox.AgentID `json:"to"`
	Envelope json.RawMessage `json:"envelope"`
}

// deadEntry is what is in memory of a dead letter.
type deadEntry struct {
	name, id string
	to       mailbox.AgentID
}

// makeDead makes n a dead letter; if the book cannot, Run tries it again. b.mu is held.
func (b *outgoing) makeDead(n *entry, code mailbox.Code, reason string) {
	now := time.Now().Round(0).UTC()
	m, err := b.load(n)
	if n.gone {
		return
	}
	d := DeadLetter{ID: n.ID, Code: code, Reason: reason, Attempts: n.attempts(), DeadAt: now,
		Expired: !n.Expires.IsZero() && !now.Before(n.Expires), Envelope: m.Envelope}
	if err == nil || errors.Is(err, errUnsigned) {
		err = b.state.commit(append(gone(n),
			book.Record{Kind: kindDead, Key: n.name, Value: deadRecord{d, n.To, m.Raw}})...)
	}
	if err != nil {
		b.opts.Logger.Warn("write down a dead letter; tried again soon", "to", n.To, "message_id", d.ID, "err", err)
		n.hold = time.Now().Add(lookEvery)
		b.plan(n)
		return
	}
	// Who is called with it logs it for people.
	b.opts.Logger.Debug("a message could not be delivered; it is a dead letter now",
		"to", n.To, "message_id", d.ID, "code", d.Code, "attempts", d.Attempts)
	b.forget(n)
	b.dead = append(b.dead, &deadEntry{n.name, n.ID, n.To})
	for ; len(b.dead) > maxDead; b.dead = b.dead[1:] { // the book has removed it
		b.opts.Logger.Warn("too many dead letters; the oldest is removed", "message_id", b.dead[0].id, "to", b.dead[0].to,
			"kept", maxDead)
	}
	b.newlyDead = append(b.newlyDead, d)
}

func (b *outgoing) restoreDead(key string, value json.RawMessage) error {
	var d deadRecord
	err := json.Unmarshal(value, &d)
	b.dead = append(b.dead, &deadEntry{key, d.ID, d.To})
	return err
}

// readDead reads a dead letter; with errUnsigned it is one that cannot be sent.
func (b *outgoing) readDead(name string) (DeadLetter, error) {
	var r deadRecord
	if err := b.state.load(kindDead, name, &r); err != nil {
		return DeadLetter{}, err
	}
	d := r.DeadLetter
	var err error
	d.Envelope, err = b.decode(r.Envelope)
	return d, err
}

// IsDead reports whether a message to an agent is among the dead letters.
func (b *outgoing) IsDead(id string, to mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.dead, func(d *deadEntry) bool { return d.id == id && d.to == to })
}

// removeDead removes the dead letters that which picks, and reports whether there were any.
// b.mu is held.
func (b *outgoing) removeDead(which func(*deadEntry) bool) bool {
	var records []book.Record
	b.dead = slices.DeleteFunc(b.dead, func(d *deadEntry) bool {
		if which(d) {
			records = append(records, book.Record{Kind: kindDead, Key: d.name})
		}
		return which(d)
	})
	if len(records) == 0 {
		return false
	}
	if err := b.state.commit(records...); err != nil {
		b.opts.Logger.Warn("a dead letter that was delivered is there again after a restart", "err", err)
	}
	return true
}

// DeadLetters returns the dead letters, the newest first. With an error, it
// returns those that could be read.
func (b *outgoing) DeadLetters() (all []DeadLetter, err error) {
	b.mu.Lock()
	entries := slices.Clone(b.dead)
	b.mu.Unlock()
	for _, n := range slices.Backward(entries) {
		d, e := b.readDead(n.name)
		switch {
		case e == nil, errors.Is(e, errUnsigned):
			all = append(all, d)
		case !errors.Is(e, book.ErrNotFound): // acknowledged late, just now, or beyond the bounds
			err = errors.Join(err, fmt.Errorf("read dead letter %s: %w", n.name, e))
		}
	}
	return all, err
}

// Replay sends a dead letter under the same id, as if for the first time. The dead letter
// is removed when the message is safe (see [outgoing.Post], whose errors these are). An id that
// no dead letter has is a [*mailbox.Error] about the field "id".
func (b *outgoing) Replay(ctx context.Context, id string) error {
	b.replaying.Lock()
	defer b.replaying.Unlock()
	b.mu.Lock()
	var found *deadEntry
	for _, d := range b.dead { // the newest
		if d.id == id {
			found = d
		}
	}
	b.mu.Unlock()
	unknown := mailbox.Invalid("id", "there is no dead letter %.200q", id)
	if found == nil {
		return unknown
	}
	d, err := b.readDead(found.name)
	switch {
	case errors.Is(err, book.ErrNotFound):
		return unknown
	case errors.Is(err, errUnsigned):
		return mailbox.Invalid("id", "dead letter %.200q is not signed with the current RELAY_SECRET: send its text again",
			id)
	case err != nil:
		return fmt.Errorf("read dead letter: %w", err)
	}
	e := d.Envelope
	e.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	e.Metadata.RetryCount = 0
	m, err := b.opts.Signing.Seal(e)
	if err == nil {
		err = b.Post(ctx, m)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeDead(func(d *deadEntry) bool { return d == found })
	return nil
}
