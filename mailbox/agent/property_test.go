package agent_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// Whatever three agents do, and whenever one dies: what was accepted for sending
// is delivered, once where nobody died in the very delivery, and no task goes back.
func FuzzTraffic(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, deaths bool) {
		in(t, func(t *testing.T, w *world) { newTraffic(w, seed, deaths).run(40) })
	})
}

type traffic struct {
	w      *world
	rnd    *rand.Rand
	deaths bool
	all    []*actor
	sent   map[string]*actor // id: who gets it
	given  map[string]int
	tasks  int
	stood  map[string]mailbox.TaskState
}

func newTraffic(w *world, seed uint64, deaths bool) *traffic {
	x := &traffic{w: w, rnd: rand.New(rand.NewPCG(seed, 7)), deaths: deaths, sent: map[string]*actor{}, given: map[string]int{}, stood: map[string]mailbox.TaskState{}}
	for _, id := range []mailbox.AgentID{"a", "b", "c"} {
		x.all = append(x.all, w.agent(id))
	}
	return x
}

func (x *traffic) run(steps int) {
	for range steps {
		x.step()
		synctest.Wait()
		x.look()
		time.Sleep(time.Duration(x.rnd.IntN(5)) * time.Second)
	}
	for _, a := range x.all {
		a.crashes("")
		if a.dead.Load() {
			a.restart()
		}
		a.door.set(true)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	x.look()
	for id, to := range x.sent {
		if n := x.given[id]; n == 0 || n > 1 && !x.deaths {
			x.w.t.Errorf("%s was given to %s %d times", id, to.id, n)
		}
	}
	for _, a := range x.all {
		if n := a.Counts(); n.Waiting+n.Unacknowledged+len(x.w.hub.waiting(a.id)) > 0 {
			x.w.t.Errorf("%s has left %+v, and %d in its inbox", a.id, n, len(x.w.hub.waiting(a.id)))
		}
	}
}

func (x *traffic) step() {
	i := x.rnd.IntN(3)
	a, b := x.all[i], x.all[(i+1+x.rnd.IntN(2))%3]
	switch what := x.rnd.IntN(9); {
	case a.dead.Load():
		a.restart()
	case what < 3:
		e := letterTo(b.id, "words", func(e *mailbox.Envelope) {
			e.Priority, e.Metadata.RequiresAck = mailbox.Priority(1+x.rnd.IntN(5)), x.rnd.IntN(2) == 0
		})
		if sent, err := a.Send(x.w.t.Context(), agent.Draft{Envelope: e}); err == nil {
			x.sent[sent.ID] = b
		}
	case what == 3:
		x.tasks++
		x.calls(func() {
			sent, err := a.SendTask(x.w.t.Context(), agent.TaskDraft{To: b.id, Text: "do it", TaskID: fmt.Sprint("t", x.tasks)})
			if err == nil && b.Counts().OpenTasks < 3 && !b.dead.Load() {
				x.sent[sent.ID] = b
			}
		})
	case what < 6:
		for _, r := range a.Tasks() {
			if r.Direction == agent.Received && !r.State.Ended() && x.given[r.MessageID] > 0 {
				states := []mailbox.TaskState{mailbox.Working, mailbox.Completed, mailbox.Failed}
				x.calls(func() {
					_, _ = a.UpdateTask(x.w.t.Context(), agent.TaskUpdate{TaskID: r.ID, From: r.Peer, State: states[x.rnd.IntN(3)], Text: "so far"})
				})
				return
			}
		}
	case what == 6:
		a.door.set(x.rnd.IntN(2) == 0)
	case what == 7 && x.deaths:
		steps := []string{"claimed", "noted", "inject", "delivered", "settling"}
		a.crashes(steps[x.rnd.IntN(len(steps))])
	case what == 8:
		a.crashes("")
		if d, err := a.Drain(x.w.t.Context(), x.rnd.IntN(5), "", ""); err == nil {
			if _, err := a.Drain(x.w.t.Context(), 0, "", d.Cursor); err != nil {
				return // they come again
			}
			for _, m := range d.Messages {
				x.given[m.ID]++
			}
		}
	}
}

// calls makes a call that may die with the process.
func (x *traffic) calls(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// look notes what the bots were given, and that tasks go on.
func (x *traffic) look() {
	order := []mailbox.TaskState{mailbox.Pending, mailbox.Accepted, mailbox.Working, mailbox.Completed, mailbox.Failed, mailbox.Rejected}
	for _, a := range x.all {
		for _, d := range a.door.taken() {
			x.given[d.ID]++
		}
		for _, r := range a.Tasks() {
			key := fmt.Sprint(a.id, r.Direction, r.Peer, r.ID)
			before := x.stood[key]
			if slices.Index(order, r.State) < slices.Index(order, before) || before.Ended() && before != r.State {
				x.w.t.Errorf("%s: %s became %s", key, before, r.State)
			}
			x.stood[key] = r.State
		}
	}
}
