package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"feishu-relay/relay"
)

// ErrUnknown means that this bot was not given a message of that id.
var ErrUnknown = errors.New("this bot was not given a message of that id")

// ConflictError means that a message was settled differently before.
type ConflictError struct{ State State }

func (e *ConflictError) Error() string {
	state := e.State
	if state == TimedOut {
		state = "undeliverable" // the word of the API
	}
	return fmt.Sprintf("the message was settled before: it is %s", state)
}

// Settle settles a message that the bot was given as Delivered, Refused (with a
// reason) or Retry. A repeat has no effect. It returns [ErrUnknown], a
// [ConflictError], or the error of ctx if that ends before the settlement has
// taken effect; it takes effect even then.
func (d *Deliveries) Settle(ctx context.Context, id relay.MessageID, to State, reason string) error {
	over, err := d.settle(id, to, reason)
	if over == nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	p, ok := d.ended.Get(id)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	return d.settleEnded(p, to)
}

// Acknowledge is Settle as Delivered, without waiting.
func (d *Deliveries) Acknowledge(id relay.MessageID) { _, _ = d.settle(id, Delivered, "") }

// settle returns a channel that is closed when the message has ended; nil if
// there is nothing to wait for.
func (d *Deliveries) settle(id relay.MessageID, to State, reason string) (over <-chan struct{}, err error) {
	d.mu.Lock()
	e := d.find(id)
	if e == nil {
		p, ok := d.ended.Get(id)
		d.mu.Unlock()
		if !ok {
			return nil, ErrUnknown
		}
		return nil, d.settleEnded(p, to)
	}
	defer d.mu.Unlock()
	switch {
	case !e.tried:
		return nil, ErrUnknown
	case to == Retry && (e.phase == pausing || e.phase == waiting):
		return nil, nil // it will be written again anyway
	}
	select {
	case e.settled <- settlement{to, reason}:
	default: // another settlement of it is about to take effect
	}
	if to == Retry {
		return nil, nil
	}
	return e.over, nil
}

// settleEnded settles a message that had ended. An answer after the timeout
// counts.
func (d *Deliveries) settleEnded(p *past, to State) error {
	d.mu.Lock()
	was, kept := p.State, p.answerCounts()
	late := to == Delivered && (was == TimedOut || was == Expired)
	if late {
		p.State, p.Err = Delivered, nil
	}
	r := p.Result
	d.mu.Unlock()
	switch {
	case late:
		d.opts.Late(p.Ref, r)
		if kept {
			d.remove(p.Key) // only now: after a crash before this an answer may still come
		}
		return nil
	case was == to, to == Refused && was == TimedOut: // both are undeliverable
		return nil
	}
	return &ConflictError{was}
}

// find returns the oldest message of this id that has not ended. The caller
// holds mu.
func (d *Deliveries) find(id relay.MessageID) *entry {
	var oldest *entry
	for _, e := range d.entries {
		if e.m.ID == id && (oldest == nil || e.begun.Before(oldest.begun)) {
			oldest = e
		}
	}
	return oldest
}

// Pending is a message in progress: the bot has it and has not answered.
type Pending struct {
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Channel    string          `json:"channel"`
	ChatID     relay.ChatID    `json:"chat_id"`
	Door       string          `json:"door"`
	Since      string          `json:"since"` // when it was written; RFC 3339, UTC, milliseconds
}

// InProgress lists the messages in progress, the oldest first.
func (d *Deliveries) InProgress() []Pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*entry
	for _, e := range d.entries {
		if e.phase == written || e.phase == accepted {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.m.Key, b.m.Key)) })
	out := make([]Pending, len(list))
	for i, e := range list {
		out[i] = Pending{e.m.ID, e.m.Ref.Channel, e.m.Chat, e.named, relay.Timestamp(e.since)}
	}
	return out
}

// Count is a number of messages, and since when the oldest counts.
type Count struct {
	Messages int
	Oldest   time.Duration
}

// Counts returns the number of messages still to be written to the bot, a first
// time or again, and of those in progress. Mail counts among the latter only.
func (d *Deliveries) Counts() (undelivered, inProgress Count) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		count, since := &undelivered, e.turn
		if e.phase == written || e.phase == accepted {
			count, since = &inProgress, e.since
		} else if e.m.Mail {
			continue
		}
		count.Messages++
		count.Oldest = max(count.Oldest, time.Since(since))
	}
	return undelivered, inProgress
}

// maxSpans is how many spans of the bot's presence are remembered.
const maxSpans = 64

// presence is when the bot was present: the newest spans, oldest first.
type presence struct {
	spans []span
}

type span struct {
	from, to time.Time // to is zero while it lasts
}

// note records whether the bot is present now.
func (p *presence) note(now time.Time, there bool) {
	last := len(p.spans) - 1
	lasts := last >= 0 && p.spans[last].to.IsZero()
	switch {
	case there && !lasts:
		p.spans = append(p.spans, span{from: now})
		if len(p.spans) > maxSpans {
			p.spans = slices.Delete(p.spans, 0, 1)
		}
	case !there && lasts:
		p.spans[last].to = now
	}
}

// between reports whether the bot was present at any time between from and to.
func (p *presence) between(from, to time.Time) bool {
	return slices.ContainsFunc(p.spans, func(s span) bool {
		return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
	})
}
