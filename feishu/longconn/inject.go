package longconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/feishu"
)

const (
	// for a bot that has acknowledged nothing; then the frame may be lost (docs/feishu.md 1.7)
	firstWait = 3 * time.Second
	probeWait = 5 * time.Second // for a WebSocket pong
)

// injection is an event of ours that the bot has not acknowledged.
type injection struct {
	codes chan int // of acknowledgements, the first one
}

// Inject writes an event to the bot once and returns nil when the bot
// acknowledged it with 200. It returns [feishu.AnswerError] for another code,
// [feishu.ErrNotInjected] without a connection, [feishu.ErrInjectionEnded] when
// that ended first, ErrBusy, ErrClosed, or the error of ctx.
//
// A bot that has acknowledged nothing on its connection may have lost the frame
// (docs/feishu.md 1.7). It is written to that connection a second time after 3 s,
// unless the bot has pinged and answers WebSocket pings. A connection whose bot
// does not answer those is ended when the bot opens another one.
//
// Calls run side by side, without an order among them.
func (s *Server) Inject(ctx context.Context, in feishu.Injection) error {
	id := ourPrefix + rand.Text()
	l, p, err := s.expect(id)
	if err != nil {
		return err
	}
	defer s.forget(ctx, id, in.Late)
	frame, err := newEvent(id, l.service, in.Event, time.Now())
	if err != nil {
		return fmt.Errorf("encode an event's frame: %w", err)
	}
	if !l.toBot(websocket.MessageBinary, frame) {
		return feishu.ErrInjectionEnded // it may have been written
	}
	if in.Again {
		s.Counter("redelivered")
	} else {
		s.Counter("injected")
	}
	in.Wrote(l.ended)

	var lost <-chan time.Time
	if !l.acked.Load() {
		timer := time.NewTimer(firstWait)
		defer timer.Stop()
		lost = timer.C
	}
	for {
		s.mu.Lock()
		arrived := s.arrived
		s.mu.Unlock()
		select {
		case code := <-p.codes:
			if code == ackOK {
				return nil
			}
			return &feishu.AnswerError{Code: code}
		case <-lost:
			lost = nil
			if l.acked.Load() || l.pinged.Load() && l.lives(ctx) {
				continue
			}
			s.Counter("redelivered")
			if !l.toBot(websocket.MessageBinary, frame) {
				return feishu.ErrInjectionEnded
			}
		case <-arrived:
			s.mu.Lock()
			other := s.pick(l)
			s.mu.Unlock()
			if other != nil && !l.lives(ctx) && ctx.Err() == nil {
				l.end(ending{"bot_silent", websocket.StatusGoingAway, "no answer to a ping"})
			}
		case <-l.ended:
			return p.otherwise(feishu.ErrInjectionEnded)
		case <-ctx.Done():
			return p.otherwise(ctx.Err())
		case <-s.closing:
			return ErrClosed
		}
	}
}

// expect registers an injection and returns the connection for it.
func (s *Server) expect(id string) (*link, *injection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	if len(s.pending) >= maxInjecting {
		return nil, nil, ErrBusy
	}
	l := s.pick(nil)
	if l == nil {
		return nil, nil, feishu.ErrNotInjected
	}
	p := &injection{codes: make(chan int, 1)}
	s.pending[id] = p
	return l, p, nil
}

// forget ends an injection. Where its context ended it, a later acknowledgement
// still counts.
func (s *Server) forget(ctx context.Context, id string, late func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
	if ctx.Err() != nil && late != nil {
		s.late.Add(id, late)
	}
}

// otherwise is err, unless the bot acknowledged the event in that moment.
func (p *injection) otherwise(err error) error {
	select {
	case code := <-p.codes:
		if code == ackOK {
			return nil
		}
	default:
	}
	return err
}

// lives reports whether the bot's side of the WebSocket answers.
func (l *link) lives(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	return l.bot.Ping(ctx) == nil
}

// acknowledged takes the bot's acknowledgement of a frame of ours.
func (s *Server) acknowledged(l *link, f *frame) {
	code := f.ackCode()
	s.mu.Lock()
	p := s.pending[f.id]
	late, _ := s.late.Get(f.id)
	s.mu.Unlock()
	if code == ackOK {
		l.accepts.Store(true)
	} else {
		s.Counter("ack_error")
		s.log.Warn("the bot could not handle an event of ours", "app", l.app, "code", code)
	}
	switch {
	case p != nil:
		select {
		case p.codes <- code:
			if code == ackOK {
				s.Counter("delivered")
			}
		default: // of the second write
		}
	case code != ackOK:
	default:
		s.Counter("late_ack")
		if late != nil {
			s.late.Remove(f.id)
			late()
		}
	}
}
