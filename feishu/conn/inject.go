package conn

import (
	"crypto/rand"
	"errors"
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

// IDPrefix begins the id of every injected event, by which the bot's answer is recognized.
const IDPrefix = "relay-"

// Injections are the injected events that a bot has not answered yet.
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

// Waiting is an injected event that waits for the bot's answer.
type Waiting struct {
	ID  string
	in  feishu.Injection
	set *Injections

	answered chan struct{} // closed with the first answer, with mu of set held
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

// Answered records the bot's answer to the event id, the code of an acknowledgement or of HTTP.
func (s *Injections) Answered(id string, code int) {
	ok := code == http.StatusOK
	if !ok {
		s.count(AckError)
		s.log.Warn("the bot failed to handle an injected event", "code", code)
	}
	s.mu.Lock()
	w := s.waiting[id]
	first := w != nil && !w.hasAnswer() // the event may have been written twice
	if first {
		w.code = code
		close(w.answered)
	}
	late, _ := s.late.Get(id)
	if ok {
		s.late.Remove(id)
	}
	s.mu.Unlock()
	switch {
	case !ok:
	case first:
		s.count(Delivered)
	case w == nil:
		s.count(LateAck)
		if late != nil {
			late()
		}
	}
}

// Written records that the event was written whole, on a connection at whose end ended is closed.
func (w *Waiting) Written(ended <-chan struct{}) {
	if w.in.Again {
		w.set.count(Redelivered)
	} else {
		w.set.count(Injected)
	}
	if w.in.Written != nil {
		w.in.Written(ended)
	}
}

// Answered is closed when the bot has answered.
func (w *Waiting) Answered() <-chan struct{} { return w.answered }

func (w *Waiting) hasAnswer() bool {
	select {
	case <-w.answered:
		return true
	default:
		return false
	}
}

// End ends the wait and returns its result: nil if the bot answered 200, a [feishu.AnswerError] for another
// code, and err without an answer. If the event was written, Late is called for an answer that comes later, also
// on another connection: a bot answers on the one that it has by then.
func (w *Waiting) End(err error) error {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	delete(w.set.waiting, w.ID)
	switch {
	case w.hasAnswer() && w.code == http.StatusOK:
		return nil
	case w.hasAnswer():
		return &feishu.AnswerError{Code: w.code}
	case w.in.Late != nil && !errors.Is(err, feishu.ErrNotInjected):
		w.set.late.Add(w.ID, w.in.Late)
	}
	return err
}
