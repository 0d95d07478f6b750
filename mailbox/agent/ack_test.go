package agent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

func wanted(e *mailbox.Envelope) { e.Metadata.RequiresAck = true }

// An acknowledgement means that the bot has it, not before.
func TestAckWhenTheBotHasIt(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		a.say(b, "hello", wanted)
		synctest.Wait()
		if n := a.Counts().Unacknowledged; n != 1 {
			t.Errorf("%d unacknowledged while it waits", n)
		}
		b.door.set(true)
		synctest.Wait()
		if n := a.Counts().Unacknowledged; n != 0 || b.saw(agent.EventSent) != 1 {
			t.Errorf("%d unacknowledged when the bot has it, %d sent", n, b.saw(agent.EventSent))
		}
	})
}

// A bot says what it thinks of a message: by HTTP, while it waits or while it is
// being handed over.
func TestBotAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  mailbox.Code // "": an ack
		given int          // how often in five minutes
		dead  mailbox.Code
	}{
		{"ack", "", 1, ""},
		{"busy", mailbox.AgentBusy, 2, ""},
		{"limited", mailbox.RateLimited, 2, ""},
		{"invalid", mailbox.InvalidMessage, 1, mailbox.InvalidMessage},
		{"unauthorized", mailbox.Unauthorized, 1, mailbox.Unauthorized},
	} {
		for _, when := range []string{"while it waits", "while it is handed over", "as the door's answer is lost"} {
			t.Run(fmt.Sprint(c.name, " ", when), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					a, b := w.agent("a"), w.agent("b")
					answer := func(id string) {
						if c.code == "" {
							must(t, b.Ack(t.Context(), id))
						} else {
							must(t, b.Nack(t.Context(), id, c.code, "because"))
						}
					}
					given := 0
					b.door.doing(func(_ context.Context, d agent.Delivery) error {
						given++
						if when == "while it waits" && given == 1 {
							return agent.ErrNoChannel
						}
						if given == 1 {
							answer(d.ID)
						}
						if when == "as the door's answer is lost" && given == 1 {
							return fmt.Errorf("connection reset")
						}
						return nil
					})
					sent := a.say(b, "hello", wanted)
					synctest.Wait()
					if when == "while it waits" {
						answer(sent.ID)
					}
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					if given != c.given {
						t.Errorf("given %d times, want %d", given, c.given)
					}
					dead := a.DeadLetters()
					if c.dead == "" && len(dead) > 0 || c.dead != "" && (len(dead) != 1 || dead[0].Code != c.dead) {
						t.Errorf("dead letters %+v", dead)
					}
					if n := a.Counts().Unacknowledged + b.Counts().Waiting + len(w.hub.waiting("b")); n != 0 {
						t.Errorf("%d are left", n)
					}
					if acks, nacks := b.saw(agent.EventDelivered), b.saw(agent.EventRefused); acks+nacks != c.given {
						t.Errorf("%d delivered and %d refused, of %d", acks, nacks, c.given)
					}
					if err := b.Ack(t.Context(), sent.ID); err == nil {
						t.Error("what was dealt with can be acknowledged again")
					}
				})
			})
		}
	}
}

// What the bot refused may be replayed when it has been mended.
func TestReplay(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.doing(func(context.Context, agent.Delivery) error { return agent.ErrRefused })
		sent := a.say(b, "hello", wanted)
		synctest.Wait()
		if dead := a.DeadLetters(); len(dead) != 1 || dead[0].Code != mailbox.InvalidMessage {
			t.Fatalf("dead letters %+v", dead)
		}
		b.door.doing(nil)
		b.door.set(true)
		must(t, a.Replay(t.Context(), sent.ID))
		same(t, "given", b.texts(), []string{"hello"})
		if dead := a.DeadLetters(); len(dead) > 0 || a.Counts().Unacknowledged > 0 {
			t.Errorf("left: %+v", dead)
		}
		refusedAs(t, a.Replay(t.Context(), sent.ID), mailbox.InvalidMessage, "id: there is no dead letter")
	})
}

// A step was acknowledged when it came, so nobody sends it again: what the bot
// wants later goes on waiting here.
func TestBotWantsResultLater(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", nil)
		b.texts()
		a.door.set(false)
		b.update("t1", mailbox.Completed, "all")
		waiting := a.waits(1)
		must(t, a.Nack(t.Context(), waiting[0].ID, mailbox.AgentBusy, "later"))
		a.waits(1)
		a.restart()
		a.door.set(true)
		same(t, "given", a.texts(), []string{"all"})
	})
}

// waits returns what waits for the bot, which is n messages.
func (a *actor) waits(n int) []agent.Mail {
	a.w.t.Helper()
	synctest.Wait()
	waiting, total, err := a.Inbox(a.w.t.Context(), 100)
	must(a.w.t, err)
	if len(waiting) != n || total != n {
		a.w.t.Fatalf("%d of %d messages wait, want %d", len(waiting), total, n)
	}
	return waiting
}

// A stranger is told where it asked.
func TestStranger(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b", func(o *agent.Options) { o.AllowFrom = []mailbox.AgentID{"a"} })
		w.foreign(b, mailbox.Envelope{From: "x", ID: "m1", Content: textOf("hello"), Hops: 3, Metadata: mailbox.Metadata{RequiresAck: true}})
		w.foreign(b, mailbox.Envelope{From: "x", ID: "m2", Content: textOf("hello"), Hops: 3})
		w.foreign(b, mailbox.Envelope{From: "a", ID: "m3", Content: textOf("friend"), Hops: 3})
		same(t, "given", b.texts(), []string{"friend"})
		nacks := w.mailOf("x", mailbox.TypeNack)
		if len(nacks) != 1 {
			t.Fatalf("%d nacks", len(nacks))
		}
		if code, _ := mailbox.Refusal(nacks[0]); code != mailbox.Unauthorized {
			t.Errorf("refused with %s", code)
		}
	})
}
