package redisbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// peerText is what a program publishes that knows peer inboxes only (docs/protocol.md 6.7).
func peerText(from, to, body string) string {
	text, _ := json.Marshal(body)
	return fmt.Sprintf(`{"from_agent_id":%q,"from_goal_id":"0d5cb1b6-6a8e-4c8f-9d38-3b1a3c0c9a01","to_agent_id":%q,"body":%s,`+
		`"sent_at":"2026-04-30T14:00:00+00:00","correlation_id":"5f0c2f44-7a7b-4a5e-8d3e-0a6f6f3d2b11"}`, from, to, text)
}

func text(t *testing.T, i mailbox.Item) string {
	t.Helper()
	e := decode(t, i)
	return e.Text()
}

func publish(t *testing.T, raw *redis.Client, channel, payload string) {
	t.Helper()
	if err := raw.Publish(t.Context(), channel, payload).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestForeignMessageIsPutIntoTheInbox(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	s := open(t, srv.URL(), "bob", nil)
	e := hearingGoals(t, raw, s, "bob", "goal.1")
	publish(t, raw, "agent.inbox.goal.1", peerText("researcher", "bob", "task #1 ready <now> 你好"))
	item := e.next()
	got := decode(t, item)
	if got.From != "researcher" || got.To != "bob" || got.Type != mailbox.TypeMessage || got.Metadata.Goal != "goal.1" ||
		got.Text() != "task #1 ready <now> 你好" || got.ID == "" ||
		got.Metadata.CorrelationID != "5f0c2f44-7a7b-4a5e-8d3e-0a6f6f3d2b11" {
		t.Errorf("got %+v", got)
	}
	e.stop()
	e.start() // it waits as any other
	if again := e.next(); again.Key != item.Key {
		t.Errorf("got %s anew, want %s", again.Key, item.Key)
	}
	if n := s.Dropped(); n != 0 {
		t.Errorf("%d were dropped", n)
	}
}

func TestWhatIsNotTakenFromTheChannels(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	s := open(t, srv.URL(), "bob", nil)
	e := hearingGoals(t, raw, s, "bob", "g")
	ours := strings.Replace(peerText("alice", "bob", "by the stream"), "{", `{"id":"msg_1_alice_x",`, 1)
	ignored := []struct{ channel, payload string }{
		{"agent.inbox.g", peerText("alice", "carol", "for somebody else")},
		{"agent.inbox.g", ours},
	}
	malformed := []struct{ channel, payload string }{
		{"agent.inbox.g", ""},
		{"agent.inbox.g", "no json"},
		{"agent.inbox.g", "[]"},
		{"agent.inbox.g", "{}"},
		{"agent.inbox.g", peerText("alice", "bob", " \n ")},
		{"agent.inbox.g", peerText("alice", "bob", strings.Repeat("x", mailbox.MaxBody+1))},
		{"agent.inbox.g", strings.Repeat(" ", maxPayload) + peerText("alice", "bob", "x")},
		{"agent.inbox.g", peerText("../alice", "bob", "x")},
	}
	for _, m := range append(ignored, malformed...) {
		publish(t, raw, m.channel, m.payload)
	}
	publish(t, raw, "agent.inbox.g", peerText("alice", "bob", strings.Repeat("\u0001", mailbox.MaxBody)))
	publish(t, raw, "agent.inbox.g", peerText("alice", "bob", "last"))
	if n := len(text(t, e.next())); n != mailbox.MaxBody {
		t.Errorf("got %d bytes, want the longest body there is", n)
	}
	if got := text(t, e.next()); got != "last" {
		t.Errorf("got %q", got)
	}
	if got, want := s.Dropped(), len(malformed); got != want {
		t.Errorf("%d were dropped, want %d", got, want)
	}
}

// An agent without goals has one, its own name; goals that come and go are listened for and not any more.
func TestGoalsComeAndGo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	s := open(t, srv.URL(), "bob", nil)
	e := hearing(t, s, "bob")
	listening(t, raw, "bob")
	c := mailboxtest.Card("bob", 1)
	for _, goals := range [][]string{{"a", "b"}, {"b", "c"}} {
		c.Goals = goals
		if err := s.SetCard(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		listening(t, raw, goals...)
		for _, goal := range goals {
			publish(t, raw, "agent.inbox."+goal, peerText("alice", "bob", goal))
			if got := text(t, e.next()); got != goal {
				t.Errorf("got %q, want %q", got, goal)
			}
		}
	}
	relaytest.Eventually(t, "nobody listens for what is gone", func() bool {
		n := raw.PubSubNumSub(t.Context(), "agent.inbox.a", "agent.inbox.bob").Val()
		return n["agent.inbox.a"]+n["agent.inbox.bob"] == 0
	})
}

func TestForeignMessageForAFullInboxIsDropped(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	s := open(t, srv.URL(), "bob", nil)
	e := hearingGoals(t, raw, s, "bob", "g")
	if _, err := raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range mailbox.MaxInbox {
			p.XAdd(t.Context(), &redis.XAddArgs{Stream: inboxKey("bob"), Values: []any{"envelope", "x"}})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	publish(t, raw, "agent.inbox.g", peerText("alice", "bob", "no room"))
	relaytest.Eventually(t, "dropped", func() bool { return s.Dropped() == 1 })
	for range mailbox.MaxInbox {
		e.next()
	}
	if err := s.Settle(t.Context(), "bob", raw.XRangeN(t.Context(), inboxKey("bob"), "-", "+", 1).Val()[0].ID,
		mailbox.Taken); err != nil {
		t.Fatal(err)
	}
	publish(t, raw, "agent.inbox.g", peerText("alice", "bob", "room"))
	if got := text(t, e.next()); got != "room" {
		t.Errorf("got %q", got)
	}
}

// Two of our stores: what the one publishes, the other does not take twice.
func TestOursComesByTheStreamAlone(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	alice, bob := open(t, srv.URL(), "alice", nil), open(t, srv.URL(), "bob", nil)
	e := hearingGoals(t, raw, bob, "bob", "g")
	for i := range 50 {
		put(t, alice, toGoal(i, "g"))
	}
	publish(t, raw, "agent.inbox.g", peerText("alice", "bob", "end")) // heard behind all of them
	for i := range 50 {
		e.want(toGoal(i, "g").ID)
	}
	if got := text(t, e.next()); got != "end" {
		t.Errorf("got %q, want the end", got)
	}
	if n := raw.XLen(t.Context(), inboxKey("bob")).Val(); n != 51 {
		t.Errorf("the inbox holds %d, want 51", n)
	}
}
