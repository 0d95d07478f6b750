package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// A task that was given up for want of an answer, and is accepted after all, goes
// on for both sides.
func TestGivenUpTaskGoesOn(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.dead.Store(true) // killed: alive by its heartbeat, for a while
		a.opts.HeartbeatTimeout = time.Hour
		a.restart()
		a.task(b, "t1", nil)
		time.Sleep(5 * time.Minute)
		if got := a.state("t1"); got != mailbox.Failed {
			t.Fatalf("without an answer the task is %s", got)
		}
		a.texts()
		b.restart()
		if got := a.state("t1"); got != mailbox.Accepted {
			t.Errorf("accepted after all, the task is %s for who gave it", got)
		}
		b.update("t1", mailbox.Completed, "done")
		same(t, "told", a.texts(), []string{"done"})
		if dead := a.DeadLetters(); len(dead) != 0 {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

// Whom an agent may write to does not keep it from reporting of a task it took.
func TestStepGoesToWhoGaveTheTask(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		b := w.agent("b", func(o *agent.Options) { o.Delegates = []mailbox.AgentID{"other"} })
		a.task(b, "t1", nil)
		synctest.Wait()
		e := letterTo("a", "done")
		e.Type, e.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: "t1", State: mailbox.Completed}
		_, err := b.Send(t.Context(), agent.Draft{Envelope: e})
		must(t, err)
		same(t, "told", a.texts(), []string{"done"})
	})
}

// What a sender should know of the receiver it is told at once.
func TestNotes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b", func(o *agent.Options) { o.AllowFrom = []mailbox.AgentID{"boss"} })
		if sent := a.say(b, "hi"); !strings.Contains(sent.Note, "takes no messages from a") {
			t.Errorf("note %q", sent.Note)
		}
	})
}

// A bot is given a task as it stands, not as it was sent.
func TestTaskIsShownAccepted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", nil)
		got := b.deliveries()
		if len(got) != 1 || got[0].Task == nil || got[0].Task.State != mailbox.Accepted {
			t.Errorf("given %+v", got)
		}
	})
}
