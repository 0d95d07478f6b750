package redisbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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
		s.pruneAll(ctx, "alice")
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
	s.pruneAll(ctx, "alice")
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

// Where the set of inboxes cannot be written, mail is put all the same; the next one tries again.
func TestPutWithoutTheSet(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	s := open(t, srv.URL(), "alice", nil)
	raw.Set(ctx, inboxesKey, "x", 0)
	for i := range 2 {
		put(t, s, mails(i, i)...)
		if life := raw.TTL(ctx, inboxKey("bob")).Val(); life < mailLife-time.Hour {
			t.Errorf("the inbox lives for %s", life)
		}
	}
	raw.Del(ctx, inboxesKey)
	put(t, s, mails(3, 3)...)
	if life := raw.TTL(ctx, inboxKey("bob")).Val(); life != -1 || raw.ZCard(ctx, inboxesKey).Val() != 1 {
		t.Errorf("the inbox lives for %s; the set has %v", life, raw.ZRange(ctx, inboxesKey, 0, -1).Val())
	}
}

// A user with fewer rights than docs/redis.md names still puts mail, and an inbox keeps the life that it has. That
// unused ones stay is logged once.
func TestPutWithFewerRights(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv.URL()), t.Context()
	for _, rule := range []string{"-zadd", "-persist", "-zrangebyscore", "-zrem"} {
		if err := raw.ACLSetUser(ctx, "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	quiet := open(t, srv.URL(), "bob", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	put(t, s, mails(1, 1)...)
	raw.Expire(ctx, inboxKey("bob"), time.Minute)
	put(t, s, mails(2, 2)...)
	e.want(ids(mails(1, 2))...)
	if life := raw.TTL(ctx, inboxKey("bob")).Val(); life < mailLife-time.Hour {
		t.Errorf("the inbox lives for %s", life)
	}
	for range 2 {
		quiet.pruneAll(ctx, "bob")
	}
	if n := strings.Count(log.String(), "docs/redis.md"); n != 1 {
		t.Errorf("logged %d times, want 1:\n%s", n, log.String())
	}
}

// shard is a Cluster without a network: the set of inboxes is at a node that answers, and so is the inbox
// of "live"; the node of all other inboxes does not answer.
type shard struct{ set map[string]float64 }

func (c *shard) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *shard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *shard) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch cmd := cmd.(type) {
		case *redis.StringSliceCmd: // ZRANGEBYSCORE key min max LIMIT offset count
			most, _ := strconv.ParseFloat(args[3].(string), 64)
			due := slices.SortedFunc(maps.Keys(c.set), c.order)
			due = slices.DeleteFunc(due, func(agent string) bool { return c.set[agent] > most })
			cmd.SetVal(due[:min(len(due), pruneMost)])
		case *redis.IntCmd: // ZADD key XX score member
			c.set[args[len(args)-1].(string)] = args[len(args)-2].(float64)
		case *redis.Cmd: // EVALSHA sha 1 inboxes agent before, or sha 3 inbox malformed aside life
			switch args[3] {
			case inboxesKey:
				delete(c.set, args[4].(string))
				cmd.SetVal(int64(0))
			case inboxKey("live"):
				cmd.SetVal("0")
			default:
				<-ctx.Done()
				cmd.SetErr(ctx.Err())
			}
		default:
			cmd.SetErr(fmt.Errorf("unexpected command %v", args))
		}
		return cmd.Err()
	}
}

// order is that of a sorted set.
func (c *shard) order(x, y string) int {
	return cmp.Or(cmp.Compare(c.set[x], c.set[y]), cmp.Compare(x, y))
}

// A node that does not answer holds up a round of pruning for minutes, not for an hour, however many unused
// inboxes it has, and in the end no inbox of another node.
func TestPruneWhereANodeDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, "redis://127.0.0.1:1", "alice", nil)
	synctest.Test(t, func(t *testing.T) {
		long := float64(time.Now().Add(-mailLife - time.Hour).UnixMilli())
		c := &shard{set: map[string]float64{"live": long + 1}}
		for i := range pruneMost + 100 {
			c.set[fmt.Sprint("silent", i)] = long
		}
		s.calls.AddHook(c)
		for range 12 {
			began := time.Now()
			if err := s.pruneOnce(t.Context()); err == nil {
				t.Fatal("a node that does not answer is no error")
			}
			if took := time.Since(began); took > pruneLimit+2*callLimit {
				t.Fatalf("a round took %v", took)
			}
			time.Sleep(pruneEvery)
		}
		if _, left := c.set["live"]; left || len(c.set) != pruneMost+100 {
			t.Errorf("the set has %d agents, live among them: %v", len(c.set), left)
		}
	})
}
