package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What is urgent goes first, then what was sent first.
func TestOrder(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		for _, m := range []struct {
			text     string
			typ      mailbox.Type
			priority mailbox.Priority
		}{{"one", "", 0}, {"two", "", 0}, {"report", mailbox.TypeStatusReport, 0}, {"blocked", mailbox.TypeError, 0},
			{"task", mailbox.TypeTask, 0}, {"three", "", 0}, {"whenever", "", 5}, {"now", "", 1}} {
			a.say(b, m.text, func(e *mailbox.Envelope) { e.Type, e.Priority = m.typ, m.priority })
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		b.door.set(true)
		same(t, "given", b.texts(), []string{"blocked", "now", "task", "one", "two", "three", "report", "whenever"})
	})
}

// The same id is one message: under another key, under the same one, while it
// waits, behind its delivery and after a restart.
func TestOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		say := func(from mailbox.AgentID) {
			w.foreign(b, mailbox.Envelope{From: from, ID: "m1", Content: textOf("hello"), Hops: 3, Metadata: mailbox.Metadata{RequiresAck: true}})
			synctest.Wait()
		}
		b.door.set(false)
		say("x")
		say("x")
		b.door.set(true)
		same(t, "given", b.texts(), []string{"hello"})
		say("x")
		b.restart()
		say("x")
		same(t, "given again", b.texts(), []string{})
		if acks := w.mailOf("x", mailbox.TypeAck); len(acks) != 3 { // the first two are one
			t.Errorf("%d acks", len(acks))
		}
		say("y") // ids are their senders'
		same(t, "given of another", b.texts(), []string{"hello"})
		if left := w.hub.waiting("b"); len(left) > 0 {
			t.Errorf("%d still lie there", len(left))
		}
	})
}

// Mail that no door is open for does not hold up what has one.
func TestDoorForSome(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.doing(func(_ context.Context, d agent.Delivery) error {
			if d.Text() == "shut" {
				return agent.ErrNoChannel
			}
			return nil
		})
		a.say(b, "shut", func(e *mailbox.Envelope) { e.Priority = 1 })
		a.say(b, "open")
		same(t, "given", b.texts(), []string{"open"})
		b.door.doing(nil)
		b.door.set(true)
		same(t, "given", b.texts(), []string{"shut"})
	})
}

// A bot that is away for a moment gets its mail in order.
func TestOrderOverAPause(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		var back atomic.Bool
		b.door.doing(func(context.Context, agent.Delivery) error {
			if !back.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		for _, text := range []string{"one", "two", "three"} {
			a.say(b, text)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		back.Store(true)
		time.Sleep(time.Second)
		same(t, "given", b.texts(), []string{"one", "two", "three"})
	})
}

// Expired mail leaves the inbox also where no door ever opens: senders need its room.
func TestExpiredMailLeaves(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		for range 10 {
			a.say(b, "x")
		}
		synctest.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		if left := len(w.hub.waiting("b")) + b.Counts().Waiting; left > 0 {
			t.Errorf("%d still lie there", left)
		}
	})
}

// What the store will not let go is not delivered again, and is let go later.
func TestStoreKeepsDeliveredMail(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		w.hub.refusing("settle", "", errors.New("read-only"))
		a.say(b, "hello")
		same(t, "given", b.texts(), []string{"hello"})
		w.hub.failing(nil)
		time.Sleep(time.Minute)
		same(t, "given again", b.texts(), []string{})
		if left := len(w.hub.waiting("b")) + b.Counts().Waiting; left > 0 {
			t.Errorf("%d still lie there", left)
		}
	})
}

// However long the store was away, mail goes on within 3 s once it is back: what is in the inbox, what
// its sender keeps, and what waits for the bot.
func TestStoreIsBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		a.say(b, "for the bot")
		time.Sleep(2 * time.Second) // until its text is no longer in memory
		w.hub.failing(func(string, mailbox.AgentID) error { return errors.New("away") })
		b.door.set(true)
		w.foreign(b, mailbox.Envelope{From: "x", ID: "m1", Content: textOf("in the inbox"), Hops: 3})
		a.say(b, "kept by its sender")
		for range 5 { // at any moment of the pauses
			time.Sleep(61 * time.Second)
			same(t, "given", b.texts(), []string{})
		}
		w.hub.failing(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got := b.texts()
		slices.Sort(got)
		same(t, "given", got, []string{"for the bot", "in the inbox", "kept by its sender"})
	})
}

// Mail that somebody damaged in the inbox is set aside.
func TestDamagedInTheInbox(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		a.say(b, "hello")
		synctest.Wait()
		w.hub.mu.Lock()
		w.hub.box("b").items[0].Raw = []byte("{")
		w.hub.mu.Unlock()
		b.door.set(true)
		same(t, "given", b.texts(), []string{})
		if n := len(w.hub.waiting("b")); n > 0 || b.saw(agent.EventMalformed) != 1 {
			t.Errorf("%d still lie there", n)
		}
	})
}

// A bot that takes long over one message still gets the results that belong in
// its conversations.
func TestConversationsDoNotWait(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", func(d *agent.TaskDraft) { d.Callback = &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"} })
		a.door.doing(func(ctx context.Context, d agent.Delivery) error {
			if d.Conversation == nil {
				<-ctx.Done() // it thinks
				return ctx.Err()
			}
			return nil
		})
		synctest.Wait()
		b.say(a, "a word")
		b.update("t1", mailbox.Completed, "the result")
		same(t, "given", a.texts(), []string{"the result"})
	})
}
