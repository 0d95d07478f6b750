package redisbox

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

// calls are all that a store can be asked.
func calls(s *Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Put": func(ctx context.Context) error { _, err := s.Put(ctx, mailboxtest.Sealed(mails(1, 1)[0])); return err },
		"Again": func(ctx context.Context) error {
			_, err := s.Again(ctx, "1-1", mailboxtest.Sealed(mails(1, 1)[0]))
			return err
		},
		"Where":     func(ctx context.Context) error { _, err := s.Where(ctx, "bob", "1-1"); return err },
		"Read":      func(ctx context.Context) error { _, err := s.Read(ctx, "bob", "1-1"); return err },
		"Settle":    func(ctx context.Context) error { return s.Settle(ctx, "bob", "1-1", mailbox.Taken) },
		"Malformed": func(ctx context.Context) error { return s.Settle(ctx, "bob", "1-1", mailbox.Malformed) },
		"Receive":   func(ctx context.Context) error { return s.Receive(ctx, "bob", func(mailbox.Item) {}, nil) },
		"Cards":     func(ctx context.Context) error { _, err := s.Cards(ctx); return err },
		"SetCard":   func(ctx context.Context) error { return s.SetCard(ctx, mailboxtest.Card("bob", 1)) },
	}
}

func TestFaultsSayHowToMendThem(t *testing.T) {
	plain, locked := redistest.Start(t), redistest.Start(t, "--requirepass", "hunter2")
	tests := []struct{ name, url, says string }{
		{"no password given", locked.URL(), "give it in REDIS_URL"},
		{"wrong password", "redis://:hunter3@" + locked.Addr(), "refuses"},
		{"no such database", plain.URL() + "/99", "database"},
		{"TLS not spoken", "rediss://" + plain.Addr(), "TLS"},
		{"no cluster", "redis+cluster://" + plain.Addr(), "not a Cluster"},
		{"nobody there", "unix:///nonexistent/redis.sock", "no such file"},
		{"not a redis", redistest.NotRedis(t), "not a redis"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.url, "alice", nil)
			var asking sync.WaitGroup
			for name, call := range calls(s) {
				asking.Go(func() {
					err := call(t.Context())
					if err == nil || !strings.Contains(err.Error(), tt.says) {
						t.Errorf("%s: got %v, want it to say %q", name, err, tt.says)
					} else if strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "word 1") {
						t.Errorf("%s quotes a secret or a message: %v", name, err)
					}
				})
			}
			asking.Wait()
		})
	}
}

func TestKeysOfAnotherTypeAreNamed(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	for _, key := range []string{inboxKey("bob"), cardsKey} {
		if err := raw.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, srv.URL(), "alice", nil)
	for name, call := range calls(s) {
		key := inboxKey("bob")
		if strings.Contains(name, "Card") {
			key = cardsKey
		}
		if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "another type") {
			t.Errorf("%s: got %v, want it to name the key %s", name, err, key)
		}
	}
	raw.Del(t.Context(), inboxKey("bob"))
	key := put(t, s, mails(1, 1)[0])[0]
	raw.Set(t.Context(), malformedKey("bob"), "x", 0)
	if err := s.Settle(t.Context(), "bob", key, mailbox.Malformed); err == nil || !strings.Contains(err.Error(), malformedKey("bob")) {
		t.Errorf("got %v, want it to name the list", err)
	}
	if place, err := s.Where(t.Context(), "bob", key); err != nil || place != mailbox.Waiting {
		t.Errorf("not set aside, the message is at %d, %v", place, err)
	}
}

// A key that becomes something else under a Receive.
func TestInboxTurnsIntoAnotherType(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL(), "bob", nil)
	e := hearing(t, s, "bob")
	put(t, s, mails(1, 1)...)
	e.want(ids(mails(1, 1))...)
	rawClient(t, srv.URL()).Set(t.Context(), inboxKey("bob"), "x", 0)
	if err := e.fault(); !strings.Contains(err.Error(), inboxKey("bob")) {
		t.Errorf("got %v, want it to name the key", err)
	}
}

func TestBadURL(t *testing.T) {
	if _, err := Open(Options{URL: "http://hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// setUser gives the user nano all commands and these rights alone.
func setUser(t *testing.T, raw *redis.Client, rights ...string) {
	t.Helper()
	command := []any{"ACL", "SETUSER", "nano", "reset", "on", ">pw", "+@all"}
	for _, right := range redistest.Rules(rights...) {
		command = append(command, right)
	}
	if err := raw.Do(t.Context(), command...).Err(); err != nil {
		t.Fatal(err)
	}
}

// A user of Redis with no more rights than the hint names.
func TestRights(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	setUser(t, raw, "~nanobot:mailbox:*", "&agent.inbox.*")
	passes(t, "redis://nano:pw@"+srv.Addr(), raw)
	for _, tt := range []struct {
		right string
		puts  bool
	}{{"&agent.inbox.*", false}, {"~nanobot:mailbox:*", true}} { // a stream without a channel is enough to put
		setUser(t, raw, tt.right)
		s := open(t, "redis://nano:pw@"+srv.Addr(), "bob", nil)
		_, err := s.Put(t.Context(), mailboxtest.Sealed(toGoal(1, "g")))
		if tt.puts && err != nil || !tt.puts && (err == nil || !strings.Contains(err.Error(), "lacks rights")) {
			t.Errorf("Put with %v: got %v", tt.right, err)
		}
		if tt.puts && redistest.Before(6, 2) {
			continue // no right is missing: Redis has none for channels
		}
		if err := s.Receive(t.Context(), "bob", func(mailbox.Item) {}, nil); err == nil || !strings.Contains(err.Error(), "lacks rights") {
			t.Errorf("Receive with %v: got %v, want the rights it needs", tt.right, err)
		}
	}
}

// A full Redis takes no mail away, with any policy that spares keys without a life.
func TestFullRedisKeepsMail(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, "--maxmemory", "16mb", "--maxmemory-policy", policy)
			raw, ctx := rawClient(t, srv.URL()), t.Context()
			s := open(t, srv.URL(), "alice", nil)
			for _, agent := range []mailbox.AgentID{"bob", "carol"} {
				for i := range 50 {
					put(t, s, mailboxtest.Envelope("alice", agent, i))
				}
			}
			put(t, s, mailboxtest.Envelope("alice", "bob", 50))
			malformed := raw.XAdd(ctx, &redis.XAddArgs{Stream: inboxKey("bob"), Values: []string{"envelope", "-"}}).Val()
			if err := s.Settle(ctx, "bob", malformed, mailbox.Malformed); err != nil {
				t.Fatal(err)
			}
			var err error
			for i := 0; err == nil; i++ {
				err = raw.Set(ctx, fmt.Sprint("other", i), bytes.Repeat([]byte{'x'}, 100_000), 0).Err()
			}
			if !redis.HasErrorPrefix(err, "OOM") {
				t.Fatal(err)
			}
			bob, carol := raw.XLen(ctx, inboxKey("bob")).Val(), raw.XLen(ctx, inboxKey("carol")).Val()
			if bob != 51 || carol != 50 {
				t.Errorf("%d and %d messages are left of 51 and 50", bob, carol)
			}
			if place, err := s.Where(ctx, "bob", malformed); place != mailbox.Aside {
				t.Errorf("what was set aside is at the place %d, %v", place, err)
			}
		})
	}
}
