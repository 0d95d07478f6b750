package redisbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

func setCard(t *testing.T, s *Store, c mailbox.Card) {
	t.Helper()
	if err := s.SetCard(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// statuses is the status of each agent there is.
func statuses(t *testing.T, s *Store) map[mailbox.AgentID]mailbox.Status {
	t.Helper()
	cards, err := s.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[mailbox.AgentID]mailbox.Status{}
	for _, c := range cards {
		got[c.AgentID] = c.Status
	}
	return got
}

// A host's clock that is wrong does not take an agent offline, whose presence Redis knows.
func TestPresenceIsByTheClockOfRedis(t *testing.T) {
	s := open(t, redistest.Start(t).URL(), "alice", nil)
	setCard(t, s, mailboxtest.Card("alice", 1)) // its heartbeat is long ago
	cards, err := s.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := cards[0].At(time.Now(), time.Minute); got != mailbox.Busy {
		t.Errorf("alice is %s, want busy", got)
	}
}

func TestPresenceRunsOut(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	brief := open(t, srv.URL(), "alice", func(o *Options) { o.HeartbeatTimeout = time.Millisecond })
	s := open(t, srv.URL(), "bob", nil)
	old := mailboxtest.Card("carol", 1) // its heartbeat is long ago, and its program knows no keys
	entry, err := mailbox.EncodeCard(old, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw.HSet(t.Context(), cardsKey, "carol", entry)
	setCard(t, brief, mailboxtest.Card("alice", 1))
	setCard(t, s, mailboxtest.Card("bob", 1))
	relaytest.Eventually(t, "alice is offline", func() bool { return statuses(t, s)["alice"] == mailbox.Offline })
	want := map[mailbox.AgentID]mailbox.Status{"alice": mailbox.Offline, "bob": mailbox.Busy, "carol": mailbox.Busy}
	if diff := cmp.Diff(want, statuses(t, s)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if life := raw.PTTL(t.Context(), aliveKey("bob")).Val(); life <= 0 || life > defaultHeartbeatTimeout {
		t.Errorf("the alive key lives for %s", life)
	}
	setCard(t, s, mailboxtest.Card("alice", 2)) // back, by a store with time
	if got := statuses(t, s)["alice"]; got != mailbox.Busy {
		t.Errorf("back, alice is %s", got)
	}
	gone := mailboxtest.Card("bob", 2)
	gone.Status = mailbox.Offline
	setCard(t, s, gone)
	if n := raw.Exists(t.Context(), aliveKey("bob")).Val(); n != 0 || statuses(t, s)["bob"] != mailbox.Offline {
		t.Error("bob went, and is there")
	}
}

func TestForeignCardsAreLeftAlone(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "bob", nil)
	foreign := map[string]string{
		"camel":   `{"agentId":"camel","description":"<d>","status":"idle","maxConcurrentTasks":2,"lastHeartbeat":"2026-04-26T10:00:00Z","x":[1]}`,
		"broken":  `{"agent_id":`,
		"list":    `[]`,
		"../evil": `{"agent_id":"../evil","status":"idle"}`,
		"taken":   `{"agent_id":"taken","status":"idle","presence":{"key":1}}`,
	}
	for name, entry := range foreign {
		raw.HSet(ctx, cardsKey, name, entry)
	}
	setCard(t, s, mailboxtest.Card("bob", 1))
	got := raw.HGetAll(ctx, cardsKey).Val()
	delete(got, "bob")
	if diff := cmp.Diff(foreign, got); diff != "" {
		t.Errorf("other entries (-want +got):\n%s", diff)
	}
	want := map[mailbox.AgentID]mailbox.Status{"camel": mailbox.Idle, "taken": mailbox.Idle, "bob": mailbox.Busy}
	if diff := cmp.Diff(want, statuses(t, s)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestUnknownFieldsOfTheOwnCardAreKept(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "bob", nil)
	for _, previous := range []string{`{"agent_id":"bob","status":"offline","note":"<&>","nested":{"a":[1,2.50]},"presence":1}`, `{"big":"` + strings.Repeat("x", mailbox.MaxCard) + `"}`, `no json`, `null`, `[]`} {
		raw.HSet(ctx, cardsKey, "bob", previous)
		setCard(t, s, mailboxtest.Card("bob", 7))
		text := raw.HGet(ctx, cardsKey, "bob").Val()
		var entry map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &entry); err != nil {
			t.Fatal(err)
		}
		if !byKey(text) {
			t.Errorf("%s has no mark", text)
		}
		if strings.HasPrefix(previous, `{"agent_id"`) &&
			(string(entry["note"]) != `"<&>"` || string(entry["nested"]) != `{"a":[1,2.50]}`) {
			t.Errorf("after %s came %s", previous, text)
		}
		if string(entry["status"]) != `"busy"` || strings.Contains(text, `\u003c`) {
			t.Errorf("after %s came %s", previous, text)
		}
	}
}

func TestTooManyCards(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "bob", nil)
	fields := make([]any, 0, 2*maxCards+2)
	for i := range maxCards + 1 {
		fields = append(fields, fmt.Sprint("agent", i), "{}")
	}
	raw.HSet(ctx, cardsKey, fields...)
	if _, err := s.Cards(ctx); err == nil || !strings.Contains(err.Error(), "HDEL") ||
		!strings.Contains(err.Error(), cardsKey) {
		t.Errorf("got %v, want how to mend it", err)
	}
	raw.HDel(ctx, cardsKey, "agent0")
	if cards, err := s.Cards(ctx); err != nil || len(cards) != maxCards {
		t.Errorf("got %d cards, %v", len(cards), err)
	}
}
