package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// tell lays a step into a's inbox, as b or another make would.
func (w *world) tell(a *actor, from mailbox.AgentID, state mailbox.TaskState, text string, change ...func(*mailbox.Envelope)) {
	e := mailbox.Envelope{From: from, Type: mailbox.TypeTaskUpdate, Hops: 3, Task: &mailbox.Task{ID: "t1", State: state}}
	if text != "" {
		e.Content = textOf(text)
	}
	for _, c := range change {
		c(&e)
	}
	w.foreign(a, e)
}

func TestStepsOfAnother(t *testing.T) {
	ack := func(e *mailbox.Envelope) { e.Metadata.RequiresAck = true }
	for _, c := range []struct {
		name  string
		steps func(w *world, a *actor)
		given []string
		state mailbox.TaskState
	}{
		{"bare news", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Accepted, "")
			w.tell(a, "x", mailbox.Working, " ")
		}, []string{}, mailbox.Working},
		{"an end without words", func(w *world, a *actor) { w.tell(a, "x", mailbox.Completed, "") }, []string{""}, mailbox.Completed},
		{"words without a state", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Working, "")
			w.tell(a, "x", "", "half")
			w.tell(a, "x", mailbox.Completed, "all")
		}, []string{"half", "all"}, mailbox.Completed},
		{"a result said twice", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Completed, "all")
			a.deliveriesStay(1)
			w.tell(a, "x", mailbox.Completed, "all")
			w.tell(a, "x", mailbox.Completed, "all", func(e *mailbox.Envelope) { e.Type = mailbox.TypeTaskComplete })
		}, []string{"all"}, mailbox.Completed},
		{"a result said twice before the bot had it", func(w *world, a *actor) {
			a.door.set(false)
			w.tell(a, "x", mailbox.Completed, "all")
			w.tell(a, "x", mailbox.Completed, "all")
			synctest.Wait()
			a.door.set(true)
		}, []string{"all"}, mailbox.Completed},
		{"news behind the end", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Completed, "all")
			a.deliveriesStay(1)
			w.tell(a, "x", mailbox.Accepted, "")
			w.tell(a, "x", mailbox.Working, "half")
		}, []string{"all"}, mailbox.Completed},
		{"another end", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Completed, "all")
			w.tell(a, "x", mailbox.Failed, "no")
			w.tell(a, "x", mailbox.Rejected, "no")
		}, []string{"all"}, mailbox.Completed},
		{"pending", func(w *world, a *actor) {
			w.tell(a, "x", mailbox.Accepted, "")
			w.tell(a, "x", mailbox.Pending, "")
		}, []string{}, mailbox.Accepted},
		{"a result of an agent that was not asked", func(w *world, a *actor) {
			w.tell(a, "y", mailbox.Completed, "forged", ack)
			nacks := w.mailOf("y", mailbox.TypeNack)
			if len(nacks) != 1 {
				w.t.Fatalf("%d nacks", len(nacks))
			}
			if code, says := mailbox.Refusal(nacks[0]); code != mailbox.TaskNotFound {
				w.t.Errorf("refused with %s %s", code, says)
			}
		}, []string{}, mailbox.Pending},
		{"an id that names another's step", func(w *world, a *actor) {
			w.foreign(a, mailbox.Envelope{From: "step", ID: "x/t1/completed", Hops: 3, Content: textOf("hello")})
			synctest.Wait()
			w.tell(a, "x", mailbox.Completed, "all")
		}, []string{"hello", "all"}, mailbox.Completed},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a := w.agent("a")
				_, err := a.SendTask(t.Context(), agent.TaskDraft{To: "x", Text: "do it", TaskID: "t1"})
				must(t, err)
				c.steps(w, a)
				same(t, "given", a.texts(), c.given)
				if got := a.state("t1"); got != c.state {
					t.Errorf("it is %s", got)
				}
				if left := w.hub.waiting("a"); len(left) > 0 {
					t.Errorf("%d still lie in the inbox", len(left))
				}
				a.restart()
				same(t, "given after a restart", a.texts(), []string{})
			})
		})
	}
}

// A mailbox that hands everything in its inbox to its model gets no step without a
// text.
func TestStepsForAnotherMake(t *testing.T) {
	for name, c := range map[string]struct {
		protocol string
		want     []string
	}{
		"another make": {"", []string{"half", "b: task t1 is working.", "b: task t1 is completed."}},
		"ours":         {mailbox.Protocol, []string{"", "", "half", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				b := w.agent("b")
				must(t, b.opts.Store.SetCard(t.Context(), mailbox.Card{AgentID: "x", Status: mailbox.Idle, LastHeartbeat: time.Now(), Protocol: c.protocol}))
				w.foreign(b, mailbox.Envelope{From: "x", Type: mailbox.TypeTask, Task: &mailbox.Task{ID: "t1"}, Content: textOf("do it"), Hops: 3})
				b.texts()
				b.update("t1", mailbox.Working, "")
				b.update("t1", mailbox.Working, "half")
				_, err := b.UpdateTask(t.Context(), agent.TaskUpdate{TaskID: "t1", State: mailbox.Working,
					Parts: []mailbox.Part{{Type: mailbox.PartData, Data: []byte(`{"done":50}`)}}})
				must(t, err)
				b.update("t1", mailbox.Completed, "")
				texts := []string{}
				for _, e := range w.mailOf("x", mailbox.TypeTaskUpdate) {
					texts = append(texts, e.Text())
				}
				same(t, "steps", texts, c.want)
				if got := b.state("t1"); got != mailbox.Completed {
					t.Errorf("it is %s", got)
				}
			})
		})
	}
}

// deliveriesStay waits until the bot was given n messages, and leaves them.
func (a *actor) deliveriesStay(n int) {
	a.w.t.Helper()
	synctest.Wait()
	a.door.mu.Lock()
	defer a.door.mu.Unlock()
	if len(a.door.list) != n {
		a.w.t.Errorf("%d deliveries, want %d", len(a.door.list), n)
	}
}

// Progress that was noted, and that a restart found before the bot had it, is
// given in its turn.
func TestProgressOverARestart(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", nil)
		a.texts()
		a.door.set(false)
		b.update("t1", mailbox.Working, "half")
		synctest.Wait()
		time.Sleep(time.Millisecond)
		b.update("t1", mailbox.Completed, "all")
		synctest.Wait()
		a.restart()
		a.door.set(true)
		same(t, "given", a.texts(), []string{"half", "all"})
	})
}

// An agent whose name is that of a kind of key cannot make us forget our own sends.
func TestAgentCalledSent(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		w.foreign(a, mailbox.Envelope{From: "sent", ID: "mine", Hops: 3, Content: textOf("hello")})
		a.texts()
		a.say(b, "important", func(e *mailbox.Envelope) { e.ID = "mine" })
		same(t, "given", b.texts(), []string{"important"})
	})
}

// The answer to a repeat of a task that has ended must not come before the end
// itself, which holds the words.
func TestRepeatOfAnEndedTask(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		give := func() {
			w.foreign(b, mailbox.Envelope{From: "x", ID: "m1", Type: mailbox.TypeTask, Task: &mailbox.Task{ID: "t1"}, Content: textOf("do it"),
				Hops: 3, Metadata: mailbox.Metadata{RequiresAck: true}})
			synctest.Wait()
		}
		b.door.set(false)
		give()
		b.update("t1", mailbox.Completed, "all")
		give()
		ends := 0
		for _, e := range w.mailOf("x", mailbox.TypeTaskUpdate) {
			if e.Task.State == mailbox.Completed {
				ends++
				if e.Text() != "all" {
					t.Errorf("the end without its words: %+v", e)
				}
			}
		}
		if acks := len(w.mailOf("x", mailbox.TypeAck)); ends != 1 || acks != 2 {
			t.Errorf("%d ends and %d acks", ends, acks)
		}
		b.door.set(true)
		same(t, "given", b.texts(), []string{})
	})
}

// A task ends once. The same end again is a repeat, also over a restart; another text is refused, since nobody would
// get it.
func TestSecondResultIsRefused(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, state := range []mailbox.TaskState{mailbox.Completed, mailbox.Failed} {
		for _, text := range []string{"one", long} {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				a.task(b, "t1", nil)
				synctest.Wait()
				b.update("t1", state, text)
				b.restart()
				b.update("t1", state, text)
				b.update("t1", state, "")
				for _, u := range []agent.TaskUpdate{{Text: text + "!"},
					{Text: text, Parts: []mailbox.Part{{Type: mailbox.PartData, Data: []byte("1")}}}} {
					u.TaskID, u.State = "t1", state
					_, err := b.UpdateTask(t.Context(), u)
					refusedAs(t, err, mailbox.InvalidMessage, "send as a message to a")
				}
				same(t, "given", a.texts(), []string{text})
			})
		}
	}
}
