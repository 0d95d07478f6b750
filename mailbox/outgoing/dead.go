package outgoing

import (
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

// grave is where a dead letter lies.
type grave struct {
	name string // of its file, without suffix: the same as while it waited
	ref  ref
	at   time.Time
}

// letter is what a dead letter's file holds.
type letter struct {
	ID       string          `json:"id"`
	Code     mailbox.Code    `json:"code"`
	Reason   string          `json:"reason"`
	Attempts int             `json:"attempts"`
	DeadAt   time.Time       `json:"dead_at"`
	Expired  bool            `json:"expired,omitempty"`
	Envelope json.RawMessage `json:"envelope"`
}

// die ends n, and returns what became of it when that is on disk; else Run goes
// on trying. b.mu is held.
func (b *Box) die(n *entry, code mailbox.Code, reason string) []DeadLetter {
	now := time.Now().Round(0).UTC()
	n.end = &DeadLetter{ID: n.ref.id, Code: code, Reason: reason, Attempts: n.attempts(), DeadAt: now,
		Expired: n.expired(now)}
	return b.bury(n)
}

// bury makes n, which is dead, a dead letter.
func (b *Box) bury(n *entry) []DeadLetter {
	d := *n.end
	raw, e, err := b.load(n)
	if n.gone {
		return nil
	}
	if err == nil || errors.Is(err, errUnsigned) {
		d.Envelope = e
		err = write(b.dead, n.name+buried, letter{d.ID, d.Code, d.Reason, d.Attempts, d.DeadAt, d.Expired, raw})
	}
	if err != nil {
		b.opts.Logger.Warn("write down a dead letter; tried again soon", "to", n.ref.to, "message_id", d.ID, "err", err)
		n.hold = time.Now().Add(lookEvery)
		b.replan(n)
		return nil
	}
	// Whoever gets it from here tells people.
	b.opts.Logger.Debug("a message could not be delivered; it is a dead letter now",
		"to", n.ref.to, "message_id", d.ID, "code", d.Code, "attempts", d.Attempts)
	b.graves = append(b.graves, grave{n.name, n.ref, d.DeadAt})
	b.pruneGraves()
	b.drop(n)
	return []DeadLetter{d}
}

// exhume reads a dead letter.
func (b *Box) exhume(name string) (DeadLetter, error) {
	l, err := read[letter](b.dead, name+buried)
	if err != nil {
		return DeadLetter{}, err
	}
	e, err := b.decode(l.Envelope)
	return DeadLetter{e.ID, l.Code, l.Reason, l.Attempts, l.DeadAt, l.Expired, e}, err
}

// IsDead reports whether a message to an agent is among the dead letters.
func (b *Box) IsDead(id string, to mailbox.AgentID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.graves, func(g grave) bool { return g.ref == ref{id, to} })
}

// forget removes a dead letter. b.mu is held, here and below.
func (b *Box) forget(g grave) {
	b.graves = slices.DeleteFunc(b.graves, func(x grave) bool { return x.name == g.name })
	b.remove(b.dead, g.name+buried)
}

func (b *Box) pruneGraves() {
	for len(b.graves) > maxDead {
		b.opts.Logger.Warn("too many dead letters; the oldest is removed", "message_id", b.graves[0].ref.id,
			"to", b.graves[0].ref.to, "kept", maxDead)
		b.forget(b.graves[0])
	}
}

func (b *Box) isBuried(name string) bool {
	return slices.ContainsFunc(b.graves, func(g grave) bool { return g.name == name })
}

// DeadLetters returns the dead letters, the newest first. With an error, it
// returns those that could be read.
func (b *Box) DeadLetters() (all []DeadLetter, err error) {
	b.mu.Lock()
	graves := slices.Clone(b.graves)
	b.mu.Unlock()
	for _, g := range slices.Backward(graves) {
		d, e := b.exhume(g.name)
		switch {
		case e == nil, errors.Is(e, errUnsigned):
			all = append(all, d)
		case !errors.Is(e, fs.ErrNotExist): // acknowledged late, just now, or removed by somebody
			err = errors.Join(err, fmt.Errorf("read dead letter %s: %w", g.name, e))
		}
	}
	return all, err
}

// Replay sends a dead letter anew: under the same id, as if for the first time.
// The dead letter goes away when the message is safe (see [Box.Send], whose
// errors these are). An id that no dead letter has is a [*mailbox.Error] about
// the field "id".
func (b *Box) Replay(ctx context.Context, id string) error {
	b.replaying.Lock()
	defer b.replaying.Unlock()
	b.mu.Lock()
	var found *grave
	for _, g := range slices.Backward(b.graves) {
		if g.ref.id == id {
			found = &g
			break
		}
	}
	b.mu.Unlock()
	if found == nil {
		return mailbox.Invalid("id", "there is no dead letter %.200q", id)
	}
	d, err := b.exhume(found.name)
	if errors.Is(err, errUnsigned) {
		return mailbox.Invalid("id", "dead letter %.200q is not signed with the RELAY_SECRET of now; send its text anew", id)
	}
	if err != nil {
		return fmt.Errorf("read dead letter: %w", err)
	}
	e := d.Envelope
	e.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	e.Metadata.RetryCount = 0
	if err := b.Send(ctx, e); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(*found)
	return nil
}
