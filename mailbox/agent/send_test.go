package agent_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What a caller does wrong is said to it, and nothing is sent.
func TestSendRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		draft mailbox.Envelope
		code  mailbox.Code
		says  string
	}{
		{"an unknown type", mailbox.Envelope{To: "b", Hops: 3, Type: "shout", Content: textOf("x")}, mailbox.InvalidMessage, "type: want one of"},
		{"nobody", mailbox.Envelope{Hops: 3, Content: textOf("x")}, mailbox.InvalidMessage, "to: required"},
		{"itself", mailbox.Envelope{To: "a", Hops: 3, Content: textOf("x")}, mailbox.InvalidMessage, "to: is this agent itself"},
		{"a path", mailbox.Envelope{To: "../x", Hops: 3, Content: textOf("x")}, mailbox.InvalidMessage, "to: an agent's name has none of"},
		{"a hidden name", mailbox.Envelope{To: ".x", Hops: 3, Content: textOf("x")}, mailbox.InvalidMessage, "to: "},
		{"no delegate", mailbox.Envelope{To: "c", Hops: 3, Content: textOf("x")}, mailbox.Unauthorized, "ALLOWED_DELEGATES"},
		{"somebody else's name", mailbox.Envelope{From: "x", To: "b", Hops: 3, Content: textOf("x")}, mailbox.InvalidMessage, `from: this sidecar speaks for "a" only`},
		{"no text", mailbox.Envelope{To: "b", Hops: 3, Content: textOf(" \n")}, mailbox.InvalidMessage, "content: the message is empty"},
		{"65,537 bytes", mailbox.Envelope{To: "b", Hops: 3, Content: textOf(strings.Repeat("x", 65_537))}, mailbox.InvalidMessage, "content"},
		{"no hops", mailbox.Envelope{To: "b", Content: textOf("x")}, mailbox.InvalidMessage, "ttl: no hops left"},
		{"a circle", mailbox.Envelope{To: "b", Hops: 1, Trace: []mailbox.AgentID{"b", "c"}, Content: textOf("x")}, mailbox.InvalidMessage, "trace: b had it before"},
		{"a deadline that passed", mailbox.Envelope{To: "b", Hops: 3, Type: mailbox.TypeTask, Content: textOf("x"),
			Task: &mailbox.Task{Deadline: time.Unix(1, 0)}}, mailbox.InvalidMessage, "task.deadline: has passed"},
		{"a step of no task", mailbox.Envelope{To: "b", Hops: 3, Type: mailbox.TypeTaskComplete, Content: textOf("x"),
			Task: &mailbox.Task{ID: "t"}}, mailbox.TaskNotFound, "a has taken no task"},
		{"11 retries", mailbox.Envelope{To: "b", Hops: 3, Content: textOf("x"), Metadata: mailbox.Metadata{MaxRetries: new(11)}},
			mailbox.InvalidMessage, "metadata.maxRetries: is 11, and 10 is the most"},
		{"an ack of nothing", mailbox.Envelope{To: "b", Type: mailbox.TypeAck, ReplyTo: "m"}, mailbox.InvalidMessage, `no message "m" waits`},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a", func(o *agent.Options) { o.Delegates = []mailbox.AgentID{"b", "a", "../x", ".x"} }), w.agent("b")
				_, err := a.Send(t.Context(), agent.Draft{Envelope: c.draft})
				refusedAs(t, err, c.code, c.says)
				if got := b.texts(); len(got) > 0 {
					t.Errorf("b was given %q", got)
				}
				if list := a.Tasks(); len(list) > 0 {
					t.Errorf("a task was noted: %+v", list)
				}
			})
		})
	}
}

// A message to an agent that nobody knows waits for it, and so does one to an
// agent that is away.
func TestMessageWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.idle("b")
		if sent := a.say(b, "one"); !strings.Contains(sent.Note, `no agent "b" has registered yet`) {
			t.Errorf("note %q", sent.Note)
		}
		b.door.set(true)
		b.start()
		same(t, "given", b.texts(), []string{"one"})
		b.stop()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if sent := a.say(b, "two"); !strings.Contains(sent.Note, "b is offline") {
			t.Errorf("note %q", sent.Note)
		}
		b.restart()
		same(t, "given", b.texts(), []string{"two"})
	})
}

// The id that a bot gives makes a repeat safe, also while the first is under
// way and after a restart.
func TestSendTwice(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		give := func(e *mailbox.Envelope) { e.ID, e.Type = "mine", mailbox.TypeTask }
		var both sync.WaitGroup
		var sent [2]agent.Sent
		for i := range sent {
			both.Go(func() { sent[i] = a.say(b, "x", give) })
		}
		both.Wait()
		a.restart()
		if last := a.say(b, "x", give); sent[0].TaskID == "" || sent[0].TaskID != sent[1].TaskID || last.TaskID != sent[0].TaskID {
			t.Errorf("answers %+v, then %+v", sent, last)
		}
		same(t, "given", b.texts(), []string{"x"})
		if n := b.saw(agent.EventDuplicate); n != 0 {
			t.Errorf("it came %d times more", n)
		}
	})
}

func TestTaskIDTwice(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		a.task(b, "t1", nil)
		_, err := a.SendTask(t.Context(), agent.TaskDraft{To: "b", Text: "y", TaskID: "t1"})
		refusedAs(t, err, mailbox.InvalidMessage, "task.id")
	})
}

// A message that nobody would accept is refused for what is wrong with it, also where the pair has
// exchanged the most that it may.
func TestInvalidBeforeTheLimit(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a", func(o *agent.Options) { o.MaxExchanges = 1 }), w.agent("b")
		a.say(b, "ping")
		b.texts()
		_, err := a.Send(t.Context(), agent.Draft{Envelope: letterTo("b", " ")})
		refusedAs(t, err, mailbox.InvalidMessage, "the message is empty")
	})
}

// The pair's messages are counted on both sides; the result of a task and the answer
// to a question always go.
func TestEndlessExchange(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		few := func(o *agent.Options) { o.MaxExchanges = 4 }
		a, b := w.agent("a", few), w.agent("b", few)
		a.task(b, "t1", nil)
		for _, typ := range []mailbox.Type{mailbox.TypeMessage, mailbox.TypeQuestion} {
			a.say(b, "ping", func(e *mailbox.Envelope) { e.ID, e.Type = "ping-"+string(typ), typ })
			b.texts()
		}
		b.say(a, "pong")
		a.texts()
		a.restart()
		b.restart()
		for from, to := range map[*actor]mailbox.AgentID{a: "b", b: "a"} {
			_, err := from.Send(t.Context(), agent.Draft{Envelope: letterTo(to, "more")})
			refusedAs(t, err, mailbox.RateLimited, "have exchanged 4 messages in 10m0s")
			no, ok := errors.AsType[*mailbox.Error](err)
			if !ok || no.RetryAfter <= 9*time.Minute || no.RetryAfter > 10*time.Minute {
				t.Errorf("%v does not say when", err)
			}
			_, err = from.SendToPeer(t.Context(), agent.PeerMessage{To: to, Message: "more"})
			refusedAs(t, err, mailbox.RateLimited, "exchanged")
		}
		b.update("t1", mailbox.Completed, "result")
		same(t, "given", a.texts(), []string{"result"})
		b.say(a, "an answer", func(e *mailbox.Envelope) { e.Type, e.ReplyTo = mailbox.TypeAnswer, "ping-question" })
		same(t, "given", a.texts(), []string{"an answer"})
		time.Sleep(10 * time.Minute)
		a.say(b, "again")
		b.texts()
	})
}
