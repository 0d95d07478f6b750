package longconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// How long an acknowledgement is waited for. A bot that never acknowledged
// anything may have lost the frame (FEISHU.md 11.1); one that did is slow.
const (
	firstWait = 3 * time.Second
	slowWait  = 15 * time.Second
	longWait  = 5 * time.Minute
	probeWait = 5 * time.Second // for a WebSocket pong, where there is another connection to turn to
)

// injection is an event of ours on its way to the bot.
type injection struct {
	once      sync.Once
	delivered chan struct{} // closed when the bot has acknowledged it with 200
	failed    chan struct{} // has an element after another code
}

// Inject writes an event, the JSON of its 2.0 envelope, to the bot and returns
// nil once the bot has acknowledged it with 200, and else not before ctx is done.
// It waits for a connection, and for the next one where this one ends; what is
// not acknowledged is written again, under the same message_id. Calls run side
// by side, without an order among them. It keeps event until it returns.
func (s *Server) Inject(ctx context.Context, event []byte) error {
	id := ourPrefix + rand.Text()
	in := &injection{delivered: make(chan struct{}), failed: make(chan struct{}, 1)}
	s.mu.Lock()
	full := len(s.pending) >= maxInjecting
	if !full {
		s.pending[id] = in
	}
	s.mu.Unlock()
	if full {
		return ErrBusy
	}
	defer func() {
		s.mu.Lock()
		delete(s.pending, id)
		s.mu.Unlock()
	}()

	var l *link
	var wait time.Duration
	for word := "injected"; ; word = "redelivered" {
		next, err := s.next(ctx, in, l)
		if next == nil {
			return err
		}
		switch {
		case next != l && next.acked.Load():
			wait = slowWait
		case next != l:
			wait = firstWait
		case wait == firstWait:
			wait = slowWait
		default:
			wait = longWait
		}
		l = next
		frame, err := newEvent(id, l.service, event, time.Now())
		if err != nil {
			return fmt.Errorf("encode an event's frame: %w", err)
		}
		if !l.toBot(websocket.MessageBinary, frame) {
			continue
		}
		s.Counter(word)
		if again, err := s.receipt(ctx, in, l, &wait); !again {
			return err
		}
	}
}

// next returns the connection for an injection: the one it was written to, l,
// as long as the bot behind it lives, else the best of the others. It waits
// for one. Where it returns none, the injection has ended with err.
func (s *Server) next(ctx context.Context, in *injection, l *link) (*link, error) {
	for {
		s.mu.Lock()
		arrived, other := s.arrived, s.pick(l)
		s.mu.Unlock()
		stays := l != nil && !l.isEnded() && (other == nil || l.lives(ctx))
		select { // what has ended goes first
		case <-in.delivered:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing:
			return nil, ErrClosed
		default:
		}
		switch {
		case stays:
			return l, nil
		case other != nil:
			return other, nil
		}
		select {
		case <-arrived:
		case <-in.delivered:
		case <-ctx.Done():
		case <-s.closing:
		}
	}
}

// lives reports whether the bot's side of the WebSocket answers.
func (l *link) lives(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	return l.bot.Ping(ctx) == nil
}

// receipt waits for the acknowledgement of what was written to l. again says
// that it is to be written once more. A bot that says that it failed is
// treated as one that says nothing, except that the frame has not been lost.
func (s *Server) receipt(ctx context.Context, in *injection, l *link, wait *time.Duration) (again bool, err error) {
	patience := time.NewTimer(*wait)
	defer patience.Stop()
	for {
		select {
		case <-in.delivered:
			return false, nil
		case <-in.failed:
			if *wait == firstWait {
				*wait = slowWait
				patience.Reset(*wait)
			}
		case <-patience.C:
			l.owes.Store(true)
			return true, nil
		case <-l.ended:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.closing:
			return false, ErrClosed
		}
	}
}

// acknowledged takes the bot's word for a frame of ours.
func (s *Server) acknowledged(l *link, f *frame) {
	code := f.ackCode()
	s.mu.Lock()
	in := s.pending[f.id]
	s.mu.Unlock()
	if in == nil {
		s.Counter("late_ack")
		return
	}
	if code != ackOK {
		s.Counter("ack_error")
		s.log.Warn("the bot could not handle an event of ours; it gets it again", "app", l.app, "code", code)
		select {
		case in.failed <- struct{}{}:
		default:
		}
		return
	}
	l.accepts.Store(true)
	in.once.Do(func() {
		s.Counter("delivered")
		close(in.delivered)
	})
}
