package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// drain confirms what the last drain gave.
func (a *actor) drain(limit int) (agent.Drained, []string) {
	a.w.t.Helper()
	synctest.Wait()
	d, err := a.Drain(a.w.t.Context(), limit, "", a.cursor)
	must(a.w.t, err)
	a.cursor = d.Cursor
	texts := []string{}
	for _, m := range d.Messages {
		texts = append(texts, m.Text())
	}
	return d, texts
}

// A bot that reads its inbox itself: in order, at most so many, and once.
func TestDrain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		for _, text := range []string{"one", "two", "<three>"} {
			a.say(b, text, wanted)
			time.Sleep(time.Millisecond)
		}
		a.say(b, "urgent", func(e *mailbox.Envelope) { e.Priority = 1 })
		b.waits(4)
		for _, limit := range []int{0, -1} {
			if d, got := b.drain(limit); len(got) != 0 || d.Waiting != 4 {
				t.Errorf("a limit of %d gave %q", limit, got)
			}
			if list, total, err := b.Inbox(t.Context(), limit); err != nil || len(list) != 0 || total != 4 {
				t.Errorf("a look at %d gave %d of %d, %v", limit, len(list), total, err)
			}
		}
		d, got := b.drain(2)
		same(t, "drained", got, []string{"urgent", "one"})
		if d.Waiting != 2 || d.Messages[0].Goal != "b" || !strings.HasPrefix(d.Rendered, "# PEER MESSAGES\n<peer-message from=\"a\"") {
			t.Errorf("drained %+v", d)
		}
		d, got = b.drain(100)
		same(t, "drained", got, []string{"two", "<three>"})
		if !strings.Contains(d.Rendered, "&lt;three&gt;") || d.Waiting != 0 {
			t.Errorf("drained %+v", d)
		}
		if d, got := b.drain(100); len(got) > 0 || d.Rendered != "" {
			t.Errorf("drained again %+v", d)
		}
		b.restart()
		b.door.set(true)
		same(t, "given by the door", b.texts(), []string{})
		if n := a.Counts().Unacknowledged; n > 0 {
			t.Errorf("%d unacknowledged", n)
		}
	})
}

// A message that was sent to each goal is drained for each, by it or with the rest.
func TestDrainByGoal(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		for _, goal := range []string{"g1", "g2"} {
			_, err := b.AddGoal(t.Context(), goal)
			must(t, err)
		}
		for _, text := range []string{"one", "two"} {
			_, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "b", Message: text})
			must(t, err)
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		a.say(b, "no goal")
		b.waits(5)
		cursor := ""
		for _, c := range []struct {
			goal string
			want []string
		}{{"g2", []string{"one", "two"}}, {"g4", nil}, {"b", []string{"no goal"}}, {"", []string{"one", "two"}}, {"", nil}} {
			d, err := b.Drain(t.Context(), 10, c.goal, cursor)
			must(t, err)
			cursor = d.Cursor
			var texts []string
			for _, m := range d.Messages {
				texts = append(texts, m.Text())
				if c.goal != "" && m.Goal != c.goal {
					t.Errorf("drained by %s: %+v", c.goal, m)
				}
			}
			same(t, "drained by "+c.goal, texts, c.want)
		}
		b.waits(0)
	})
}

// What a drain handed out waits until it is confirmed: nobody knows whether the answer arrived.
func TestWhatADrainHandedOutComesAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		first := a.say(b, "one", wanted)
		time.Sleep(time.Millisecond)
		a.say(b, "two")
		b.waits(2)
		_, got := b.drain(10)
		same(t, "drained", got, []string{"one", "two"})
		lost := b.cursor
		b.restart() // the answer did not arrive
		b.cursor = "unknown"
		d, got := b.drain(10)
		same(t, "drained again", got, []string{"one", "two"})
		if d.Waiting != 0 || d.Cursor == lost || a.Counts().Unacknowledged != 1 || b.saw(agent.EventDelivered) != 0 {
			t.Errorf("%d more wait, %+v; %d delivered", d.Waiting, a.Counts(), b.saw(agent.EventDelivered))
		}
		must(t, b.Ack(t.Context(), first.ID))
		time.Sleep(time.Second)
		b.cursor = lost // it confirms nothing here
		_, got = b.drain(10)
		same(t, "drained", got, []string{"two"})
		_, got = b.drain(10)
		same(t, "drained", got, []string{})
		if n := a.Counts().Unacknowledged + b.Counts().Waiting; n != 0 || b.saw(agent.EventDelivered) != 2 {
			t.Errorf("%d are left; %d delivered", n, b.saw(agent.EventDelivered))
		}

		a.say(b, "three")
		b.waits(1)
		_, got = b.drain(10)
		same(t, "drained", got, []string{"three"})
		b.door.set(true) // a bot that reads otherwise from now on
		same(t, "given by the door at once", b.texts(), []string{})
		time.Sleep(5 * time.Minute)
		same(t, "given by the door", b.texts(), []string{"three"})
	})
}

// Two drains at once share what there is.
func TestDrainsAtOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		for i := range 50 {
			a.say(b, fmt.Sprint(i))
		}
		b.waits(50)
		var mu sync.Mutex
		got := map[string]int{}
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				for cursor := ""; ; {
					d, err := b.Drain(context.Background(), 5, "", cursor)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, m := range d.Messages {
						got[m.Text()]++
					}
					mu.Unlock()
					if cursor = d.Cursor; cursor == "" {
						return
					}
				}
			})
		}
		work.Wait()
		if len(got) != 50 || b.Counts().Waiting != 0 || b.saw(agent.EventDelivered) != 50 {
			t.Errorf("%d of 50 were drained, %d delivered, %d wait", len(got), b.saw(agent.EventDelivered), b.Counts().Waiting)
		}
	})
}

// What is being handed over is not drained as well, and what was drained is not
// handed over.
func TestDrainBesideADoor(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		goes := make(chan struct{})
		b.door.doing(func(context.Context, agent.Delivery) error { <-goes; return nil })
		a.say(b, "one")
		synctest.Wait()
		a.say(b, "two")
		_, got := b.drain(100)
		same(t, "drained", got, []string{"two"})
		close(goes)
		same(t, "given", b.texts(), []string{"one"})
	})
}

// A buffer holds 64 of each goal; the oldest go, and the bot is told how many.
// What its sender wants acknowledged is not dropped.
func TestBuffer(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		b.door.set(false)
		for i := range 70 {
			w.foreign(b, mailbox.Envelope{From: "x", ID: fmt.Sprint("m", i), Content: textOf(fmt.Sprint(i)), Hops: 3, Metadata: mailbox.Metadata{Goal: "g1"}})
			time.Sleep(time.Millisecond)
		}
		for i := range 3 {
			w.foreign(b, mailbox.Envelope{From: "y", ID: fmt.Sprint("n", i), Content: textOf("other"), Hops: 3, Metadata: mailbox.Metadata{Goal: "g2"}})
			w.foreign(b, mailbox.Envelope{From: "y", ID: fmt.Sprint("o", i), Content: textOf("asked"), Hops: 3, Metadata: mailbox.Metadata{Goal: "g1", RequiresAck: true}})
		}
		b.waits(76)
		d, got := b.drain(100)
		if d.Dropped != 6 || len(got) != 70 || got[0] != "6" || b.saw(agent.EventDropped) != 6 {
			t.Errorf("%d dropped, drained %q", d.Dropped, got)
		}
		b.drain(0)
		b.restart()
		b.door.set(true)
		same(t, "given by the door", b.texts(), []string{})
	})
}

// An answer does not grow beyond all bounds.
func TestLargeMail(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		b.door.set(false)
		const n = 10
		for i := range n {
			w.foreign(b, mailbox.Envelope{From: "x", ID: fmt.Sprint("m", i), Hops: 3, Content: mailbox.Content{Parts: []mailbox.Part{
				{Type: mailbox.PartData, Data: []byte(`"` + strings.Repeat("x", 960_000) + `"`)}}}})
		}
		synctest.Wait()
		if list, total, err := b.Inbox(t.Context(), n); err != nil || len(list) != 5 || total != n {
			t.Errorf("a look shows %d of %d, %v", len(list), total, err)
		}
		for want := n; want > 0; want -= 5 {
			if d, _ := b.drain(n); len(d.Messages) != 5 || d.Waiting != want-5 {
				t.Errorf("drained %d, %d wait", len(d.Messages), d.Waiting)
			}
		}
	})
}
