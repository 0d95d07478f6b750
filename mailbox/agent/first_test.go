package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What waited in the inbox before the start is handed over in its order, however
// long the first look at it takes.
func TestOrderAtTheStart(t *testing.T) {
	slow := func(o *agent.Options) {
		o.Trace = func(step string) {
			if step == "claimed" {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	lay := func(w *world, b *actor) {
		for i, p := range []mailbox.Priority{5, 3, 4, 1, 2} {
			w.foreign(b, mailbox.Envelope{From: "x", ID: fmt.Sprint("m", i), Priority: p, Content: textOf(fmt.Sprint(p)), Hops: 3})
		}
	}
	want := []string{"1", "2", "3", "4", "5"}
	t.Run("by the door", func(t *testing.T) {
		in(t, func(t *testing.T, w *world) {
			b := w.idle("b", slow)
			lay(w, b)
			b.door.set(true)
			b.start()
			time.Sleep(time.Second)
			same(t, "given", b.texts(), want)
		})
	})
	t.Run("by a drain", func(t *testing.T) {
		in(t, func(t *testing.T, w *world) {
			b := w.idle("b", slow)
			lay(w, b)
			b.start()
			d, err := b.Drain(t.Context(), 10, "", "")
			must(t, err)
			got := []string{}
			for _, m := range d.Messages {
				got = append(got, m.Text())
			}
			same(t, "drained", got, want)
		})
	})
}

// Mail that cannot be taken in does not hold up for ever what was seen before it.
func TestFirstLookHasAnEnd(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.idle("b")
		w.foreign(b, mailbox.Envelope{From: "x", Content: textOf("hello"), Hops: 3})
		w.hub.put("b", []byte("no envelope"))
		w.hub.refusing("settle", "", errors.New("away"))
		b.door.set(true)
		b.start()
		time.Sleep(time.Minute)
		same(t, "given", b.texts(), []string{"hello"})
		w.hub.failing(nil)
		synctest.Wait()
	})
}
