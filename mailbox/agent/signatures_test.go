package agent_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// signing has the agents of a world sign their mail.
func (w *world) signing() func(*agent.Options) {
	w.hub.signing = mailbox.Signing{Secret: "s3cret"}
	return func(o *agent.Options) {
		o.Signing = w.hub.signing
	}
}

// captured are the envelopes that wait for an agent, as somebody may copy them.
func (w *world) captured(id mailbox.AgentID) (all [][]byte) {
	for _, item := range w.hub.waiting(id) {
		all = append(all, bytes.Clone(item.Raw))
	}
	return all
}

// A copy of mail that the bot refused is not given to it, though the same message is
// when its sender sends it again.
func TestCopyOfRefusedMail(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a", w.signing()), w.agent("b", w.signing())
		b.door.set(false)
		a.say(b, "hello", wanted, func(e *mailbox.Envelope) { e.ID = "m1" })
		synctest.Wait()
		copies := w.captured("b")
		given := 0
		b.door.doing(func(context.Context, agent.Delivery) error { given++; return agent.ErrRefused })
		b.door.set(true)
		for range 2 {
			synctest.Wait()
			for _, raw := range copies {
				w.hub.put("b", raw)
			}
			synctest.Wait()
			b.restart()
		}
		if given != 1 || b.saw(agent.EventDuplicate) != 2*len(copies) {
			t.Errorf("given %d times, %d duplicates", given, b.saw(agent.EventDuplicate))
		}
		time.Sleep(time.Minute)
		must(t, a.Replay(t.Context(), "m1"))
		synctest.Wait()
		if given != 2 {
			t.Errorf("sent again by its sender, it was given %d times in all, want 2", given)
		}
	})
}

// A copy of a peer message that the bot refused is not given to it, also for another goal:
// the channel that it comes on is not signed.
func TestCopyOfRefusedPeerMessage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b", w.signing())
		given := 0
		b.door.doing(func(context.Context, agent.Delivery) error { given++; return agent.ErrRefused })
		publish := func(sent mailbox.Peer, goals ...string) {
			t.Helper()
			payload, err := w.hub.signing.EncodePeer(sent)
			must(t, err)
			for _, goal := range goals {
				m, _, err := w.hub.signing.FromPeer(payload, goal)
				must(t, err)
				w.hub.put("b", m.Raw)
				synctest.Wait()
			}
		}
		p := mailbox.Peer{FromAgentID: "nano", ToAgentID: "b", Body: "pay 5", SentAt: time.Now()}
		publish(p, "g1", "g1", "g2", "g3")
		b.restart()
		publish(p, "g4")
		if given != 1 || b.saw(agent.EventDuplicate) != 4 {
			t.Errorf("given %d times, %d duplicates", given, b.saw(agent.EventDuplicate))
		}
		p.SentAt = p.SentAt.Add(time.Second)
		publish(p, "g1")
		if given != 2 {
			t.Errorf("sent again by its sender, it was given %d times in all, want 2", given)
		}
	})
}

// A copy of a task that was rejected is not accepted later.
func TestCopyOfRejectedTask(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		one := func(o *agent.Options) { o.MaxTasks = 1 }
		a, b := w.agent("a", w.signing()), w.agent("b", w.signing(), one)
		a.task(b, "t1", nil)
		b.texts()
		b.stop()
		a.task(b, "t2", nil)
		copies := w.captured("b")
		b.restart()
		if got := a.state("t2"); got != mailbox.Rejected {
			t.Fatalf("a second task is %s", got)
		}
		b.update("t1", mailbox.Completed, "done")
		for _, raw := range copies {
			w.hub.put("b", raw)
		}
		same(t, "given", b.texts(), []string{})
		if got := b.Counts().OpenTasks; got != 0 {
			t.Errorf("%d tasks are open", got)
		}
	})
}

// What is changed while it waits in the inbox is not delivered.
func TestChangedWhileItWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a", w.signing()), w.agent("b", w.signing())
		b.door.set(false)
		a.say(b, "hello", wanted)
		synctest.Wait()
		item := w.hub.waiting("b")[0]
		w.hub.mu.Lock()
		w.hub.box("b").items[0].Raw = bytes.Replace(item.Raw, []byte(`"tags":[]`), []byte(`"tags":["urgent"]`), 1)
		w.hub.mu.Unlock()
		b.door.set(true)
		same(t, "given", b.texts(), []string{})
		if how, ok := w.hub.outcome("b", item.Key); !ok || how != mailbox.Malformed {
			t.Errorf("it became %d, %t", how, ok)
		}
	})
}

// Who writes to an agent of another make is told that its answer will not be taken.
func TestNoteAboutUnsignedAnswers(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a", w.signing())
		w.agent("b", w.signing())
		must(t, a.opts.Store.SetCard(t.Context(), mailbox.Card{AgentID: "nano", Status: mailbox.Idle,
			AllowFrom: []mailbox.AgentID{"*"}, LastHeartbeat: time.Now()}))
		for to, want := range map[mailbox.AgentID]string{"nano": "its answer is refused", "b": ""} {
			sent := a.say(&actor{id: to}, "hello")
			if want == "" && sent.Note != "" || !strings.Contains(sent.Note, want) {
				t.Errorf("note on %s: %q", to, sent.Note)
			}
		}
	})
}

// Mail that waits to be sent when the secret is set or changed is signed with the new one.
func TestNewSecretWhileMailWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		w.hub.refusing("put", "b", errors.New("no store"))
		a.task(b, "t1", nil)
		a.say(b, "hello")
		a.stop()
		w.hub.failing(nil)
		w.signing()(&a.opts)
		b.stop()
		w.signing()(&b.opts)
		b.restart()
		a.restart()
		time.Sleep(time.Minute)
		same(t, "given to the other", b.texts(), []string{"do t1", "hello"})
		if n := a.Counts().Unacknowledged; n != 0 || b.saw(agent.EventBadSignature) != 0 {
			t.Errorf("%d are not acknowledged", n)
		}
	})
}

// Who writes to an agent with another secret hears that its message was not taken, also
// where it asked for no acknowledgement.
func TestReceiverWithAnotherSecret(t *testing.T) {
	for _, ack := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			other := func(o *agent.Options) { o.Signing.Secret = "another" }
			a, b := w.agent("a", w.signing()), w.agent("b", w.signing(), other)
			a.say(b, "hello", func(e *mailbox.Envelope) { e.ID, e.Metadata.RequiresAck = "m1", ack })
			time.Sleep(time.Minute)
			same(t, "given", b.texts(), []string{})
			told := strings.Join(a.texts(), "\n")
			if !ack && !strings.Contains(told, "your message m1: b set it aside") {
				t.Errorf("the bot is told %q", told)
			}
			dead := a.DeadLetters()
			if len(dead) != 1 || dead[0].Code != mailbox.InvalidMessage || dead[0].Attempts != 1 {
				t.Errorf("dead letters %+v", dead)
			}
		})
	}
}
