package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// An agent's second task waits for the first one for half an hour, and not longer where the clock was put back.
func TestHowLongATaskWaits(t *testing.T) {
	store, err := feishu.OpenStore(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	openMail := func() *peerMail {
		chats, err := peerchat.Open(peerchat.Options{Store: store, Self: func() feishu.Self { return feishu.Self{} }})
		if err != nil {
			t.Fatal(err)
		}
		return &peerMail{base: &base{cfg: Config{Agent: "coder"}}, chats: chats}
	}
	given := func(p *peerMail, from mailbox.AgentID) {
		mail, err := relay.Marshal(mailInfo{ID: "m1", Type: mailbox.TypeTask, Task: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.chats.Receive(relay.AgentName(from), "m1", "task one", mail); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	given(openMail(), "early")
	synctest.Test(t, func(t *testing.T) { // its clock is decades behind
		p := openMail()
		wants := func(what string, from mailbox.AgentID, taken time.Time, want time.Duration) {
			t.Helper()
			first := &agent.TaskRecord{ID: "t1", State: mailbox.Accepted, CreatedAt: taken}
			second := mailbox.Envelope{From: from, Type: mailbox.TypeTask, Task: &mailbox.Task{ID: "t2"}}
			if got := p.waitsFor(second, map[string]*agent.TaskRecord{"t1": first}); got != want {
				t.Errorf("%s: it waits %s, want %s", what, got, want)
			}
		}
		now := time.Now()
		given(p, "late")
		wants("given now, in a chat of the future", "late", now, oneTaskFor)
		wants("given before the clock was put back", "early", before, 0)
		time.Sleep(oneTaskFor - time.Second)
		wants("a second before the end", "late", now, time.Second)
		time.Sleep(time.Second)
		wants("half an hour later", "late", now, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		chats, err := peerchat.Open(peerchat.Options{Self: func() feishu.Self { return feishu.Self{} }})
		if err != nil {
			t.Fatal(err)
		}
		p := &peerMail{base: &base{cfg: Config{Agent: "coder"}}, chats: chats}
		taken := time.Now()
		time.Sleep(time.Hour) // the bot was away
		given(p, "writer")
		open := map[string]*agent.TaskRecord{"t1": {ID: "t1", State: mailbox.Accepted, CreatedAt: taken}}
		second := mailbox.Envelope{From: "writer", Type: mailbox.TypeTask, Task: &mailbox.Task{ID: "t2"}}
		for _, want := range []time.Duration{oneTaskFor, oneTaskFor / 2, 0} {
			if got := p.waitsFor(second, open); got != want {
				t.Errorf("beside a task that was given to the bot late it waits %s, want %s", got, want)
			}
			time.Sleep(oneTaskFor / 2)
		}
	})
}
