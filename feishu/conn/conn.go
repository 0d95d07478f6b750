// Package conn is shared by the three packages that bring Feishu's events to a bot: longconn
// (the bot's own long connection), webhook (posts), and connector (a long connection that the
// sidecar opens for a bot without one).
//
//   - [Frame] is a message of the long connection, [Pieces] joins events that arrive in several
//     frames, [Endpoint] is the address that Feishu returns for the connection.
//   - [Tap] asks the sidecar about an event and runs what the sidecar wants done afterwards. A
//     slow or failing sidecar does not delay the bot's events.
//   - [Injections] are the injected events that were written to a bot, and its acknowledgements.
package conn

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// What is counted of events and of a tap, and of injected events.
const (
	TapSlow feishu.Counted = "tap_slow" // the tap took more than feishu.AckHold: the event passed
	// an event passed without a decision: too many calls of the tap are slow, or pieces are missing
	TapSkipped   feishu.Counted = "untapped"
	TapPanicked  feishu.Counted = "panic"         // the tap or one of its follow-ups panicked
	AfterDropped feishu.Counted = "after_dropped" // a follow-up of an event was dropped: too many wait
	Passed       feishu.Counted = "passed"        // an event went to the bot
	Kept         feishu.Counted = "kept"          // an event did not go to the bot, and was acknowledged to Feishu
	Refused      feishu.Counted = "refused"       // an event did not go to the bot, and Feishu will deliver it again
	Injected     feishu.Counted = "injected"      // an injected event went to the bot
	Redelivered  feishu.Counted = "redelivered"   // an injected event went to the bot again
	Delivered    feishu.Counted = "delivered"     // an injected event was acknowledged with 200
	AckError     feishu.Counted = "ack_error"     // an injected event was acknowledged with another code
	// an injected event was acknowledged when its caller no longer waited
	LateAck feishu.Counted = "late_ack"
	// an event came again while the bot works on it; it is refused, and Feishu will deliver it again
	InProgress feishu.Counted = "in_progress"
	// an event came again that the bot has answered with 200; it is acknowledged and dropped
	Repeated feishu.Counted = "repeated"
)

// Counted is what both the long connection and the webhook count.
var Counted = []feishu.Counted{
	TapSlow, TapSkipped, TapPanicked, AfterDropped, Passed, Kept, Refused, Injected, Redelivered, Delivered, AckError,
	InProgress, Repeated,
}

// Options are what the connections that carry events to a bot have in common.
type Options struct {
	// Tap sees the events before the bot; nil: no tap. If it panics or takes longer than [feishu.AckHold], the event
	// passes.
	Tap feishu.EventTap
	// Passed is called with an event that the bot got without Tap's decision, since Tap was slow or too many of its
	// calls are. If Tap stores it later, it must not deliver it to the bot.
	Passed func(event []byte)
	// Answered are the events that the bot has answered, which do not go to it again; nil: repeats are asked about. Each
	// has one key: a message's is its id, since Feishu may repeat it in another event. The caller closes it.
	Answered *dedup.Window
	// Own reports whether an app is the sidecar's own. Tap does not see the events of others, and nothing is injected
	// among them. Own does not call the connection. nil: all are.
	Own func(appID string) bool
	// Logger logs what happens to the connection, never contents.
	Logger *slog.Logger
	// Counter counts for metrics; its values are in Counted of the package.
	Counter func(feishu.Counted)
}

// Tap asks an event tap about events and runs its follow-ups.
type Tap struct {
	Options
	Default feishu.Verdict // if the event tap does not decide in time, or panics

	Patience time.Duration // for the event tap and its follow-up together, from the call on
	MaxSlow  int           // the most calls of the event tap beyond Patience at a time; then it is not called
	MaxTasks int           // the most follow-ups that wait; one more is dropped
	Workers  int           // the most follow-ups that run at a time; 1: in order
	Load     *Load         // counts for MaxSlow and MaxTasks; taps may share it

	Running *sync.WaitGroup // counts the tap's goroutines

	mu      sync.Mutex
	tasks   []func() // guarded by mu
	working int      // guarded by mu
}

// Load counts the slow calls and the waiting follow-ups of one or several taps.
type Load struct{ slow, tasks atomic.Int32 }

// Decision is what happens to an event.
type Decision struct {
	Verdict feishu.Verdict
	Instead []byte // what the bot gets instead of an event that passes; nil: the event
	Seen    bool   // false: the event tap has not decided

	tap      *Tap
	key      string         // claimed in Answered until Settle; "": it is not
	after    func()         // the follow-up; nil: none
	slow     chan *Decision // receives the decision of a slow event tap; else nil
	deadline time.Time
	once     sync.Once
	done     chan struct{} // closed when the follow-up is done; nil without one
}

// Ask asks about an event and returns the decision, after Patience at the latest. A repeat is decided without the event
// tap: kept if the bot has answered the event, refused while it works on it. The caller calls [Decision.Settle].
func (t *Tap) Ask(event []byte) *Decision {
	key, app := identify(event)
	if t.Answered == nil {
		key = ""
	}
	if key != "" {
		switch t.Answered.Claim(key) {
		case dedup.Done:
			t.Counter(Repeated)
			return &Decision{Verdict: feishu.Keep, Seen: true, tap: t}
		case dedup.Pending:
			t.Counter(InProgress)
			return &Decision{Verdict: feishu.Refuse, Seen: true, tap: t}
		}
	}
	d := &Decision{Verdict: feishu.Pass, Seen: true, tap: t}
	if t.Options.Tap != nil && (t.Own == nil || t.Own(app)) {
		d = t.ask(event)
	}
	d.key = key
	return d
}

// identify returns the key of an event in Answered, "" for one without an id, such as the callback of an old card, and
// its app.
func identify(event []byte) (key, app string) {
	var e struct {
		UUID   string `json:"uuid"` // of the 1.0 schema
		Header struct {
			ID   string `json:"event_id"`
			Type string `json:"event_type"`
			App  string `json:"app_id"`
		} `json:"header"`
		Event struct {
			App     string `json:"app_id"` // of the 1.0 schema
			Message struct {
				ID string `json:"message_id"`
			} `json:"message"`
		} `json:"event"`
	}
	_ = json.Unmarshal(event, &e) // what does not fit has no id
	app = cmp.Or(e.Header.App, e.Event.App)
	id := cmp.Or(e.Header.ID, e.UUID)
	if e.Header.Type == feishu.MessageReceived {
		id = cmp.Or(e.Event.Message.ID, id)
	}
	if id == "" {
		return "", app
	}
	return Key(app, id), app
}

// Key is the key of a message in Answered, or of an event that is none.
func Key[T ~string](app string, id T) string {
	sum := sha256.Sum256([]byte(app + "\n" + string(id)))
	return hex.EncodeToString(sum[:16])
}

// Settle records whether the bot has answered the event with 200, or it is kept from it: on disk when it returns. Only
// the first call counts; with false a repeat goes to the bot.
func (d *Decision) Settle(handled bool) {
	key := d.key
	if d.key = ""; key == "" {
		return
	}
	err := d.tap.Answered.Settle(key, handled)
	if handled {
		err = errors.Join(err, d.tap.Answered.Flush())
	}
	if err != nil {
		d.tap.Logger.Warn("an answered event may be delivered to the bot again after a restart", "err", err)
	}
}

func (t *Tap) ask(event []byte) *Decision {
	d := &Decision{Verdict: t.Default, tap: t, deadline: time.Now().Add(t.Patience)}
	if int(t.Load.slow.Load()) >= t.MaxSlow {
		t.Counter(TapSkipped)
		return d
	}
	decided := make(chan *Decision, 1)
	var over atomic.Bool // the event tap has returned, or is slow
	t.Running.Go(func() {
		now := t.decide(event, d.deadline)
		if over.Swap(true) {
			t.Load.slow.Add(-1)
		}
		decided <- now
	})
	timer := time.NewTimer(t.Patience)
	defer timer.Stop()
	select {
	case now := <-decided:
		return now
	case <-timer.C:
		if over.Swap(true) {
			return <-decided
		}
	}
	t.Load.slow.Add(1)
	t.Counter(TapSlow)
	t.Logger.Warn("no decision on an event in time", "limit", t.Patience)
	d.slow, d.done = decided, make(chan struct{})
	return d
}

func (t *Tap) decide(event []byte, deadline time.Time) (d *Decision) {
	d = &Decision{Verdict: t.Default, Seen: true, tap: t, deadline: deadline}
	defer t.recovered()
	d.Verdict, d.Instead, d.after = t.Options.Tap(event)
	if d.after != nil {
		d.done = make(chan struct{})
	}
	return d
}

// Begin starts the follow-up of the event, which was written to the bot or is kept from it. Only the first call counts.
func (d *Decision) Begin() {
	if d.done == nil {
		return
	}
	d.once.Do(func() {
		end := func() { close(d.done) }
		if d.slow == nil {
			d.tap.run(d.after, end)
			return
		}
		d.tap.Running.Go(func() { d.tap.run((<-d.slow).after, end) })
	})
}

// Wait starts the follow-up and returns when it is done. It returns false if that takes longer than Patience.
func (d *Decision) Wait() bool {
	d.Begin()
	return d.done == nil || wait.Closed(d.done, time.Until(d.deadline))
}

// HasTask reports whether the event has a follow-up.
func (d *Decision) HasTask() bool { return d.done != nil }

// run runs do after the follow-ups that wait already, and then end.
func (t *Tap) run(do, end func()) {
	if do == nil || !t.add(func() { t.guard(do); end() }) {
		end()
	}
}

func (t *Tap) add(task func()) bool {
	if int(t.Load.tasks.Add(1)) > t.MaxTasks {
		t.Load.tasks.Add(-1)
		t.Counter(AfterDropped)
		t.Logger.Warn("too many follow-ups of events wait; one was dropped")
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = append(t.tasks, task)
	if t.working < t.Workers {
		t.working++
		t.Running.Go(t.work)
	}
	return true
}

func (t *Tap) work() {
	for {
		t.mu.Lock()
		if len(t.tasks) == 0 {
			t.working--
			t.mu.Unlock()
			return
		}
		do := t.tasks[0]
		t.tasks = t.tasks[1:]
		t.mu.Unlock()
		do()
		t.Load.tasks.Add(-1)
	}
}

// Missed reports that the bot got an event on which the event tap has not decided.
func (t *Tap) Missed(event []byte) { t.guard(func() { t.Passed(event) }) }

// guard runs a function of the tap's owner, and recovers its panic.
func (t *Tap) guard(do func()) {
	defer t.recovered()
	do()
}

func (t *Tap) recovered() {
	if p := recover(); p != nil {
		t.Counter(TapPanicked)
		t.Logger.Error("a panic was caught; events continue", "kind", fmt.Sprintf("%T", p)) // shows no text
	}
}

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

	answered context.Context // done with the first answer
	answer   context.CancelFunc
	code     int // of the first answer; guarded by mu of set
}

// Begin adds an event that is about to be written. The caller calls End.
func (s *Injections) Begin(in feishu.Injection) (*Waiting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= s.max {
		return nil, ErrBusy
	}
	in.Event = nil // it may be large, and the bot may think for long
	w := &Waiting{ID: IDPrefix + rand.Text(), in: in, set: s}
	w.answered, w.answer = context.WithCancel(context.Background())
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
	first := w != nil && w.answered.Err() == nil // the event may have been written twice
	if first {
		w.code = code
		w.answer()
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
func (w *Waiting) Answered() <-chan struct{} { return w.answered.Done() }

// End ends the wait and returns its result: nil if the bot answered 200, a [feishu.AnswerError] for another
// code, and err without an answer. If the event was written, Late is called for an answer that comes later, also
// on another connection: a bot answers on the one that it has by then.
func (w *Waiting) End(err error) error {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	delete(w.set.waiting, w.ID)
	switch {
	case w.code == http.StatusOK:
		return nil
	case w.answered.Err() != nil:
		return &feishu.AnswerError{Code: w.code}
	case w.in.Late != nil && !errors.Is(err, feishu.ErrNotInjected):
		w.set.late.Add(w.ID, w.in.Late)
	}
	return err
}
