package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// wire is the bot's end of a line.
type wire struct {
	agent.Line
	mu  sync.Mutex
	got []mailbox.Envelope // guarded by mu
	err error              // of each send; guarded by mu

	unread chan error // nil: what is written is read at once; else how the bot's side ends each
}

func (a *actor) attach() *wire {
	w := &wire{}
	w.open(a)
	return w
}

func (w *wire) open(a *actor) {
	w.Line = a.Attach(func(_ context.Context, e mailbox.Envelope, written func()) error {
		w.mu.Lock()
		err := w.err
		if err == nil {
			w.got = append(w.got, e)
		}
		w.mu.Unlock()
		if written(); err == nil && w.unread != nil && !e.Metadata.RequiresAck {
			err = <-w.unread
		}
		return err
	})
	synctest.Wait()
}

func (w *wire) texts() (out []string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.got {
		out = append(out, e.Text())
	}
	return out
}

// forget forgets the first n envelopes, and returns the last of them.
func (w *wire) forget(n int) mailbox.Envelope {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.got[n-1]
	w.got = w.got[n:]
	return last
}

// handle hands over what the bot says.
func (w *wire) handle(t *testing.T, e mailbox.Envelope) (*mailbox.Envelope, error) {
	t.Helper()
	answer, err := w.Handle(t.Context(), e)
	synctest.Wait()
	return answer, err
}

// On a line, mail for which an acknowledgement is wanted counts as delivered
// when the bot has given one; other mail when its side has read it.
func TestLine(t *testing.T) {
	for _, c := range []struct {
		name      string
		answer    func(t *testing.T, b *actor, line *wire, e mailbox.Envelope)
		again     int // how often it is given besides, within two minutes
		delivered int
		dead      mailbox.Code
	}{
		{"ack", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			_, err := line.handle(t, mailbox.AckFor(e, "b", time.Now()))
			must(t, err)
		}, 0, 1, ""},
		{"ack by HTTP", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) { must(t, b.Ack(t.Context(), e.ID)) }, 0, 1, ""},
		{"nack", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			_, err := line.handle(t, mailbox.NackFor(e, "b", time.Now(), mailbox.Unauthorized, "no"))
			must(t, err)
		}, 0, 0, mailbox.Unauthorized},
		{"nack by HTTP", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			must(t, b.Nack(t.Context(), e.ID, mailbox.TaskNotFound, "no"))
		}, 0, 0, mailbox.TaskNotFound},
		{"nack for now", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			_, err := line.handle(t, mailbox.NackFor(e, "b", time.Now(), mailbox.AgentBusy, "later"))
			must(t, err)
			time.Sleep(5 * time.Second)
			_, err = line.handle(t, mailbox.AckFor(e, "b", time.Now()))
			must(t, err)
		}, 1, 1, ""},
		{"late ack", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			time.Sleep(30*time.Second + 50*time.Millisecond) // in the pause behind it
			_, err := line.handle(t, mailbox.AckFor(e, "b", time.Now()))
			must(t, err)
		}, 0, 1, ""},
		{"closing meanwhile", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			line.Close()
			time.Sleep(time.Second)
			if n := len(b.deliveries()); n != 0 {
				t.Errorf("%d went through a door that is shut", n)
			}
			again := b.attach()
			if n := len(again.texts()); n != 1 {
				t.Fatalf("the next line got %d", n)
			}
			_, err := again.handle(t, mailbox.AckFor(e, "b", time.Now()))
			must(t, err)
		}, 0, 1, ""},
		{"taken over meanwhile", func(t *testing.T, b *actor, line *wire, e mailbox.Envelope) {
			again := b.attach()
			select {
			case <-line.Done():
			default:
				t.Error("the earlier line is not told")
			}
			time.Sleep(time.Second)
			line.Close() // must not close the new one
			_, err := again.handle(t, mailbox.AckFor(e, "b", time.Now()))
			must(t, err)
		}, 0, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a, b := w.agent("a"), w.agent("b")
				b.door.set(false)
				line := b.attach()
				a.say(b, "by the way")
				synctest.Wait()
				a.say(b, "important", wanted)
				if got := line.texts(); len(got) != 2 || a.Counts().Unacknowledged != 1 || b.saw(agent.EventDelivered) != 1 {
					t.Fatalf("given %q, %+v", got, a.Counts())
				}
				e := line.forget(2)
				c.answer(t, b, line, e)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := len(line.texts()); n != c.again {
					t.Errorf("given %d times more, want %d", n, c.again)
				}
				if n := b.saw(agent.EventDelivered) - 1; n != c.delivered {
					t.Errorf("delivered %d times", n)
				}
				dead := a.DeadLetters()
				if c.dead == "" && len(dead) > 0 || c.dead != "" && (len(dead) != 1 || dead[0].Code != c.dead) {
					t.Errorf("dead letters %+v", dead)
				}
				if n := a.Counts().Unacknowledged + b.Counts().Waiting; n != 0 {
					t.Errorf("%d are left", n)
				}
			})
		})
	}
}

// Mail that the bot's side has not read does not hold up what follows, and comes again on the next line.
func TestLineThatReadsNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		line := &wire{unread: make(chan error)}
		line.open(b)
		a.say(b, "one")
		time.Sleep(time.Millisecond)
		a.say(b, "two")
		same(t, "written", line.texts(), []string{"one", "two"})
		line.Close()
		line.unread <- errors.New("closed")
		line.unread <- errors.New("closed")
		time.Sleep(time.Second)
		if n := b.saw(agent.EventDelivered); n != 0 || b.Counts().Waiting != 2 {
			t.Errorf("%d count as delivered, %d wait", n, b.Counts().Waiting)
		}
		same(t, "given again", b.attach().texts(), []string{"one", "two"})
		if n := b.saw(agent.EventDelivered); n != 2 || b.Counts().Waiting != 0 {
			t.Errorf("%d delivered, %d wait", n, b.Counts().Waiting)
		}
	})
}

// An ack that comes in the moment in which the bot's time is over counts: the
// message is not written again.
func TestAckAsTheTimeIsOver(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		line := b.attach()
		for i := range 50 {
			sent := a.say(b, fmt.Sprint(i), wanted)
			synctest.Wait()
			time.Sleep(b.opts.AckTimeout)
			if _, err := line.handle(t, mailbox.Envelope{ID: fmt.Sprint("a", i), From: "b", To: "b", Type: mailbox.TypeAck, ReplyTo: sent.ID, Timestamp: time.Now()}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			same(t, "written", line.texts(), []string{fmt.Sprint(i)})
			line.forget(1)
			if t.Failed() {
				return
			}
		}
	})
}

// A bot that never acknowledges is asked again, and other mail gets its turn.
func TestLineWithoutAcks(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		b := w.agent("b")
		b.door.set(false)
		line := b.attach()
		w.foreign(b, mailbox.Envelope{From: "x", ID: "m1", Priority: 1, Content: textOf("important"), Hops: 3,
			Metadata: mailbox.Metadata{RequiresAck: true, TTL: new(0)}})
		w.foreign(b, mailbox.Envelope{From: "x", ID: "m2", Content: textOf("by the way"), Hops: 3})
		time.Sleep(20 * time.Minute)
		if got := strings.Join(line.texts(), ","); got != "important,by the way" {
			t.Errorf("given %s", got)
		}
		if left := w.hub.waiting("b"); len(left) != 1 {
			t.Errorf("%d letters wait, want the one that was not acknowledged", len(left))
		}
		if _, err := line.handle(t, mailbox.AckFor(mailbox.Envelope{From: "x", ID: "m1"}, "b", time.Now())); err != nil {
			t.Error(err)
		}
		if left := w.hub.waiting("b"); len(left) != 0 {
			t.Errorf("%d letters wait after the late acknowledgement", len(left))
		}
	})
}

// What the bot sends is acknowledged on the line as soon as it is safe here.
func TestLineSends(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		line := a.attach()
		say := func(typ mailbox.Type, to mailbox.AgentID, change ...func(*mailbox.Envelope)) (*mailbox.Envelope, error) {
			t.Helper()
			e := letterTo(to, "hello", change...)
			e.ID, e.From, e.Type, e.Timestamp = "m-"+string(typ), "a", typ, time.Now()
			return line.handle(t, e)
		}
		answer, err := say(mailbox.TypeMessage, "b", wanted)
		must(t, err)
		if answer == nil || answer.Type != mailbox.TypeAck || mailbox.Original(*answer) != "m-message" {
			t.Errorf("answered %+v", answer)
		}
		same(t, "given", b.texts(), []string{"hello"})
		for typ, want := range map[mailbox.Type]mailbox.Type{mailbox.TypeHeartbeat: mailbox.TypeAck, mailbox.TypePing: mailbox.TypePong,
			mailbox.TypeRegister: mailbox.TypeRegistered, mailbox.TypePong: ""} {
			answer, err := say(typ, "a", wanted, func(e *mailbox.Envelope) { e.Content.Parts = nil })
			must(t, err)
			if want == "" && answer != nil || want != "" && (answer == nil || answer.Type != want) {
				t.Errorf("%s is answered %+v", typ, answer)
			}
		}
		_, err = say(mailbox.TypeQuestion, "a")
		refusedAs(t, err, mailbox.InvalidMessage, "itself")
		_, err = line.handle(t, mailbox.Envelope{ID: "x", From: "b", To: "b", Type: mailbox.TypeMessage, Hops: 3, Content: textOf("x")})
		refusedAs(t, err, mailbox.InvalidMessage, "speaks for")
	})
}

// A line that cannot be written to is no delivery.
func TestBrokenLine(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		b.door.set(false)
		line := b.attach()
		line.mu.Lock()
		line.err = errors.New("broken pipe")
		line.mu.Unlock()
		a.say(b, "hello")
		synctest.Wait()
		line.Close()
		b.door.set(true)
		time.Sleep(time.Minute)
		same(t, "given by the other door", b.texts(), []string{"hello"})
	})
}
