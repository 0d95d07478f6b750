package redisbox

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

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

// An inbox into which nothing was put for 30 days is deleted, whoever put it there and
// whether or not its agent ever registered; a younger one stays.
func TestForsakenInboxIsDeleted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	long := time.Now().Add(-mailLife - time.Minute).UnixMilli()
	age := func(agent mailbox.AgentID) {
		raw.ZAdd(ctx, inboxesKey, redis.Z{Score: float64(long), Member: string(agent)})
	}
	for i, agent := range []mailbox.AgentID{"gone", "young"} {
		put(t, s, mailboxtest.Envelope("alice", agent, i))
		age(agent)
	}
	raw.Del(ctx, inboxKey("gone"))
	raw.XAdd(ctx, &redis.XAddArgs{Stream: inboxKey("gone"), ID: fmt.Sprint(long, "-0"), Values: []string{"envelope", "x"}})
	raw.ZAdd(ctx, asideKey("gone"), redis.Z{Member: "1-0"})
	hearing(t, s, "bob")
	eventually(t, "the inbox is gone, and the set knows when the other was last used", func() bool {
		return raw.ZCount(ctx, inboxesKey, "-inf", fmt.Sprint(long)).Val() == 0
	})
	if n := raw.Exists(ctx, inboxKey("gone"), asideKey("gone")).Val(); n != 0 {
		t.Errorf("%d keys of the agent that is gone are left", n)
	}
	if n := raw.XLen(ctx, inboxKey("young")).Val(); n != 1 || raw.ZCard(ctx, inboxesKey).Val() != 1 {
		t.Errorf("%d messages are left of the young inbox's 1; the set %v", n, raw.ZRange(ctx, inboxesKey, 0, -1).Val())
	}
	put(t, s, mailboxtest.Envelope("alice", "gone", 3))
	if raw.ZScore(ctx, inboxesKey, "gone").Val() <= float64(long) || raw.TTL(ctx, inboxKey("gone")).Val() != -1 {
		t.Error("the inbox that begins again is not in the set, or has a life")
	}
}

// An inbox that cannot be looked at keeps no other one; a key that is no inbox is taken from the set and left alone.
func TestPruneGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	raw.Set(ctx, inboxKey("another"), "x", 0)
	long := float64(time.Now().Add(-mailLife - time.Minute).UnixMilli())
	raw.ZAdd(ctx, inboxesKey, redis.Z{Score: long - 1, Member: "another"}, redis.Z{Score: long, Member: "gone"})
	raw.XAdd(ctx, &redis.XAddArgs{Stream: inboxKey("gone"), ID: "1-0", Values: []string{"envelope", "x"}})
	var log bytes.Buffer
	s := open(t, srv.URL(), "alice", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		prunedOnce(t, s, "alice")
		raw.ZAdd(ctx, inboxesKey, redis.Z{Score: long - 1, Member: "another"})
	}
	if n := raw.Exists(ctx, inboxKey("gone")).Val(); n != 0 {
		t.Error("the inbox behind the fault is left")
	}
	if n := raw.Exists(ctx, inboxKey("another")).Val(); n != 1 {
		t.Error("a key that is no inbox is deleted")
	}
	if n := strings.Count(log.String(), "WARN"); n != 1 || !strings.Contains(log.String(), "another") {
		t.Errorf("%d warnings, want 1:\n%s", n, log.String())
	}
	prunedOnce(t, s, "alice")
	if left := raw.ZRange(ctx, inboxesKey, 0, -1).Val(); len(left) != 0 {
		t.Errorf("the set has %v", left)
	}
}

// An inbox that a sender begins anew while it is deleted stays in the set.
func TestInboxThatBeginsWhileItIsDeletedIsListed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	before := time.Now().Add(-mailLife).UnixMilli()
	if err := s.list(ctx, "bob"); err != nil { // the sender's, after the pruner read the set, and before it deletes
		t.Fatal(err)
	}
	if err := s.pruneInbox(ctx, "bob", before); err != nil {
		t.Fatal(err)
	}
	if n := raw.ZCard(ctx, inboxesKey).Val(); n != 1 {
		t.Error("the inbox is not in the set")
	}
}

// A user with fewer rights than docs/redis.md names, or a set that cannot be written, still puts mail. That
// unused inboxes stay is logged once.
func TestPutWithFewerRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	for _, rule := range []string{"-zadd", "-zrangebyscore", "-zrem"} {
		if err := raw.ACLSetUser(ctx, "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	quiet := open(t, srv.URL(), "bob", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	put(t, s, mails(1, 2)...)
	e.want(ids(mails(1, 2))...)
	for range 2 {
		prunedOnce(t, quiet, "bob")
	}
	if n := strings.Count(log.String(), "docs/redis.md"); n != 1 {
		t.Errorf("logged %d times, want 1:\n%s", n, log.String())
	}
}

// prunedOnce is one round of prune.
func prunedOnce(t *testing.T, s *Store, agent mailbox.AgentID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = s.prune(ctx, agent) // it waits for the next round until ctx ends
}
