package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// sharing lays n messages of another make into b's inbox, of which three each
// have one id, as that of one millisecond.
func (w *world) sharing(b *actor, n int) (texts []string) {
	for i := range n {
		text := fmt.Sprint("letter ", i)
		w.foreign(b, mailbox.Envelope{From: "nano", ID: fmt.Sprintf("msg_%d_nano", 1_777_000_000_000+i/3), Content: textOf(text), Hops: 3})
		texts = append(texts, text)
	}
	return texts
}

// Different content under one id is a different message, and the bot gets each
// under an id of its own, the same one when it gets it again.
func TestSharedIDs(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		const n = 300
		want := w.sharing(b, n)
		got, ids := []string{}, map[string]bool{}
		for _, d := range b.deliveries() {
			got, ids[d.ID] = append(got, d.Text()), true
			if !strings.HasPrefix(d.ID, "msg_1777") || len(d.ID) > mailbox.MaxID {
				t.Errorf("given as %q", d.ID)
			}
		}
		same(t, "given", got, want)
		if len(ids) != n {
			t.Errorf("%d ids of %d messages", len(ids), n)
		}
		b.restart()
		w.sharing(b, n) // the same once more
		same(t, "given again", b.texts(), []string{})
		if left := len(w.hub.waiting("b")); left > 0 {
			t.Errorf("%d still lie in the inbox", left)
		}
	})
}

// A crash at any step repeats a message under the id that the bot knows, and
// loses none.
func TestSharedIDsOverACrash(t *testing.T) {
	for _, id := range []string{"msg_1777000000000_nano", "seven"} {
		for _, step := range []string{"claimed", "inject", "delivered", "settling"} {
			t.Run(id+", "+step, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					b := w.agent("b")
					b.crashes(step)
					for i := range 3 {
						w.foreign(b, mailbox.Envelope{From: "nano", ID: id, Content: textOf(fmt.Sprint(i)), Hops: 3})
					}
					byText := map[string][]string{}
					count := func() {
						for _, d := range b.deliveries() {
							byText[d.Text()] = append(byText[d.Text()], d.ID)
						}
					}
					count()
					b.restart()
					count()
					used := map[string]string{}
					for text, ids := range byText {
						if len(slices.Compact(ids)) != 1 {
							t.Errorf("%s was given as %q", text, ids)
						}
						if other, taken := used[ids[0]]; taken {
							t.Errorf("%s and %s were given as %s", text, other, ids[0])
						}
						used[ids[0]] = text
					}
					if len(byText) != 3 {
						t.Errorf("given %v", byText)
					}
				})
			})
		}
	}
}

// A message that another program wrote in the place of one that is being handed
// over stays, and comes next.
func TestReplacedWhileInHand(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		answered := make(chan struct{})
		b.door.doing(func(context.Context, agent.Delivery) error { <-answered; return nil })
		e := mailbox.Envelope{From: "nano", To: "b", ID: "msg_1777000000000_nano", Timestamp: time.Now(), Type: mailbox.TypeMessage,
			Priority: 3, Content: textOf("one"), Hops: 3, Trace: []mailbox.AgentID{"nano"}}
		key := w.foreign(b, e)
		synctest.Wait()
		e.Content = textOf("two")
		raw, err := mailbox.Encode(e)
		must(t, err)
		w.hub.replace("b", key, raw)
		synctest.Wait()
		close(answered)
		same(t, "given", b.texts(), []string{"one", "two"})
		if left := w.hub.waiting("b"); len(left) > 0 {
			t.Errorf("%d still lie in the inbox", len(left))
		}
	})
}

// Several messages may have one id, also of several agents: an acknowledgement
// settles the one that the bot was given under it.
func TestAckOfASharedID(t *testing.T) {
	lay := func(w *world, b *actor) {
		for _, m := range [][2]string{{"x", "one"}, {"x", "two"}, {"y", "three"}} {
			w.foreign(b, mailbox.Envelope{From: mailbox.AgentID(m[0]), ID: "7", Content: textOf(m[1]), Hops: 3,
				Metadata: mailbox.Metadata{TTL: new(0), RequiresAck: true}})
			time.Sleep(time.Millisecond)
		}
	}
	t.Run("over http", func(t *testing.T) {
		in(t, func(t *testing.T, w *world) {
			b := w.agent("b")
			b.door.set(false)
			lay(w, b)
			waiting := b.waits(3)
			if waiting[0].ID != "7" {
				t.Errorf("the first has the id %q", waiting[0].ID)
			}
			must(t, b.Ack(t.Context(), waiting[1].ID))
			left := b.waits(2)
			if left[0].Text() != "one" || left[1].Text() != "three" {
				t.Errorf("left: %q, %q", left[0].Text(), left[1].Text())
			}
			if err := b.Ack(t.Context(), waiting[1].ID); err == nil {
				t.Error("it can be acknowledged twice")
			}
			must(t, b.Nack(t.Context(), waiting[2].ID, mailbox.InvalidMessage, "no"))
			if left := b.waits(1); left[0].Text() != "one" {
				t.Errorf("left: %q", left[0].Text())
			}
			acks, nacks := w.mailOf("x", mailbox.TypeAck), w.mailOf("y", mailbox.TypeNack)
			if len(acks) != 1 || mailbox.Original(acks[0]) != "7" || len(nacks) != 1 || mailbox.Original(nacks[0]) != "7" {
				t.Errorf("the senders were told %+v, %+v", acks, nacks)
			}
		})
	})
	t.Run("on a line", func(t *testing.T) {
		in(t, func(t *testing.T, w *world) {
			b := w.agent("b")
			line := b.attach()
			lay(w, b)
			same(t, "given", line.texts(), []string{"one", "two", "three"})
			for i := range 3 {
				got := line.forget(1)
				if _, err := line.handle(t, mailbox.Envelope{ID: fmt.Sprint("a", i), From: "b", To: "b", Type: mailbox.TypeAck, ReplyTo: got.ID, Timestamp: time.Now()}); err != nil {
					t.Error(err)
				}
			}
			b.waits(0)
		})
	})
}

// A bot answers and passes on a message by the id that it was given, whichever of two with one id it is given first. After
// a restart, the record of the task is what is left of both.
func TestAnswerToASharedID(t *testing.T) {
	message := mailbox.Envelope{From: "nano", ID: "msg_1777000000000_nano", Content: textOf("hi"), Hops: 2}
	task := message
	task.Type, task.Task, task.Content = mailbox.TypeTask, &mailbox.Task{ID: "t1"}, textOf("do it")
	for name, order := range map[string][]mailbox.Envelope{"message first": {message, task}, "task first": {task, message}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				b, c := w.agent("b"), w.agent("c")
				var got []agent.Delivery
				for _, e := range order { // one after the other: of two that wait the task is more urgent
					w.foreign(b, e)
					got = append(got, b.deliveries()...)
				}
				if len(got) != 2 {
					t.Fatalf("given %+v", got)
				}
				for _, d := range got {
					_, err := b.Send(t.Context(), agent.Draft{Envelope: letterTo("nano", "yes", func(e *mailbox.Envelope) { e.Type, e.ReplyTo = mailbox.TypeAnswer, d.ID })})
					must(t, err)
					if d.Type == mailbox.TypeTask {
						b.restart()
					}
					_, err = b.Send(t.Context(), agent.Draft{Envelope: letterTo("c", "on"), ForwardOf: d.ID})
					must(t, err)
				}
				answers := w.mailOf("nano", mailbox.TypeAnswer)
				for _, e := range answers {
					if e.ReplyTo != "msg_1777000000000_nano" {
						t.Errorf("the answer is to %q", e.ReplyTo)
					}
				}
				passed := c.deliveries()
				for _, d := range passed {
					if d.Hops != 1 || !slices.Equal(d.Trace, []mailbox.AgentID{"nano", "b"}) {
						t.Errorf("passed on with %d hops by %q", d.Hops, d.Trace)
					}
				}
				if len(answers) != 2 || len(passed) != 2 {
					t.Errorf("%d answers and %d messages passed on, want 2 and 2", len(answers), len(passed))
				}
			})
		})
	}
}
