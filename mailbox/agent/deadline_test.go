package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

func soon(d *agent.TaskDraft) { d.Deadline = time.Now().Add(time.Minute) }

// Who crashed in a task says nothing: the giver's own clock does, once, and a
// late result is better than none.
func TestDeadlinePasses(t *testing.T) {
	for name, there := range map[string]bool{"both clocks": true, "the giver's alone": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				a.task(b, "t1", func(d *agent.TaskDraft) {
					soon(d)
					d.Callback = &mailbox.Callback{Channel: "feishu", ChatID: "oc_1"}
				})
				b.texts()
				if !there {
					b.stop()
				}
				time.Sleep(time.Minute)
				got := a.deliveries()
				if len(got) != 1 || !strings.Contains(got[0].Text(), "b did not finish the task: the deadline") || got[0].Task.State != mailbox.Failed ||
					got[0].Type != mailbox.TypeTaskUpdate || got[0].Conversation == nil || got[0].Conversation.ChatID != "oc_1" {
					t.Fatalf("told %+v", got)
				}
				a.restart()
				same(t, "told after a restart", a.texts(), []string{})
				if !there {
					b.restart()
				}
				if n := b.Counts().OpenTasks; n != 0 {
					t.Errorf("%d tasks are open", n)
				}
				same(t, "told when the other is back", a.texts(), []string{})
				b.update("t1", mailbox.Completed, "late")
				same(t, "given late", a.texts(), []string{"late"})
				if got := a.state("t1"); got != mailbox.Completed {
					t.Errorf("it is %s", got)
				}
			})
		})
	}
}

// A result that comes before the bot has the notice takes its place.
func TestResultOvertakesNotice(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", soon)
		b.texts()
		a.door.set(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.update("t1", mailbox.Completed, "late")
		synctest.Wait()
		a.door.set(true)
		same(t, "given", a.texts(), []string{"late"})
	})
}

// A stateless word behind the deadline does not shut the door for the result.
func TestWordsBehindTheDeadline(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		_, err := a.SendTask(t.Context(), agent.TaskDraft{To: "x", Text: "do it", TaskID: "t1", Deadline: time.Now().Add(time.Minute)})
		must(t, err)
		time.Sleep(time.Minute)
		a.texts()
		w.tell(a, "x", "", "nearly")
		w.tell(a, "x", mailbox.Completed, "late")
		same(t, "given", a.texts(), []string{"nearly", "late"})
	})
}

// A notice that a crash kept from being told is told at the next start, and a
// task that became a dead letter meanwhile is given up.
func TestNoticeOverACrash(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		_, err := a.SendTask(t.Context(), agent.TaskDraft{To: "x", Text: "do it", TaskID: "t1", Deadline: time.Now().Add(time.Minute)})
		must(t, err)
		w.hub.refusing("put", "a", mailbox.ErrFull)
		time.Sleep(2 * time.Minute)
		same(t, "told", a.texts(), []string{})
		w.hub.failing(nil)
		a.restart()
		if got := a.texts(); len(got) != 1 || !strings.Contains(got[0], "did not finish") {
			t.Errorf("told %q", got)
		}
	})
}

// A task that nobody takes within its life becomes a dead letter, and the bot is
// told; its result, should one come, counts.
func TestTaskNobodyTakes(t *testing.T) {
	for name, meanwhile := range map[string]func(*actor){
		"running":         func(*actor) { time.Sleep(2 * time.Hour) },
		"after a restart": func(a *actor) { a.texts(); a.stop(); time.Sleep(2 * time.Hour); a.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a := w.agent("a")
				sent, err := a.Send(t.Context(), agent.Draft{Envelope: letterTo("ghost", "do it", func(e *mailbox.Envelope) {
					e.Type, e.Task, e.Metadata.TTL = mailbox.TypeTask, &mailbox.Task{ID: "t1"}, new(3600)
				})})
				must(t, err)
				meanwhile(a)
				if got := a.texts(); len(got) != 1 || !strings.Contains(got[0], "ghost did not finish the task: AGENT_OFFLINE: not taken within its life") {
					t.Fatalf("told %q", got)
				}
				dead := a.DeadLetters()
				if len(dead) != 1 || dead[0].ID != sent.ID {
					t.Fatalf("dead letters %+v", dead)
				}
				must(t, a.Replay(t.Context(), sent.ID))
				g := w.agent("ghost")
				same(t, "given", g.texts(), []string{"do it"})
				g.update("t1", mailbox.Completed, "late")
				same(t, "given", a.texts(), []string{"late"})
				if dead := a.DeadLetters(); len(dead) > 0 || a.Counts().Unacknowledged > 0 {
					t.Errorf("left: %+v %+v", dead, a.Counts())
				}
			})
		})
	}
}

// A result waits for a giver that is away for days.
func TestResultWaits(t *testing.T) {
	for name, away := range map[string]func(*actor){
		"the bot":     func(a *actor) { a.door.set(false) },
		"the sidecar": func(a *actor) { a.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				a.task(b, "t1", nil)
				b.texts()
				away(a)
				b.update("t1", mailbox.Completed, "all")
				synctest.Wait()
				time.Sleep(20 * time.Hour)
				a.restart()
				a.door.set(true)
				same(t, "given", a.texts(), []string{"all"})
			})
		})
	}
}
