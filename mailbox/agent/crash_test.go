package agent_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
)

// Whichever side dies at whatever step: nothing is lost, and what was being
// handed over is repeated at most.
func TestCrash(t *testing.T) {
	for _, c := range []struct {
		who   string
		step  string
		twice string // what may come twice
	}{
		{"b", "claimed", ""}, {"b", "noted", ""}, {"b", "inject", ""}, {"b", "delivered", "b"}, {"b", "settling", ""}, {"b", "told", ""},
		{"a", "claimed", ""}, {"a", "noted", ""}, {"a", "inject", ""}, {"a", "delivered", "a"}, {"a", "settling", ""},
	} {
		for _, nth := range []int{1, 2} {
			t.Run(fmt.Sprint(c.who, " ", c.step, " ", nth), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					a, b := w.agent("a"), w.agent("b")
					victim := map[string]*actor{"a": a, "b": b}[c.who]
					phase := func(n int, do func()) { // a crash may take the caller with it
						if n == nth {
							victim.crashes(c.step)
						}
						done := make(chan struct{})
						go func() {
							defer close(done)
							do()
						}()
						<-done
						synctest.Wait()
						victim.crashes("")
						if victim.dead.Load() {
							victim.restart()
						}
					}
					task := func() {
						a.say(b, "do it", func(e *mailbox.Envelope) { e.ID, e.Type, e.Task = "m1", mailbox.TypeTask, &mailbox.Task{ID: "t1"} })
					}
					phase(1, task)
					if len(a.Task("t1")) == 0 || b.saw("received") == 0 {
						task() // its caller had no answer
					}
					synctest.Wait()
					b.deliveriesBetween(1, c.twice == "b" && nth == 1)
					done := func() { b.update("t1", mailbox.Completed, "done") }
					phase(2, done)
					if b.state("t1") != mailbox.Completed {
						done()
					}
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					a.deliveriesBetween(1, c.twice == "a" && nth == 2)
					if a.state("t1") != mailbox.Completed {
						t.Errorf("the task is %s", a.state("t1"))
					}
					for _, x := range []*actor{a, b} {
						if left := w.hub.waiting(x.id); len(left) > 0 || x.Counts().Unacknowledged+x.Counts().OpenTasks > 0 {
							t.Errorf("%s has %d in its inbox, and %+v", x.id, len(left), x.Counts())
						}
					}
				})
			})
		}
	}
}

// deliveriesBetween checks that the bot was given one message, or maybe two alike.
func (a *actor) deliveriesBetween(n int, twice bool) {
	a.w.t.Helper()
	got := a.deliveries()
	if len(got) < n || len(got) > n && !twice || len(got) > n+1 {
		a.w.t.Errorf("%s was given %d messages", a.id, len(got))
	}
	for _, d := range got[1:] {
		if d.ID != got[0].ID {
			a.w.t.Errorf("%s was given %s and %s", a.id, got[0].ID, d.ID)
		}
	}
}
