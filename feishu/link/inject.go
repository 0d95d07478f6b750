package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
)

const (
	maxInjecting = 4096 // calls of Inject that wait; one more fails with ErrBusy
	maxLate      = 1000 // injected events that are remembered whose caller has stopped waiting
	// firstWait is for a bot that has not acknowledged anything; then the frame may be lost (docs/feishu.md 1.7).
	firstWait   = 3 * time.Second
	pingTimeout = 5 * time.Second // for a WebSocket pong

	// idPrefix begins the id of every injected event, by which the bot's answer is recognized.
	idPrefix = "relay-"
)

// Both say that nothing was written.
var (
	// ErrBusy is returned when too many events wait for the bot's answer.
	ErrBusy = fmt.Errorf("%w: too many events wait for its answer", feishu.ErrNotInjected)
	// ErrClosed is returned after Close.
	ErrClosed = fmt.Errorf("%w: the connection is closed", feishu.ErrNotInjected)
)

// injections are the injected events that the bot has not answered. A bot answers on the connection that it has by then.
type injections struct {
	mu      sync.Mutex
	waiting map[string]chan int        // by id, for the code of the first answer; guarded by mu
	late    *lru.Cache[string, func()] // Injection.Late of those whose caller has stopped waiting
}

func newInjections() *injections {
	late, _ := lru.New[string, func()](maxLate) // fails only for a size below 1
	return &injections{waiting: map[string]chan int{}, late: late}
}

func (s *injections) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// begin adds an event that is about to be written. The caller calls end.
func (s *injections) begin() (id string, answer chan int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxInjecting {
		return "", nil, ErrBusy
	}
	id, answer = idPrefix+rand.Text(), make(chan int, 1)
	s.waiting[id] = answer
	return id, answer, nil
}

// end ends the wait for an answer. late is called for one that comes later; nil: nothing was written, or it has come.
func (s *injections) end(id string, late func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
	if late != nil {
		s.late.Add(id, late)
	}
}

// answered records the bot's acknowledgement of an injected event, which may have been written twice.
func (l *link) answered(id string, code int) {
	ok, first := code == http.StatusOK, false
	if !ok {
		l.Counter(AckError)
		l.Logger.Warn("the bot failed to handle an injected event", "code", code)
	} else {
		l.accepts.Store(true)
	}
	s := l.injections
	s.mu.Lock()
	select {
	case s.waiting[id] <- code: // nil: nobody waits
		first = true
	default:
	}
	late, _ := s.late.Get(id)
	if ok {
		s.late.Remove(id)
	}
	s.mu.Unlock()
	switch {
	case ok && first:
		l.Counter(Delivered)
	case ok && late != nil:
		l.Counter(countedLateAck)
		late()
	}
}

// Inject writes an event to the bot once and returns nil when the bot acknowledged it with 200. It returns
// [feishu.AnswerError] for another code, [feishu.ErrNotInjected] without a connection, [feishu.ErrInjectionEnded] when
// that ended first, [ErrBusy], [ErrClosed], or the error of ctx.
//
// A bot that has acknowledged nothing on its connection may have lost the frame (docs/feishu.md 1.7). It is written to
// that connection a second time after 3 s, unless the bot has pinged and answers WebSocket pings. A connection whose bot
// does not answer those is ended when the bot opens another one.
//
// Calls run side by side, without an order among them.
func (s *Server) Inject(ctx context.Context, in feishu.Injection) error {
	if s.closing.Err() != nil {
		return ErrClosed
	}
	l, _ := s.pick(nil)
	if l == nil {
		return feishu.ErrNotInjected
	}
	id, answer, err := s.injections.begin()
	if err != nil {
		return err
	}
	frame := newEvent(id, l.service, in.Event)
	in.Event = nil // it may be large, and the bot may think for long
	code, err := s.write(ctx, l, frame, in, answer)
	late := in.Late
	if late == nil {
		late = func() {}
	}
	if err == nil || errors.Is(err, feishu.ErrNotInjected) {
		late = nil
	}
	s.injections.end(id, late)
	if err != nil {
		select {
		case code = <-answer: // it came meanwhile
		default:
			return err
		}
	}
	if code != http.StatusOK {
		return &feishu.AnswerError{Code: code}
	}
	return nil
}

// write writes the frame of an event to l and waits for the code of the bot's answer.
func (s *Server) write(ctx context.Context, l *link, frame []byte, in feishu.Injection, answer <-chan int) (int, error) {
	if !l.toBot(websocket.MessageBinary, frame) {
		return 0, feishu.ErrInjectionEnded // it may have been written
	}
	if in.Again {
		s.Counter(Redelivered)
	} else {
		s.Counter(Injected)
	}
	if in.Written != nil {
		in.Written(l.ended.Done())
	}
	var lost <-chan time.Time
	if l.acked.Load() {
		frame = nil
	} else {
		timer := time.NewTimer(firstWait)
		defer timer.Stop()
		lost = timer.C
	}
	for {
		other, changed := s.pick(l)
		select {
		case code := <-answer:
			return code, nil
		case <-lost:
			again := frame
			lost, frame = nil, nil
			if l.acked.Load() || l.pinged.Load() && l.answersPings(ctx) {
				continue
			}
			s.Counter(Redelivered)
			if !l.toBot(websocket.MessageBinary, again) {
				return 0, feishu.ErrInjectionEnded
			}
		case <-changed:
			if now, _ := s.pick(l); now != nil && now != other && !l.answersPings(ctx) && ctx.Err() == nil {
				l.end(botDead)
			}
		case <-l.ended.Done():
			return 0, feishu.ErrInjectionEnded
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.closing.Done():
			return 0, ErrClosed
		}
	}
}
