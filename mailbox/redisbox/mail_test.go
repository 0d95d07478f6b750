package redisbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

func TestWhatLiesOnRedis(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	e := mails(1, 1)[0]
	key := put(t, s, e)[0]
	want, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	const inbox = "nanobot:mailbox:{bob}:inbox"
	got := raw.XRange(ctx, inbox, "-", "+").Val()
	if diff := cmp.Diff([]redis.XMessage{{ID: key, Values: map[string]any{"envelope": string(want)}}}, got); diff != "" {
		t.Errorf("the stream (-want +got):\n%s", diff)
	}
	put(t, s, e)
	if err := s.Settle(ctx, "bob", key, mailbox.Taken); err != nil {
		t.Fatal(err)
	}
	keys := raw.Keys(ctx, "*").Val()
	slices.Sort(keys)
	if diff := cmp.Diff([]string{inbox, takenKey("bob")}, keys); diff != "" {
		t.Errorf("the keys (-want +got):\n%s", diff)
	}
}

func TestAgainLeavesOneCopy(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	e := mails(1, 1)[0]
	key := put(t, s, e)[0]
	for _, old := range []string{key, "1745659200000_alice_x7f.msg.json", "5", "", "99-1"} { // also another store's
		next, err := s.Again(ctx, old, mailboxtest.Sealed(e))
		if err != nil || next == old {
			t.Fatalf("again of %q: got %q, %v", old, next, err)
		}
		if old == key {
			if n := raw.XLen(ctx, inboxKey("bob")).Val(); n != 1 {
				t.Errorf("got %d copies, want 1", n)
			}
		}
	}
	if n := raw.XLen(ctx, inboxKey("bob")).Val(); n != 5 {
		t.Errorf("got %d messages, want 5", n)
	}
}

func TestMalformedMailIsSetAside(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "bob", nil)
	inbox, aside := inboxKey("bob"), "nanobot:mailbox:{bob}:malformed"
	add := func(values ...any) string {
		return raw.XAdd(ctx, &redis.XAddArgs{Stream: inbox, Values: values}).Val()
	}
	for _, key := range []string{add("envelope", "no\xffthing"), add("payload", "<else>"), add("a", "<1>", "b", "2")} {
		if err := s.Settle(ctx, "bob", key, mailbox.Malformed); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(ctx, "bob", key, mailbox.Malformed); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`["a","<1>","b","2"]`, "<else>", "no\xffthing"}
	if diff := cmp.Diff(want, raw.LRange(ctx, aside, 0, -1).Val()); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	if n, life := raw.XLen(ctx, inbox).Val(), raw.TTL(ctx, aside).Val(); n != 0 || life <= 0 {
		t.Errorf("%d are left in the inbox, and the list lives for %s", n, life)
	}
	old := make([]any, maxMalformed)
	for i := range old {
		old[i] = "old"
	}
	raw.RPush(ctx, aside, old...)
	if err := s.Settle(ctx, "bob", add("envelope", "new"), mailbox.Malformed); err != nil {
		t.Fatal(err)
	}
	if n, first := raw.LLen(ctx, aside).Val(), raw.LIndex(ctx, aside, 0).Val(); n != maxMalformed || first != "new" {
		t.Errorf("%d are set aside, the first is %q; want %d, the first new", n, first, maxMalformed)
	}
}

// What other programs add to the stream themselves.
func TestForeignEntries(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "bob", nil)
	const (
		snake = `{"id":"msg_1745659200000_alice","from":"alice","to":"bob","timestamp":"2026-04-26T10:00:00Z","type":"task","ttl":3,` +
			`"trace":["alice"],"task":{"id":"t1","state":"pending","deadline":"2026-04-26T11:00:00Z"},` +
			`"content":{"parts":[{"type":"text","text":"x"}]},"reply_to":null}`
		camel = `{"id":"msg-1745659200000-abc","from":"alice","to":"bob","type":"message","content":{"body":"x"},` +
			`"timestamp":"2026-04-26T10:00:00.000Z","priority":3,"metadata":{"correlationId":"c","requiresAck":true}}`
	)
	tests := []struct {
		name   string
		values []any
		want   string
	}{
		{"ours", []any{"envelope", snake}, snake},
		{"camelCase", []any{"envelope", camel}, camel},
		{"another name of the field", []any{"payload", camel}, camel},
		{"further fields", []any{"v", "1", "envelope", snake}, snake},
		{"no envelope among several", []any{"b", "<2>", "a", "1"}, `{"a":"1","b":"<2>"}`},
		{"empty", []any{"envelope", ""}, ""},
		{"no text", []any{"envelope", "\xff\x00"}, "\xff\x00"},
		{"longer than an envelope", []any{"envelope", strings.Repeat("x", 2<<20)}, strings.Repeat("x", 2<<20)},
	}
	e := hearing(t, s, "bob")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := raw.XAdd(ctx, &redis.XAddArgs{Stream: inboxKey("bob"), Values: tt.values}).Val()
			shown := e.next()
			read, err := s.Read(ctx, "bob", key)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range []mailbox.Item{shown, read} {
				if item.Key != key || string(item.Raw) != tt.want {
					t.Errorf("got %q: %.100q, want %q: %.100q", item.Key, item.Raw, key, tt.want)
				}
			}
		})
	}
	for i := range 2 { // both makes are envelopes
		decode(t, mailbox.Item{Raw: []byte(tests[i].want)})
	}
}

func TestKeysOfAnAgentShareASlot(t *testing.T) {
	seen := map[string]mailbox.AgentID{}
	for _, agent := range []mailbox.AgentID{"bob", "}bob", "b}ob", "{bob}", "%7Dbob", "bob%", "你好", "{}"} {
		var tags []string
		for _, k := range []string{inboxKey(agent), malformedKey(agent), aliveKey(agent)} {
			_, rest, _ := strings.Cut(k, "{")
			tag, _, _ := strings.Cut(rest, "}")
			tags = append(tags, tag)
			if other, taken := seen[k]; taken {
				t.Errorf("%s and %s share the key %s", agent, other, k)
			}
			seen[k] = agent
		}
		if tags[0] == "" || tags[0] != tags[1] || tags[1] != tags[2] {
			t.Errorf("the keys of %s have the tags %q", agent, tags)
		}
	}
}

func TestPublishesMessagesForAGoal(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	sub := raw.PSubscribe(ctx, "*")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	task := toGoal(2, "g")
	task.Type, task.Task = mailbox.TypeTask, &mailbox.Task{ID: "t", State: mailbox.Pending}
	blank := toGoal(3, "g")
	blank.Content.Parts = []mailbox.Part{{Type: "text", Text: " \n"}} // no peer message
	first, last := toGoal(4, "bob.<main>"), toGoal(5, "end")
	first.Metadata.CorrelationID = "5f0c2f44-7a7b-4a5e-8d3e-0a6f6f3d2b11"
	keys := put(t, s, mails(1, 1)[0], task, blank, toGoal(6, ""), toGoal(7, "a\nb"), first)
	if _, err := s.Again(ctx, keys[len(keys)-1], mailboxtest.Sealed(first)); err != nil {
		t.Fatal(err)
	}
	put(t, s, last)

	m, err := sub.ReceiveMessage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if m.Channel != "agent.inbox.bob.<main>" {
		t.Errorf("the first message came on %q", m.Channel)
	}
	var p mailbox.Peer
	if err := json.Unmarshal([]byte(m.Payload), &p); err != nil {
		t.Fatal(err)
	}
	if p.FromAgentID != "alice" || p.ToAgentID != "bob" || p.ID != first.ID || p.CorrelationID != first.Metadata.CorrelationID || !p.SentAt.Equal(first.Timestamp) {
		t.Errorf("got %+v", p)
	}
	if want := first.Text(); p.Body != want {
		t.Errorf("got the body %q, want %q", p.Body, want)
	}
	if m, err = sub.ReceiveMessage(ctx); err != nil || m.Channel != "agent.inbox.end" {
		t.Errorf("got %v, %v, want what was put last", m, err)
	}
}
