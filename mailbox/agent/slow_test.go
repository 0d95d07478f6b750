package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// slowBot answers each letter when the test says so.
type slowBot struct {
	answers map[string]chan error
	got     chan string
}

func (d *door) thinks(serial bool, ids ...string) slowBot {
	s := slowBot{answers: map[string]chan error{}, got: make(chan string, 100)}
	for _, id := range ids {
		s.answers[id] = make(chan error)
	}
	d.mu.Lock()
	d.slow, d.serial = true, serial
	d.mu.Unlock()
	d.doing(func(ctx context.Context, m agent.Delivery) error {
		s.got <- m.ID
		select {
		case err := <-s.answers[m.ID]:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return s
}

func (s slowBot) wants(t *testing.T, ids ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(s.got) > 0 {
		got = append(got, <-s.got)
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		t.Errorf("the bot was given %v, want %v", got, ids)
	}
}

func (w *world) mail(to *actor, from mailbox.AgentID, id string) {
	w.foreign(to, mailbox.Envelope{From: from, ID: id, Content: textOf("text of " + id), Hops: 3, Metadata: mailbox.Metadata{TTL: new(0)}})
}

// What a bot has and has not answered is bounded in bytes.
func TestLargeMailForASlowBot(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		const count, size, bound = 40, 960_000, 16 << 20
		var ids []string
		for i := range count {
			ids = append(ids, fmt.Sprint("m", i))
		}
		bot := b.door.thinks(false, ids...)
		for i, id := range ids {
			w.foreign(b, mailbox.Envelope{From: mailbox.AgentID(fmt.Sprint("x", i)), ID: id, Hops: 3, Metadata: mailbox.Metadata{TTL: new(0)},
				Content: mailbox.Content{Parts: []mailbox.Part{{Type: mailbox.PartData, Data: []byte(`"` + strings.Repeat("x", size) + `"`)}}}})
		}
		for left := count; left > 0; {
			synctest.Wait()
			n := len(bot.got)
			if n*size > bound || n < min(left, bound/size) {
				t.Fatalf("the bot has %d bytes", n*size)
			}
			for range n {
				bot.answers[<-bot.got] <- nil
			}
			left -= n
		}
	})
}

// A bot that thinks for minutes about one letter is given it once, and the letters
// of other agents meanwhile; of the same agent only where that need not wait.
func TestSlowBot(t *testing.T) {
	for name, serial := range map[string]bool{"INJECT_URL": true, "stream": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				b := w.agent("b")
				bot := b.door.thinks(serial, "m1", "m2", "m3")
				w.mail(b, "x", "m1")
				synctest.Wait()
				w.mail(b, "x", "m2")
				w.mail(b, "y", "m3")
				if serial {
					bot.wants(t, "m1", "m3")
				} else {
					bot.wants(t, "m1", "m2", "m3")
				}
				time.Sleep(14 * time.Minute)
				bot.wants(t)
				bot.answers["m1"] <- nil
				if serial {
					bot.wants(t, "m2")
				}
				bot.answers["m2"] <- nil
				bot.answers["m3"] <- nil
				synctest.Wait()
				if left := w.hub.waiting("b"); len(left) != 0 {
					t.Errorf("%d letters wait", len(left))
				}
			})
		})
	}
}

// Mail that the bot did not answer is not given to it again. An acknowledgement
// that comes late takes it out of the inbox.
func TestMailThatTimedOut(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		bot := b.door.thinks(true, "m1")
		w.mail(b, "x", "m1")
		bot.wants(t, "m1")
		bot.answers["m1"] <- agent.ErrTimedOut
		time.Sleep(time.Hour)
		bot.wants(t)
		if n := b.saw(agent.EventUndeliverable); n != 1 {
			t.Errorf("counted as undeliverable %d times", n)
		}
		must(t, b.Ack(t.Context(), "m1"))
		if left := w.hub.waiting("b"); len(left) != 0 || b.saw(agent.EventDelivered) != 1 {
			t.Errorf("%d letters wait, %d delivered", len(left), b.saw(agent.EventDelivered))
		}
	})
}

// It is not given to it after a restart either, unless its sender sends it again.
func TestMailThatTimedOutOverARestart(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.doing(func(context.Context, agent.Delivery) error { return agent.ErrTimedOut })
		task := a.task(b, "t1", nil)
		sent := a.say(b, "hello", func(e *mailbox.Envelope) { e.ID, e.Metadata.TTL = "m1", new(120) })
		synctest.Wait()
		b.door.doing(nil)
		b.restart()
		same(t, "given after a restart", b.texts(), []string{})
		must(t, b.Ack(t.Context(), task.ID)) // late
		b.waits(1)
		time.Sleep(5 * time.Minute)
		a.texts()
		must(t, a.Replay(t.Context(), sent.ID))
		same(t, "given when it is sent again", b.texts(), []string{"hello"})
	})
}

// Mail that the bot keeps failing on is not given to it for ever.
func TestMailThatTheBotFailsOn(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		tries := 0
		b.door.thinks(true)
		b.door.doing(func(context.Context, agent.Delivery) error {
			tries++
			return errors.New("answered 500")
		})
		w.mail(b, "x", "m1")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		before := tries
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries != before || b.saw(agent.EventUndeliverable) != 1 {
			t.Errorf("tried %d times in 11 minutes and %d times later", before, tries-before)
		}
	})
}

// What the bot acknowledges through the API while it is given it ends there.
func TestMailSettledWhileItIsHandedOver(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		bot := b.door.thinks(true, "m1", "m2")
		w.mail(b, "x", "m1")
		bot.wants(t, "m1")
		must(t, b.Ack(t.Context(), "m1"))
		w.mail(b, "x", "m2")
		bot.wants(t, "m2") // nobody waits for m1
		must(t, b.Nack(t.Context(), "m2", mailbox.InvalidMessage, "no"))
		time.Sleep(time.Hour)
		bot.wants(t)
		if b.saw(agent.EventDelivered) != 1 || b.saw(agent.EventRefused) != 1 {
			t.Errorf("%d delivered, %d refused", b.saw(agent.EventDelivered), b.saw(agent.EventRefused))
		}
	})
}

// A letter that left the inbox before its turn, since another process of this agent took it or
// a person removed it, is not handed over, however new it is.
func TestMailTakenElsewhere(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		bot := b.door.thinks(true, "m1", "m2")
		w.mail(b, "x", "m1")
		bot.wants(t, "m1")
		w.mail(b, "x", "m2")
		bot.wants(t) // it waits behind m1
		for _, item := range w.hub.waiting("b") {
			must(t, (&handle{hub: w.hub, dead: new(atomic.Bool)}).Settle(t.Context(), "b", item.Key, mailbox.Taken))
		}
		bot.answers["m1"] <- nil
		bot.wants(t)
		if n := b.Counts().Waiting; n > 0 {
			t.Errorf("%d still wait for the bot", n)
		}
	})
}

// A letter that asks for an acknowledgement is not given up while the bot works on
// it: nobody hears of a dead letter, and the bot has it once.
func TestLetterInProgressIsNotGivenUp(t *testing.T) {
	for _, asked := range []string{"message", "question"} {
		t.Run(asked, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				bot := b.door.thinks(true, "m1")
				a.say(b, "think", wanted, func(e *mailbox.Envelope) { e.ID, e.Type = "m1", mailbox.Type(asked) })
				bot.wants(t, "m1")
				time.Sleep(14 * time.Minute)
				bot.wants(t)
				dead := a.DeadLetters()
				if len(dead) != 0 || a.saw(agent.EventDead) != 0 {
					t.Errorf("given up while the bot works on it: %+v", dead)
				}
				bot.answers["m1"] <- nil
				synctest.Wait()
				if n := a.Counts().Unacknowledged; n != 0 {
					t.Errorf("%d unacknowledged at the end", n)
				}
			})
		})
	}
}

// What the receiver has not dealt with when its life ends is given up then.
func TestLetterInProgressExpires(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.doing(func(context.Context, agent.Delivery) error { return agent.ErrTimedOut })
		a.say(b, "think", wanted, func(e *mailbox.Envelope) { e.Metadata.TTL = new(1200) })
		time.Sleep(19 * time.Minute)
		synctest.Wait()
		if n := a.saw(agent.EventDead); n != 0 {
			t.Errorf("%d given up before the end of its life", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := a.saw(agent.EventDead); n != 1 {
			t.Errorf("%d given up at the end of its life, want 1", n)
		}
	})
}

// A mailbox of another make that leaves a letter where it is has not taken it: it
// is sent again, and given up, as ever.
func TestLetterThatAnotherMakeLeavesIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		b := w.idle("b")
		must(t, b.opts.Store.SetCard(t.Context(), mailbox.Card{AgentID: "b", Status: mailbox.Idle, AllowFrom: []mailbox.AgentID{"*"},
			LastHeartbeat: time.Now().Add(time.Hour)}))
		a.say(b, "hello", wanted)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := a.saw(agent.EventDead); n != 1 {
			t.Errorf("%d given up, want 1", n)
		}
	})
}

// A task that ended leaves the inbox, also where the bot never answered the letter that
// gave it: it ended the task while it had the letter, or after the time-out.
func TestEndedTaskLeavesTheInbox(t *testing.T) {
	for _, state := range []mailbox.TaskState{mailbox.Completed, mailbox.Failed, mailbox.Rejected} {
		for _, when := range []string{"before the time-out", "after the time-out"} {
			t.Run(string(state)+" "+when, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					a, b := w.agent("a"), w.agent("b")
					timeOut := make(chan struct{})
					b.door.doing(func(context.Context, agent.Delivery) error {
						<-timeOut
						return agent.ErrTimedOut
					})
					a.task(b, "t1", nil)
					synctest.Wait()
					if when == "after the time-out" {
						close(timeOut)
						synctest.Wait()
					}
					b.update("t1", state, "the end")
					if when == "before the time-out" {
						close(timeOut)
					}
					synctest.Wait()
					if left := len(w.hub.waiting("b")) + b.Counts().Waiting; left != 0 {
						t.Errorf("%d letters wait", left)
					}
				})
			})
		}
	}
}

// A bot that thinks about a task for ten minutes is given it once, its giver sends it once, and the result comes: where
// it acknowledges the task at once, as a bot behind the gateway does, and where its answer is the acknowledgement.
func TestBotThinksForTenMinutes(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		in(t, func(t *testing.T, w *world) {
			a, b := w.agent("a"), w.agent("b")
			given, answered := 0, make(chan struct{})
			b.door.slow = true
			b.door.doing(func(context.Context, agent.Delivery) error {
				given++
				think := func() {
					b.update("t1", mailbox.Working, "")
					time.Sleep(10 * time.Minute)
					b.update("t1", mailbox.Completed, "the result")
					close(answered)
				}
				if atOnce {
					go think()
					return nil
				}
				think()
				return nil
			})
			a.task(b, "t1", nil)
			time.Sleep(9 * time.Minute)
			if s := a.state("t1"); s != mailbox.Working {
				t.Errorf("after nine minutes the task is %s", s)
			}
			<-answered
			same(t, "the giver was given", a.texts(), []string{"the result"})
			if s := a.state("t1"); s != mailbox.Completed {
				t.Errorf("the task is %s", s)
			}
			dead := a.DeadLetters()
			if given != 1 || len(dead) > 0 || b.saw(agent.EventDuplicate) > 0 || b.saw(agent.EventUndeliverable) > 0 {
				t.Errorf("given %d times, %d dead letters, %d duplicates", given, len(dead), b.saw(agent.EventDuplicate))
			}
		})
	}
}
