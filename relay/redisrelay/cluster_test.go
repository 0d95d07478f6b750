package redisrelay

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// load sends messages from another goroutine until the test ends it.
type load struct {
	s    *sender
	stop atomic.Bool
	sent chan int64
}

func startLoad(s *sender) *load {
	l := &load{s: s, sent: make(chan int64, 1)}
	go func() {
		n := int64(0)
		defer func() { l.sent <- n }()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !l.stop.Load() && !s.t.Failed() {
			s.send(n+1, n+5)
			n += 5
			<-tick.C
		}
	}()
	return l
}

// finish waits for all that was sent.
func (l *load) finish() (sent int64) {
	l.stop.Store(true)
	sent = <-l.sent
	l.s.reader.has(sent)
	return sent
}

func small(i int) []byte { return lines("s", i, i)[0] }

// The primary that serves the log is killed under load, comes back as a replica, and the log's slot
// is moved to another primary: nothing is lost, and the order stays.
func TestClusterOfSix(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	c := redistest.StartCluster(t)
	ctx := t.Context()
	raw := redis.NewClient(&redis.Options{Addr: c.Addrs()[0]})
	channel, slot := "", 0
	for i := range 100_000 { // one of the first slots: these are moved first
		channel = fmt.Sprint("channel", i)
		n, err := raw.ClusterKeySlot(ctx, channel+":log").Result()
		if err != nil {
			t.Fatal(err)
		}
		if slot = int(n); slot < 50 {
			break
		}
	}
	_ = raw.Close()
	change := func(o *Options) { o.Channel, o.MaxLen = channel, 1_000_000 } // it keeps all that is sent
	f := follow(t, open(t, c.URL(), "a", t.TempDir(), change))
	l := startLoad(&sender{t: t, q: open(t, c.URL(), "s", t.TempDir(), change), reader: f, message: small, oldest: 1})
	f.has(300)

	killed, _ := c.Owner(slot)
	killed.Kill()
	began := time.Now()
	eventually(t, "another primary", func() bool {
		owner, _ := c.Owner(slot)
		return owner != nil && owner != killed
	})
	served := time.Now()
	f.has(f.upTo.Load() + 2*ahead) // more than may have been under way
	t.Logf("another primary served the slot %s after the kill; messages passed %s after that",
		served.Sub(began).Round(time.Millisecond), time.Since(served).Round(time.Millisecond))
	if err := killed.Restart(); err != nil {
		t.Fatal(err)
	}
	f.has(f.upTo.Load() + 200)

	from, _ := c.Owner(slot)
	eventually(t, "the slot has moved", func() bool {
		owner, id := c.Owner(slot)
		if owner == nil || owner != from {
			return owner != nil
		}
		_, to := c.Owner(16383)
		if err := c.Reshard(id, to, 100); err != nil {
			t.Log(err)
		}
		return false
	})
	f.has(f.upTo.Load() + 200)
	t.Logf("%d messages", l.finish())
}

// While a slot moves, a key that is not there any more is asked for at the other node (ASK): the user of
// docs/redis.md may do that.
func TestUserInTheDocsWhileASlotMoves(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	rules := redistest.UserRules(t, "../../docs/redis.md")
	c := redistest.StartCluster(t, append([]string{"--user", redistest.User}, rules[1:]...)...)
	slot := c.Slot(testChannel + ":log")
	other := 0
	if slot < 8000 {
		other = 16383
	}
	from, fromID := c.Owner(slot)
	to, toID := c.Owner(other)
	for _, step := range []struct {
		node  *redistest.Server
		state string
		peer  string
	}{{to, "IMPORTING", fromID}, {from, "MIGRATING", toID}} {
		if err := rawClient(t, step.node).Do(t.Context(), "CLUSTER", "SETSLOT", slot, step.state, step.peer).Err(); err != nil {
			t.Fatal(err)
		}
	}
	url := strings.Replace(c.URL(), "://", "://"+redistest.User+":"+redistest.Password+"@", 1)
	publish(t, open(t, url, "a", t.TempDir(), nil), "", small(1))
	to.Refused(t)
	from.Refused(t)
}
