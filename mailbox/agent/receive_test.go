package agent_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// Mail that cannot be dealt with now does not hold up what is behind it, and is dealt with later.
func TestMailBehindWhatCannotBeStored(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		w.hub.refusing("settle", "", errors.New("read-only"))
		for _, id := range []string{"m1", "m2"} {
			w.foreign(b, mailbox.Envelope{From: "x", ID: id, Content: textOf("late"), Hops: 3, Timestamp: time.Now().Add(-2 * time.Hour)})
		}
		w.foreign(b, mailbox.Envelope{From: "y", Content: textOf("behind it"), Hops: 3})
		same(t, "given", b.texts(), []string{"behind it"})
		w.hub.failing(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if left := len(w.hub.waiting("b")); left > 0 {
			t.Errorf("%d still lie in the inbox", left)
		}
	})
}

// What is no envelope is set aside, whatever it is, and its sender is told where
// it said who that is and that it wants to know. The mail behind it comes.
func TestSetAside(t *testing.T) {
	const head = `"id":"m1","from":"x","to":"b","timestamp":"2026-04-26T10:00:00Z","metadata":{"requiresAck":true}`
	for name, c := range map[string]struct {
		raw  string
		nack string // a part of what the sender is told; "": nothing
	}{
		"garbage":            {"\x00\xff\xfe", ""},
		"nothing":            {"", ""},
		"half written":       {`{"id":"m1","from":"x","to":"b","conte`, ""},
		"an unknown type":    {`{` + head + `,"type":"shout","content":{"parts":[]}}`, "type: want one of"},
		"65,537 bytes":       {`{` + head + `,"type":"message","content":{"parts":[{"type":"text","text":"` + strings.Repeat("x", 65_537) + `"}]}}`, "content"},
		"no text":            {`{` + head + `,"type":"message","content":{"parts":[]}}`, "the message is empty"},
		"a nack of nonsense": {`{` + head + `,"type":"nack","content":7}`, ""},
		"somebody else's":    {strings.Replace(`{`+head+`,"type":"message","content":"hi"}`, `"to":"b"`, `"to":"c"`, 1), `to: is "c", and this is the mailbox of "b"`},
		"its own name":       {strings.Replace(`{`+head+`,"type":"message","content":"hi"}`, `"from":"x"`, `"from":"b"`, 1), ""},
		"a path as sender":   {strings.Replace(`{`+head+`,"type":"message","content":"hi"}`, `"from":"x"`, `"from":"../x"`, 1), ""},
		"a task without one": {`{` + head + `,"type":"task","content":{"parts":[]}}`, "task: required"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				b := w.agent("b")
				key := w.hub.put("b", []byte(c.raw))
				w.foreign(b, mailbox.Envelope{From: "y", Content: textOf("behind it"), Hops: 3})
				same(t, "given", b.texts(), []string{"behind it"})
				if how, ok := w.hub.outcome("b", key); !ok || how != mailbox.Malformed {
					t.Errorf("it was not set aside: %v %v", how, ok)
				}
				if n := b.saw(agent.EventMalformed); n != 1 {
					t.Errorf("%d events", n)
				}
				nacks := w.mailOf("x", mailbox.TypeNack)
				if c.nack == "" {
					if len(nacks) > 0 {
						t.Errorf("told %+v", nacks)
					}
					return
				}
				if len(nacks) != 1 {
					t.Fatalf("told %d times", len(nacks))
				}
				code, says := mailbox.Refusal(nacks[0])
				if code != mailbox.InvalidMessage || nacks[0].ReplyTo != "m1" || !strings.Contains(says, c.nack) {
					t.Errorf("told %s %q, want %q", code, says, c.nack)
				}
				for _, folder := range []mailbox.AgentID{"../x", "b/../x"} {
					if len(w.hub.waiting(folder)) > 0 {
						t.Errorf("something was put into %s", folder)
					}
				}
			})
		})
	}
}

// One agent whose inbox is full, or that gave a name of nobody, must not hold up
// the mail of all others.
func TestAnswerHasNoRoom(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		w.hub.refusing("put", "full", mailbox.ErrFull)
		for _, typ := range []mailbox.Type{mailbox.TypePing, mailbox.TypeRegister, mailbox.TypeHeartbeat, mailbox.TypeTask, mailbox.TypeMessage} {
			w.foreign(b, mailbox.Envelope{From: "full", Type: typ, Content: textOf(string(typ)), Hops: 3,
				Task: &mailbox.Task{ID: "t"}, Metadata: mailbox.Metadata{RequiresAck: true}})
		}
		w.hub.put("b", []byte(`{"id":"m","from":"full","to":"b","metadata":{"requiresAck":true}}`))
		w.foreign(b, mailbox.Envelope{From: "x", Content: textOf("hello"), Hops: 3})
		same(t, "given", b.texts(), []string{"task", "message", "hello"})
		if left := w.hub.waiting("b"); len(left) > 0 {
			t.Errorf("%d still lie there", len(left))
		}
	})
}

// A heartbeat asks for an acknowledgement unless it says otherwise (docs/protocol.md 6.3): one that is no envelope gets a
// nack.
func TestRefusedHeartbeat(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.agent("b")
		for _, metadata := range []string{`{}`, `{"requiresAck":true}`, `{"requiresAck":false}`, `{"requiresAck":"no"}`} {
			w.hub.put("b", []byte(`{"id":"h","from":"x","to":"b","type":"heartbeat","timestamp":"soon","metadata":`+metadata+`}`))
		}
		if got := w.mailOf("x", mailbox.TypeNack); len(got) != 2 {
			t.Errorf("%d nacks, want one for each heartbeat that asks", len(got))
		}
	})
}

func TestPingHeartbeatRegister(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		for typ, answer := range map[mailbox.Type]mailbox.Type{mailbox.TypePing: mailbox.TypePong,
			mailbox.TypeHeartbeat: mailbox.TypeAck, mailbox.TypeRegister: mailbox.TypeRegistered} {
			w.foreign(b, mailbox.Envelope{From: "x", ID: string(typ), Type: typ, Hops: 3, Metadata: mailbox.Metadata{RequiresAck: true}})
			if got := w.mailOf("x", answer); len(got) != 1 || mailbox.Original(got[0]) != string(typ) {
				t.Errorf("%s is answered by %+v", typ, got)
			}
		}
		w.foreign(b, mailbox.Envelope{From: "x", Type: mailbox.TypeHeartbeat, Hops: 3})
		w.foreign(b, mailbox.Envelope{From: "x", Type: mailbox.TypePong, Hops: 3})
		if got := w.mailOf("x", mailbox.TypeAck); len(got) != 1 {
			t.Errorf("%d acks, want the first heartbeat's", len(got))
		}
		same(t, "given", b.texts(), []string{})
		if left := w.hub.waiting("b"); len(left) > 0 {
			t.Errorf("%d still lie there", len(left))
		}
	})
}

// What outlived itself is not given to the bot; what is about other mail is
// looked at however old it is.
func TestExpiredMail(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.idle("b")
		a.say(b, "old", func(e *mailbox.Envelope) { e.Metadata.TTL = new(60) })
		a.say(b, "for ever", func(e *mailbox.Envelope) { e.Metadata.TTL = new(0) })
		a.say(b, "an hour")
		a.say(b, "a task", func(e *mailbox.Envelope) {
			e.Type, e.Task, e.Metadata.TTL = mailbox.TypeTask, &mailbox.Task{ID: "t1"}, new(60)
		})
		time.Sleep(time.Hour)
		b.door.set(true)
		b.start()
		same(t, "given", b.texts(), []string{"for ever"})
		if n := b.saw(agent.EventExpired); n != 2 {
			t.Errorf("%d expired", n)
		}
		if state := a.state("t1"); state != mailbox.Failed && state != mailbox.Rejected {
			t.Errorf("the task is %s", state)
		}
	})
}

// A refusal that waited for two hours is one all the same.
func TestLateNack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		_, err := a.Send(t.Context(), agent.Draft{Envelope: letterTo("x", "hi", func(e *mailbox.Envelope) {
			e.ID, e.Metadata.RequiresAck, e.Metadata.TTL = "m1", true, new(0)
		})})
		must(t, err)
		synctest.Wait()
		a.stop()
		w.foreign(a, mailbox.NackFor(mailbox.Envelope{ID: "m1", From: "a"}, "x", time.Now(), mailbox.InvalidMessage, "no"))
		time.Sleep(2 * time.Hour)
		a.restart()
		dead := a.DeadLetters()
		if len(dead) != 1 || dead[0].ID != "m1" || dead[0].Code != mailbox.InvalidMessage {
			t.Errorf("dead letters %+v", dead)
		}
	})
}
