package agent_test

import (
	"context"
	"testing"
	"testing/synctest"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What was rejected stays rejected when the process dies just then, whatever has
// changed at the next start.
func TestRejectedOverACrash(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(b *actor)
		reject  func(b *actor) // what makes the agent reject the task
		between func(b *actor)
	}{
		"by the sidecar": {
			before:  func(b *actor) { b.opts.MaxTasks = 0; b.restart() },
			reject:  func(*actor) {},
			between: func(b *actor) { b.opts.MaxTasks = 3 },
		},
		"by the bot's door": {
			before:  func(b *actor) { b.door.doing(func(context.Context, agent.Delivery) error { return agent.ErrRefused }) },
			reject:  func(*actor) {},
			between: func(b *actor) { b.door.doing(nil) },
		},
		"by the bot's word": {
			before: func(*actor) {},
			reject: func(b *actor) {
				lost := make(chan struct{})
				go func() {
					defer close(lost)
					_, err := b.UpdateTask(context.Background(), agent.TaskUpdate{TaskID: "t1", State: mailbox.Rejected, Text: "no time"})
					b.w.t.Errorf("it survived the crash: %v", err)
				}()
				<-lost
			},
			between: func(*actor) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				c.before(b)
				b.crashes("told")
				a.task(b, "t1", nil)
				synctest.Wait()
				c.reject(b)
				synctest.Wait()
				b.deliveries()
				c.between(b)
				b.restart()
				same(t, "given after the crash", b.texts(), []string{})
				if got := a.state("t1"); got != mailbox.Rejected {
					t.Errorf("for its giver it is %s", got)
				}
				if n := b.Counts().OpenTasks; n != 0 {
					t.Errorf("%d tasks are open", n)
				}
				if got := a.texts(); len(got) != 1 {
					t.Errorf("told %q", got)
				}
				if left := len(w.hub.waiting("b")); left > 0 {
					t.Errorf("%d still lie in the inbox", left)
				}
				// The same work may be given again.
				a.task(b, "t2", nil)
				same(t, "given", b.texts(), []string{"do t2"})
			})
		})
	}
}

// A task that was rejected may be given again under its id.
func TestRejectedTaskIsGivenAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b", func(o *agent.Options) { o.MaxTasks = 0 })
		give := func(id string) {
			w.foreign(b, mailbox.Envelope{ID: id, From: "x", Type: mailbox.TypeTask, Task: &mailbox.Task{ID: "t1"}, Content: textOf("do it"), Hops: 3})
			synctest.Wait()
		}
		give("m1")
		b.opts.MaxTasks = 3
		b.restart()
		same(t, "given", b.texts(), []string{})
		give("m2")
		same(t, "given", b.texts(), []string{"do it"})
	})
}
