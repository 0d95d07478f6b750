package agent_test

import (
	"fmt"
	"slices"
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What goes on the errand of another message goes on with its hops and trace.
func TestForward(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b, c := w.agent("a"), w.agent("b"), w.agent("c")
		sent := a.say(b, "hello")
		a.task(b, "t1", nil)
		b.texts()
		forward := func(to mailbox.AgentID, of string, change ...func(*mailbox.Envelope)) error {
			_, err := b.Send(t.Context(), agent.Draft{Envelope: letterTo(to, "on", change...), ForwardOf: of})
			return err
		}
		given := func(t1 string) func(*mailbox.Envelope) {
			return func(e *mailbox.Envelope) { e.Type, e.Task = mailbox.TypeTask, &mailbox.Task{ID: t1} }
		}
		must(t, forward("c", sent.ID))
		must(t, forward("c", "t1"))
		must(t, forward("c", "", given("t1"))) // of the same id: it is that task that goes on
		for _, got := range c.deliveries() {
			if got.Hops != 2 || !slices.Equal(got.Trace, []mailbox.AgentID{"a", "b"}) {
				t.Errorf("it came with %d hops by %q", got.Hops, got.Trace)
			}
		}
		refusedAs(t, forward("a", sent.ID), mailbox.InvalidMessage, "trace: a had it before")
		refusedAs(t, forward("a", sent.ID, func(e *mailbox.Envelope) { e.ReplyTo = sent.ID }), mailbox.InvalidMessage, "trace: a had it before")
		refusedAs(t, forward("c", "nothing"), mailbox.InvalidMessage, "forward_of: no message or task")
		must(t, forward("a", sent.ID, func(e *mailbox.Envelope) { e.Type = mailbox.TypeAnswer }))
		_, err := c.SendTask(t.Context(), agent.TaskDraft{To: "a", Text: "back", ForwardOf: "t1"})
		refusedAs(t, err, mailbox.InvalidMessage, "trace: a had it before")
		b.restart()
		must(t, forward("c", "t1"))
	})
}

// Who was given a task may ask its giver about it: that passes nothing on.
func TestQuestionBack(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*mailbox.Envelope)
		to     mailbox.AgentID
	}{
		"a question":             {func(e *mailbox.Envelope) { e.Type = mailbox.TypeQuestion }, "a"},
		"a message":              {func(*mailbox.Envelope) {}, "a"},
		"with the task's trace":  {func(e *mailbox.Envelope) { e.Trace, e.Hops = []mailbox.AgentID{"a"}, 1 }, "a"},
		"with no hops left":      {func(e *mailbox.Envelope) { e.Trace, e.Hops = []mailbox.AgentID{"a"}, 0 }, "a"},
		"as a reply to the task": {func(e *mailbox.Envelope) { e.ReplyTo = "m1" }, "a"},
		"to somebody else":       {func(*mailbox.Envelope) {}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				actors := map[mailbox.AgentID]*actor{"a": w.agent("a"), "b": w.agent("b"), "c": w.agent("c")}
				actors["a"].task(actors["b"], "t1", nil)
				actors["b"].texts()
				_, err := actors["b"].Send(t.Context(), agent.Draft{Envelope: letterTo(c.to, "which one?", func(e *mailbox.Envelope) {
					e.Task = &mailbox.Task{ID: "t1"}
					c.change(e)
				})})
				must(t, err)
				got := actors[c.to].deliveries()
				if len(got) != 1 || got[0].Task == nil || got[0].Task.ID != "t1" || !slices.Equal(got[0].Trace, []mailbox.AgentID{"b"}) || got[0].Hops < 1 {
					t.Errorf("given %+v", got)
				}
			})
		})
	}
}

func TestHopsEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var chain []*actor
		for i := range 6 {
			chain = append(chain, w.agent(mailbox.AgentID(fmt.Sprint("n", i))))
		}
		sent := chain[0].say(chain[1], "pass it on")
		for i := 1; i < 5; i++ {
			if got := chain[i].texts(); len(got) != 1 {
				t.Fatalf("%d was given %q", i, got)
			}
			next, err := chain[i].Send(t.Context(), agent.Draft{Envelope: letterTo(chain[i+1].id, "pass it on"), ForwardOf: sent.ID})
			if i < 4 {
				must(t, err)
				sent = next
				continue
			}
			refusedAs(t, err, mailbox.InvalidMessage, "ttl: the message has no hops left")
		}
	})
}

// What comes in a circle all the same is refused at the door.
func TestCircle(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		for typ, want := range map[mailbox.Type]int{mailbox.TypeMessage: 0, mailbox.TypeAnswer: 1} {
			w.foreign(b, mailbox.Envelope{From: "x", Type: typ, Trace: []mailbox.AgentID{"b", "x"}, Content: textOf("hi"), Hops: 1})
			if got := b.texts(); len(got) != want {
				t.Errorf("%s: given %q", typ, got)
			}
		}
	})
}
