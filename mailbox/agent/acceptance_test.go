package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// A task is accepted or rejected at the door; its sender is told, with the code.
func TestAcceptance(t *testing.T) {
	only := func(ids ...mailbox.AgentID) func(*agent.Options) {
		return func(o *agent.Options) { o.AllowFrom = append([]mailbox.AgentID{}, ids...) }
	}
	for _, c := range []struct {
		name   string
		change func(*agent.Options)
		task   mailbox.Task
		trace  []mailbox.AgentID
		says   string // "": accepted
	}{
		{name: "everybody"},
		{name: "one of those allowed", change: only("y", "x")},
		{name: "a stranger", change: only("y"), says: "UNAUTHORIZED: unauthorized: b takes no messages from x"},
		{name: "nobody is allowed", change: only(), says: "UNAUTHORIZED"},
		{name: "no room", change: func(o *agent.Options) { o.MaxTasks = 0 }, says: "AGENT_BUSY: b works on 0 of 0 tasks"},
		{name: "time enough", task: mailbox.Task{Deadline: time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)}},
		{name: "too late", task: mailbox.Task{Deadline: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}, says: "INVALID_MESSAGE: the deadline has passed"},
		{name: "in a circle", trace: []mailbox.AgentID{"b", "x"}, says: "INVALID_MESSAGE: b had it before"},
	} {
		for _, typ := range []mailbox.Type{mailbox.TypeTask, mailbox.TypeTaskAssign} {
			t.Run(fmt.Sprint(c.name, " ", typ), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					b := w.agent("b", func(o *agent.Options) {
						if c.change != nil {
							c.change(o)
						}
					})
					task := c.task
					task.ID, task.State = "t1", mailbox.Pending
					w.foreign(b, mailbox.Envelope{From: "x", ID: "m1", Type: typ, Task: &task, Content: textOf("do it"), Hops: 3,
						Trace: c.trace, Metadata: mailbox.Metadata{RequiresAck: true}})
					steps := w.mailOf("x", mailbox.TypeTaskUpdate)
					if len(steps) != 1 || steps[0].ReplyTo != "m1" || steps[0].Task.ID != "t1" {
						t.Fatalf("told %+v", steps)
					}
					if acks := w.mailOf("x", mailbox.TypeAck); len(acks) != 1 {
						t.Errorf("%d acks", len(acks))
					}
					want, given := mailbox.Accepted, []string{"do it"}
					if c.says != "" {
						want, given = mailbox.Rejected, []string{}
					}
					if steps[0].Task.State != want || !strings.HasPrefix(steps[0].Text(), c.says) {
						t.Errorf("told %s %q", steps[0].Task.State, steps[0].Text())
					}
					if code, _, _ := strings.Cut(c.says, ":"); code != "" && !strings.Contains(string(steps[0].Content.Parts[1].Data), code) {
						t.Errorf("the data part is %s", steps[0].Content.Parts[1].Data)
					}
					same(t, "given", b.texts(), given)
				})
			})
		}
	}
}

// A quota counts what is open, and the card says so.
func TestQuota(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b", func(o *agent.Options) { o.MaxTasks = 1 })
		a.task(b, "t1", nil)
		synctest.Wait()
		a.task(b, "t2", nil)
		if got := a.state("t2"); got != mailbox.Rejected {
			t.Errorf("the second task is %s", got)
		}
		if c := w.hub.cards["b"]; c.Status != mailbox.Busy || !slices.Equal(c.CurrentTasks, []string{"t1"}) {
			t.Errorf("card %+v", c)
		}
		b.update("t1", mailbox.Completed, "done")
		synctest.Wait()
		if c := w.hub.cards["b"]; c.Status != mailbox.Idle || len(c.CurrentTasks) > 0 {
			t.Errorf("card %+v", c)
		}
		a.task(b, "t3", nil)
		if got := a.state("t3"); got != mailbox.Accepted {
			t.Errorf("the third task is %s", got)
		}
	})
}

// Each step is told in the set of types that the task came in; bare news wakes
// nobody, and words do.
func TestLifeOfATask(t *testing.T) {
	for gave, ends := range map[mailbox.Type]map[mailbox.TaskState]mailbox.Type{
		mailbox.TypeTask:       {mailbox.Completed: mailbox.TypeTaskUpdate, mailbox.Failed: mailbox.TypeTaskUpdate},
		mailbox.TypeTaskAssign: {mailbox.Completed: mailbox.TypeTaskComplete, mailbox.Failed: mailbox.TypeTaskFailed},
	} {
		for end, typ := range ends {
			t.Run(fmt.Sprint(gave, " ", end), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					a, b := w.agent("a"), w.agent("b")
					sent := a.say(b, "do it", func(e *mailbox.Envelope) { e.Type, e.Task = gave, &mailbox.Task{ID: "t1"} })
					if got := a.state("t1"); got != mailbox.Accepted {
						t.Errorf("it is %s", got)
					}
					b.update("t1", mailbox.Working, "")
					if got := a.state("t1"); got != mailbox.Working {
						t.Errorf("it is %s", got)
					}
					same(t, "woken by", a.texts(), []string{})
					b.update("t1", mailbox.Working, "half of it")
					b.update("t1", mailbox.Working, "most of it")
					same(t, "woken by", a.texts(), []string{"half of it", "most of it"})
					b.update("t1", end, "that was it")
					got := a.deliveries()
					if len(got) != 1 || got[0].Type != typ || got[0].Text() != "that was it" || got[0].Task.State != end || got[0].ReplyTo != sent.ID {
						t.Errorf("the end came as %+v", got)
					}
					if state := a.state("t1"); state != end {
						t.Errorf("it is %s", state)
					}
					_, err := b.UpdateTask(t.Context(), agent.TaskUpdate{TaskID: "t1", State: mailbox.Working})
					refusedAs(t, err, mailbox.InvalidMessage, "which is its end")
					if n := a.Counts().Unacknowledged + b.Counts().Unacknowledged + a.Counts().Waiting; n != 0 {
						t.Errorf("%d are left", n)
					}
				})
			})
		}
	}
}

// A bot that writes its steps itself: its id stands, and a repeat is none.
func TestStepsAsEnvelopes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", nil)
		b.texts()
		step := func(id string, typ mailbox.Type, state mailbox.TaskState, text string) {
			t.Helper()
			sent, err := b.Send(t.Context(), agent.Draft{Envelope: letterTo("a", text, func(e *mailbox.Envelope) {
				e.ID, e.Type, e.Task = id, typ, &mailbox.Task{ID: "t1", State: state}
			})})
			must(t, err)
			if sent.ID != id || sent.TaskID != "t1" {
				t.Errorf("answer %+v", sent)
			}
		}
		step("s1", mailbox.TypeTaskUpdate, "", "half")
		step("s1", mailbox.TypeTaskUpdate, "", "half")
		step("s2", mailbox.TypeTaskComplete, "", "all")
		step("s2", mailbox.TypeTaskComplete, "", "all")
		got := a.deliveries()
		if len(got) != 2 || got[0].ID != "s1" || got[0].Task.State != mailbox.Working || got[1].ID != "s2" || got[1].Task.State != mailbox.Completed {
			t.Errorf("given %+v", got)
		}
	})
}

// An accepted task waits for a bot that comes by seldom, however long: its
// deadline is what ends it.
func TestAcceptedTaskWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		a.task(b, "t1", nil)
		a.task(b, "t2", func(d *agent.TaskDraft) { d.Deadline = time.Now().Add(90 * time.Minute) })
		synctest.Wait()
		time.Sleep(2 * time.Hour)
		b.restart()
		b.door.set(true)
		same(t, "given", b.texts(), []string{"do t1"})
		if open := b.Counts().OpenTasks; open != 1 {
			t.Errorf("%d tasks are open", open)
		}
		b.update("t1", mailbox.Completed, "done")
		synctest.Wait()
		if got := a.texts(); !slices.Contains(got, "done") {
			t.Errorf("given %q", got)
		}
	})
}

// What the bot will not take is rejected; a repeat of it is told the end alone.
func TestBotRefusesTask(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		sent := a.task(b, "t1", nil)
		synctest.Wait()
		must(t, b.Nack(t.Context(), sent.ID, mailbox.AgentBusy, "not now"))
		same(t, "given", a.texts(), []string{"AGENT_BUSY: not now"})
		if got := a.state("t1"); got != mailbox.Rejected {
			t.Errorf("it is %s", got)
		}
		if b.Counts().Waiting+b.Counts().OpenTasks != 0 {
			t.Errorf("left: %+v", b.Counts())
		}
	})
}
