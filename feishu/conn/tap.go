package conn

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// Tap asks an event tap about events and runs its follow-ups.
type Tap struct {
	Decide  feishu.EventTap
	Default feishu.Verdict // if Decide does not decide in time, or panics

	Patience time.Duration // for Decide and its follow-up together, from the call on
	MaxSlow  int           // the most calls of Decide beyond Patience at a time; then Decide is not called
	MaxTasks int           // the most follow-ups that wait; one more is dropped
	Workers  int           // the most follow-ups that run at a time; 1: in order
	Load     *Load         // counts for MaxSlow and MaxTasks; taps may share it

	Report  func(feishu.Counted)
	Log     *slog.Logger
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
	Seen    bool   // false: Decide has not decided

	tap      *Tap
	after    func()      // the follow-up; nil: none
	slow     chan func() // receives after from a slow Decide; else nil
	deadline time.Time
	once     sync.Once
	done     chan struct{} // closed when the follow-up is done; nil without one
}

// Ask asks about an event and calls act with the decision, once: on this goroutine, or if Decide
// takes longer than Patience on another one. Then Ask returns false after both have returned.
func (t *Tap) Ask(event []byte, act func(*Decision)) (inTime bool) {
	d := &Decision{Verdict: t.Default, tap: t, deadline: time.Now().Add(t.Patience)}
	if int(t.Load.slow.Load()) >= t.MaxSlow {
		t.Report(TapSkipped)
		act(d)
		return true
	}
	var over atomic.Bool // Decide has returned, or is slow
	acted := make(chan *Decision, 1)
	timer := time.AfterFunc(t.Patience, func() {
		if over.Swap(true) {
			return
		}
		t.Load.slow.Add(1)
		t.Report(TapSlow)
		t.Log.Warn("no decision on an event in time", "limit", t.Patience)
		late := &Decision{Verdict: t.Default, tap: t, deadline: d.deadline, slow: make(chan func(), 1),
			done: make(chan struct{})}
		act(late)
		acted <- late
	})
	t.decide(event, d)
	timer.Stop()
	if over.Swap(true) {
		t.Load.slow.Add(-1)
		late := <-acted
		late.slow <- d.after
		return false
	}
	if d.after != nil {
		d.done = make(chan struct{})
	}
	act(d)
	return true
}

// Await is Ask for a caller that waits: it returns the decision, after Patience at the latest.
func (t *Tap) Await(event []byte) *Decision {
	decided := make(chan *Decision, 1)
	go t.Ask(event, func(d *Decision) { decided <- d })
	return <-decided
}

func (t *Tap) decide(event []byte, d *Decision) {
	defer t.recovered()
	d.Seen = true
	d.Verdict, d.Instead, d.after = t.Decide(event)
}

// Begin starts the follow-up of the event, which was written to the bot or is kept from
// it; then, which may be nil, is called when it is done or dropped. Only the first call counts.
func (d *Decision) Begin(then func()) {
	if d.done == nil {
		return
	}
	d.once.Do(func() {
		end := func() {
			close(d.done)
			if then != nil {
				then()
			}
		}
		if !d.Slow() {
			d.tap.run(d.after, end)
			return
		}
		d.tap.Running.Go(func() { d.tap.run(<-d.slow, end) })
	})
}

// Wait starts the follow-up and returns when it is done. It returns false if that takes longer than Patience.
func (d *Decision) Wait() bool {
	d.Begin(nil)
	return d.done == nil || wait.Closed(d.done, time.Until(d.deadline))
}

// HasTask reports whether the event has a follow-up.
func (d *Decision) HasTask() bool { return d.done != nil }

// Slow reports whether Decide has not returned yet.
func (d *Decision) Slow() bool { return d.slow != nil }

// run runs do after the follow-ups that wait already, and then end.
func (t *Tap) run(do, end func()) {
	if do == nil || !t.add(func() { t.Guard(do); end() }) {
		end()
	}
}

func (t *Tap) add(task func()) bool {
	if int(t.Load.tasks.Add(1)) > t.MaxTasks {
		t.Load.tasks.Add(-1)
		t.Report(AfterDropped)
		t.Log.Warn("too many follow-ups of events wait; one was dropped")
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

// Guard runs a function of the tap's owner, and recovers its panic.
func (t *Tap) Guard(do func()) {
	defer t.recovered()
	do()
}

func (t *Tap) recovered() {
	if p := recover(); p != nil {
		t.Report(TapPanicked)
		t.Log.Error("a panic was caught; events continue", "kind", fmt.Sprintf("%T", p)) // shows no text
	}
}
