package conn

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
)

// Both say that nothing was written.
var (
	// ErrBusy is returned when too many events wait for the bot's answer.
	ErrBusy = fmt.Errorf("%w: too many events wait for its answer", feishu.ErrNotInjected)
	// ErrClosed is returned after Close.
	ErrClosed = fmt.Errorf("%w: the connection is closed", feishu.ErrNotInjected)
)

// maxLate is how many events are remembered whose caller has stopped waiting for the answer.
const maxLate = 1000

// IDPrefix begins the id of every event of ours, by which the bot's answer is known.
const IDPrefix = "relay-"

// Injections are the events of our own that a bot has been sent and not answered yet.
type Injections struct {
	max   int
	count func(feishu.Counted)
	log   *slog.Logger

	mu      sync.Mutex
	waiting map[string]*Waiting        // by id; guarded by mu
	late    *lru.Cache[string, func()] // Late of those whose caller has stopped waiting, by id
}

// NewInjections returns an empty set of at most max.
func NewInjections(max int, count func(feishu.Counted), log *slog.Logger) *Injections {
	late, _ := lru.New[string, func()](maxLate) // fails only for a size below 1
	return &Injections{max: max, count: count, log: log, waiting: make(map[string]*Waiting), late: late}
}

// Waiting is an event of ours that waits for the bot's answer.
type Waiting struct {
	ID  string
	in  feishu.Injection
	set *Injections

	once     sync.Once
	answered chan struct{} // closed with the first answer
	code     int           // of it
}

// Begin adds an event that is about to be written. The caller calls End.
func (s *Injections) Begin(in feishu.Injection) (*Waiting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= s.max {
		return nil, ErrBusy
	}
	w := &Waiting{ID: IDPrefix + rand.Text(), in: in, set: s, answered: make(chan struct{})}
	s.waiting[w.ID] = w
	return w, nil
}

// Len is how many events wait.
func (s *Injections) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Answered takes the bot's answer to the event id, of an acknowledgement or of HTTP.
func (s *Injections) Answered(id string, code int) {
	ok := code == http.StatusOK
	if !ok {
		s.count(AckError)
		s.log.Warn("the bot could not handle an event of ours", "code", code)
	}
	s.mu.Lock()
	w := s.waiting[id]
	late, _ := s.late.Get(id)
	s.mu.Unlock()
	switch {
	case w != nil:
		w.once.Do(func() { // the event may have been written twice
			w.code = code
			close(w.answered)
			if ok {
				s.count(Delivered)
			}
		})
	case ok:
		s.count(LateAck)
		if s.late.Remove(id); late != nil {
			late()
		}
	}
}

// Written notes that the event was written whole, on a connection that closes ended with its end.
func (w *Waiting) Written(ended <-chan struct{}) {
	if w.in.Again {
		w.set.count(Redelivered)
	} else {
		w.set.count(Injected)
	}
	w.in.Wrote(ended)
}

// Answered is closed when the bot has answered.
func (w *Waiting) Answered() <-chan struct{} { return w.answered }

// Result is nil where the bot answered 200, a [feishu.AnswerError] for another code, and err
// without an answer.
func (w *Waiting) Result(err error) error {
	select {
	case <-w.answered:
		if w.code == http.StatusOK {
			return nil
		}
		return &feishu.AnswerError{Code: w.code}
	default:
		return err
	}
}

// End ends the wait. Where ctx ended it, an answer that comes later counts all the same.
func (w *Waiting) End(ctx context.Context) {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	delete(w.set.waiting, w.ID)
	if ctx.Err() != nil && w.in.Late != nil {
		w.set.late.Add(w.ID, w.in.Late)
	}
}
