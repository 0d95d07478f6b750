package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

// Line is the WebSocket of an agent that keeps one open.
type Line interface {
	// Handle takes an envelope that the agent sent, and returns what answers it
	// on the same line, or nil.
	Handle(ctx context.Context, e mailbox.Envelope) (*mailbox.Envelope, error)
	// Done is closed when another line of the agent took over.
	Done() <-chan struct{}
	// Close ends the line: mail waits from then on.
	Close()
}

// line is the WebSocket of a bot that keeps one open (docs/protocol.md 6.9): the newest
// counts.
type line struct {
	a    *Agent
	send Send
	done chan struct{}
	end  func() // closes done
}

// Send writes an envelope on a line and calls written. It returns when it is clear that the bot's
// side has read the whole of it, which may be later; if the bot has to acknowledge it, when it is
// written. Its calls do not overlap until written.
type Send func(ctx context.Context, e mailbox.Envelope, written func()) error

// giveLine writes d on the bot's line. Where its sender asked for an acknowledgement, it waits
// until the bot has given one ([Agent.Ack] cancels ctx then).
func (a *Agent) giveLine(ctx context.Context, d Delivery, on Progress) error {
	now := a.line.Load()
	if now == nil {
		return ErrNoChannel
	}
	err := now.send(ctx, d.Envelope, func() {
		on.Written()
		on.Next()
	})
	if err != nil || !d.Metadata.RequiresAck {
		return err
	}
	select {
	case <-now.done:
		return errors.New("the line closed before the bot acknowledged")
	case <-time.After(a.opts.DeliveryTimeout):
		return fmt.Errorf("%w: no acknowledgement within %s", ErrTimedOut, a.opts.DeliveryTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Attach makes send the bot's line; an earlier one is closed. A call may still be under way when
// the line closes: it has to return an error then.
func (a *Agent) Attach(send Send) Line {
	now := &line{a: a, send: send, done: make(chan struct{})}
	now.end = sync.OnceFunc(func() { close(now.done) })
	if before := a.line.Swap(now); before != nil {
		before.end()
	}
	a.opened()
	return now
}

func (l *line) Done() <-chan struct{} { return l.done }

func (l *line) Close() {
	l.a.line.CompareAndSwap(l, nil)
	l.end()
}

// Handle takes an envelope that the bot sent. What it sends to another agent is
// acknowledged, where it asks for that, as soon as it is safe here: from then on
// it is this side that tries again.
func (l *line) Handle(ctx context.Context, e mailbox.Envelope) (*mailbox.Envelope, error) {
	a, now := l.a, time.Now()
	switch e.Type {
	case mailbox.TypeRegister:
		a.Announce()
		return new(mailbox.RegisteredFor(e, a.opts.Self, now)), nil
	case mailbox.TypeHeartbeat:
		a.Announce()
		if !e.Metadata.RequiresAck {
			return nil, nil
		}
		return new(mailbox.AckFor(e, a.opts.Self, now)), nil
	case mailbox.TypePing:
		if e.To == a.opts.Self || e.To == "" {
			return new(mailbox.PongFor(e, a.opts.Self, now)), nil
		}
	case mailbox.TypePong:
		return nil, nil
	case mailbox.TypeAck:
		if id := mailbox.Original(e); a.Waits(id) && a.Ack(ctx, id) == nil {
			return nil, nil
		}
	}
	if _, err := a.Send(ctx, Draft{Envelope: e}); err != nil {
		return nil, err
	}
	if !e.Metadata.RequiresAck || e.Type == mailbox.TypeAck || e.Type == mailbox.TypeNack {
		return nil, nil
	}
	return new(mailbox.AckFor(e, a.opts.Self, now)), nil
}

// refusedWith is a bot's nack.
type refusedWith struct {
	code    mailbox.Code
	message string
}

func (r *refusedWith) Error() string {
	if r.message == "" {
		return string(r.code)
	}
	return string(r.code) + ": " + r.message
}
func (r *refusedWith) Is(target error) bool { return target == ErrRefused }
