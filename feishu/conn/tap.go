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

// Tap asks a tap about events and runs what it wants done after them.
type Tap struct {
	Decide  feishu.EventTap
	Default feishu.Verdict // where Decide has not decided in time, or panics

	Patience time.Duration // for Decide, and for what it wants done, both from the call on
	MaxSlow  int           // calls of Decide that are slower at a time; with as many it is not asked
	MaxTasks int           // what it wants done and is not done; one more is dropped
	Workers  int           // how many of them run at a time; 1: in order
	Load     *Load         // what MaxSlow and MaxTasks bound; taps may share it

	Report  func(feishu.Counted)
	Log     *slog.Logger
	Running *sync.WaitGroup // counts the tap's goroutines

	mu      sync.Mutex
	tasks   []func() // guarded by mu
	working int      // guarded by mu
}

// Load counts what one or several taps have under way.
type Load struct{ slow, tasks atomic.Int32 }

// Decision is what becomes of an event.
type Decision struct {
	Verdict feishu.Verdict
	Instead []byte // what the bot gets in the place of an event that passes; nil: the event
	Seen    bool   // false: Decide has not decided

	tap      *Tap
	after    func()      // nil: nothing is to be done
	slow     chan func() // gets after from a slow Decide; else nil
	deadline time.Time
	once     sync.Once
	done     chan struct{} // nil where nothing is to be done
}

// Ask asks about an event and calls act with the decision, once: on this goroutine, or where Decide
// takes longer than Patience on another one. Then Ask returns false, when both have returned.
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

// Await is Ask for a caller that has nothing else to do: it returns the decision, after Patience at the latest.
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

// Begin begins what is to be done after the event, which was written to the bot or is kept from
// it; then, which may be nil, is called when that is done or left out. Only the first call counts.
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

// Wait begins it and returns when it is done. It reports false when that takes longer than Patience.
func (d *Decision) Wait() bool {
	d.Begin(nil)
	return d.done == nil || wait.Closed(d.done, time.Until(d.deadline))
}

// HasTask reports whether something is to be done after the event.
func (d *Decision) HasTask() bool { return d.done != nil }

// Slow reports whether Decide works on.
func (d *Decision) Slow() bool { return d.slow != nil }

// run does do behind what waits already, and calls end behind that.
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

// Guard runs what the tap's side gave us.
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
