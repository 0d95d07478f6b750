package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/relay"
)

// rig is a loop whose effects are done at once, as far as they have a result.
type rig struct {
	*Loop
	dir  string
	stop func()
	mu   sync.Mutex
	seen map[string]int // effects by kind and id; guarded by mu
}

func openRig(t testing.TB, dir string) *rig {
	t.Helper()
	r := &rig{dir: dir, seen: map[string]int{}}
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Open(Options{Dir: dir, Deliver: deliver.Config{MaxAge: 1e12, Timeout: 1e12,
		Channels: []deliver.Channel{{Name: "stream", First: 1e9, Most: 1e9}}},
		Config: func(Chat) *group.Config {
			return &group.Config{Agent: "a", AnyChat: true, MaxAge: 1e12,
				Base: group.Settings{Answer: group.ModeAll, Limit: 1000, Threshold: 1000}}
		},
		Failed: func(error) {},
		Do: func(e Effect) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if e.Deliver != nil {
				r.seen[fmt.Sprint(e.Deliver.Do, " ", e.Deliver.Key)]++
				return
			}
			r.seen[fmt.Sprint(e.Group.Do, " ", e.Group.ID)]++
			answer := Event{Chat: e.Chat, Group: &group.Event{Kind: group.Done, Key: e.Group.Key}}
			if e.Group.Do == group.Deliver {
				key := e.Chat.Key(e.Group.ID)
				answer.TextOf, answer.Text = key, json.RawMessage(`"hello"`)
				item := deliver.Item{Key: key, ID: e.Group.ID, Chat: e.Chat.String(), Sent: e.Group.Msg.TS}
				answer.Deliver = &deliver.Event{Kind: deliver.Take, Item: &item}
			}
			if e.Group.Key != "" {
				workers.Go(func() { _ = r.Post(ctx, answer) })
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	r.Loop = l
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	r.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		workers.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// save has events in the book, one after the other.
func (r *rig) save(t *testing.T, events ...Event) {
	t.Helper()
	for _, e := range events {
		if err := r.Save(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// opened is a new connection of the stream.
func opened(conn uint64) Event {
	return Event{Deliver: &deliver.Event{Kind: deliver.Open, Channel: "stream", Conn: conn}}
}

func arrived(n int) Event {
	id := relay.MessageID(fmt.Sprint("om_", n))
	m := &relay.Message{Channel: "feishu", ChatID: "oc", RelayMsgID: id, MessageID: id, SenderAgentName: "b",
		Content: "hello", TS: relay.MillisOf(time.Now())}
	return Event{Chat: Chat{"feishu", "oc"}, Group: &group.Event{Kind: group.Arrived, Msg: m}}
}

// Callers of Save have their events in the book, and the next process goes on with what the last one did not end.
func TestARestartGoesOn(t *testing.T) {
	r := openRig(t, t.TempDir())
	r.save(t, Event{Group: &group.Event{Kind: group.CaughtUp}})
	var callers sync.WaitGroup
	for n := range 100 {
		callers.Go(func() {
			if err := r.Save(t.Context(), arrived(n)); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	taken := func(r *rig) (n int) {
		if err := r.View(t.Context(), func(c *Core) {
			undelivered, _ := c.Bot().Counts()
			n = undelivered.Items
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for taken(r) < 100 { // each by an event of a worker
	}
	if text, err := r.Text("feishu/oc/om_7"); err != nil || string(text) != `"hello"` {
		t.Errorf("text %s, %v", text, err)
	}
	r.stop()
	if err := r.Post(t.Context(), arrived(1)); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
	again := openRig(t, r.dir)
	if n := taken(again); n != 100 {
		t.Errorf("%d are to be delivered after a restart, want 100", n)
	}
	again.save(t, opened(1), Event{}) // then the effects before it have begun
	again.mu.Lock()
	defer again.mu.Unlock()
	if n := len(again.seen); n == 0 { // the first one of the chat, which the bot has to answer before the next
		t.Error("nothing is written")
	}
}

// What was recalled is not in the files of the book some time later, also if nothing happens. It is not written again
// to a bot that has it and did not confirm it.
func TestARecalledTextLeavesTheFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := openRig(t, t.TempDir()), arrived(1).Chat
		key := of.Key("om_1")
		for _, e := range []Event{{Group: &group.Event{Kind: group.CaughtUp}}, arrived(1), opened(1),
			{Deliver: &deliver.Event{Kind: deliver.Report, Key: key, Try: 1, Result: deliver.Unconfirmed}},
			{Chat: of, Group: &group.Event{Kind: group.Recalled, ID: "om_1"}}, opened(2)} {
			r.save(t, e)
			synctest.Wait() // until what follows from it is done
		}
		if text, err := r.Text(key); err == nil || r.seen["write "+key] != 1 {
			t.Errorf("its text is %s, and it was written %d times, want once", text, r.seen["write "+key])
		}
		holds := func() bool { return exec.Command("grep", "-rq", "hello", r.dir).Run() == nil }
		for _, want := range []bool{true, false} {
			if got := holds(); got != want {
				t.Errorf("the text is in the files: %v, want %v", got, want)
			}
			time.Sleep(2*forget + time.Second)
		}
	})
}

func TestChatOf(t *testing.T) {
	for _, c := range []Chat{{"feishu", "oc_1"}, {"a/b", "c/d"}, {"%2F", "x"}, {"", ""}} {
		if got := ChatOf(c.String()); got != c {
			t.Errorf("%q is read as %q", c, got)
		}
	}
}
