package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"feishu-relay/mailbox"
)

// maxDead is the most dead letters kept; beyond it the oldest is removed, with a warning.
const maxDead = 1000

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

// deadFile is what a dead letter's file holds: its envelope as it was sent last.
type deadFile struct {
	DeadLetter
	Envelope json.RawMessage `json:"envelope"`
}

// makeDead makes n a dead letter. b.mu is held.
func (b *outgoing) makeDead(n *entry, code mailbox.Code, reason string) {
	now := time.Now().Round(0).UTC()
	n.dead = &DeadLetter{ID: n.id, Code: code, Reason: reason, Attempts: n.attempts(), DeadAt: now,
		Expired: n.expired(now)}
	b.writeDead(n)
}

// writeDead writes the dead letter that n is; where that fails, Run tries it again. b.mu is
// held.
func (b *outgoing) writeDead(n *entry) {
	d := *n.dead
	m, err := b.load(n)
	if n.gone {
		return
	}
	if err == nil || errors.Is(err, errUnsigned) {
		d.Envelope = m.Envelope
		err = b.dead.Save(n.name, deadFile{d, m.Raw})
	}
	if err != nil {
		b.opts.Logger.Warn("write down a dead letter; tried again soon", "to", n.to, "message_id", d.ID, "err", err)
		n.hold = time.Now().Add(lookEvery)
		b.plan(n)
		return
	}
	// Who is called with it logs it for people.
	b.opts.Logger.Debug("a message could not be delivered; it is a dead letter now",
		"to", n.to, "message_id", d.ID, "code", d.Code, "attempts", d.Attempts)
	b.drop(n)
	b.deadEntries = append(b.deadEntries, n)
	b.pruneDead()
	b.newlyDead = append(b.newlyDead, d)
}

// readDead reads a dead letter.
func (b *outgoing) readDead(name string) (DeadLetter, error) {
	f, err := b.dead.Read(name)
	if err != nil {
		return DeadLetter{}, err
	}
	return b.deadLetter(f)
}

func (b *outgoing) deadLetter(f deadFile) (DeadLetter, error) {
	d := f.DeadLetter
	e, err := b.decode(f.Envelope)
	d.ID, d.Envelope = e.ID, e
	return d, err
}

// loadDead reads which dead letters there are.
func (b *outgoing) loadDead() error {
	err := b.dead.Load(func(name string, f deadFile) error {
		d, err := b.deadLetter(f)
		if err != nil && !errors.Is(err, errUnsigned) {
			return err
		}
		n := &entry{name: name, id: d.ID, to: d.Envelope.To, dead: &DeadLetter{DeadAt: d.DeadAt}}
		b.deadEntries = append(b.deadEntries, n)
		return nil
	})
	slices.SortFunc(b.deadEntries, func(x, y *entry) int {
		return cmp.Or(x.dead.DeadAt.Compare(y.dead.DeadAt), cmp.Compare(x.name, y.name))
	})
	b.pruneDead()
	return err
}

// IsDead reports whether a message to an agent is among the dead letters.
func (b *outgoing) IsDead(id string, to mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.deadEntries, func(n *entry) bool { return n.id == id && n.to == to })
}

// removeDead removes the dead letters that which picks, and reports whether there were any.
// b.mu is held, here and below.
func (b *outgoing) removeDead(which func(*entry) bool) bool {
	before := len(b.deadEntries)
	b.deadEntries = slices.DeleteFunc(b.deadEntries, func(n *entry) bool {
		if which(n) {
			b.dead.Remove(n.name)
			return true
		}
		return false
	})
	return len(b.deadEntries) < before
}

func (b *outgoing) pruneDead() {
	for ; len(b.deadEntries) > maxDead; b.deadEntries = b.deadEntries[1:] {
		oldest := b.deadEntries[0]
		b.opts.Logger.Warn("too many dead letters; the oldest is removed", "message_id", oldest.id, "to", oldest.to,
			"kept", maxDead)
		b.dead.Remove(oldest.name)
	}
}

// DeadLetters returns the dead letters, the newest first. With an error, it
// returns those that could be read.
func (b *outgoing) DeadLetters() (all []DeadLetter, err error) {
	b.mu.Lock()
	entries := slices.Clone(b.deadEntries)
	b.mu.Unlock()
	for _, n := range slices.Backward(entries) {
		d, e := b.readDead(n.name)
		switch {
		case e == nil, errors.Is(e, errUnsigned):
			all = append(all, d)
		case !errors.Is(e, fs.ErrNotExist): // acknowledged late, just now, or removed by somebody
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
	var found *entry
	for _, n := range b.deadEntries { // the newest
		if n.id == id {
			found = n
		}
	}
	b.mu.Unlock()
	if found == nil {
		return mailbox.Invalid("id", "there is no dead letter %.200q", id)
	}
	d, err := b.readDead(found.name)
	if errors.Is(err, errUnsigned) {
		return mailbox.Invalid("id", "dead letter %.200q is not signed with the current RELAY_SECRET: send its text again",
			id)
	}
	if err != nil {
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
	b.removeDead(func(n *entry) bool { return n == found })
	return nil
}
