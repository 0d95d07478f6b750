//go:build unix

package redisrelay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay/relaytest"
)

// The primary that serves the log is killed under load, comes back as a replica, and the log's slot
// is moved to another primary: nothing is lost, and the order stays.
func TestClusterOfSix(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	c := redistest.StartCluster(t)
	channel, slot, node := "", 50, rawClient(t, c.Node(c.Addrs()[0]))
	for i := 0; slot >= 50; i++ { // one of the first slots: these are moved first
		channel = fmt.Sprint("channel", i)
		slot = int(node.ClusterKeySlot(t.Context(), channel+":log").Val())
	}
	tr := startTraffic(t, c.URL(), channel)
	tr.more(100)

	killed, _ := c.Owner(slot)
	killed.Kill()
	began := time.Now()
	relaytest.Eventually(t, "another primary", func() bool {
		owner, _ := c.Owner(slot)
		return owner != nil && owner != killed
	})
	served := time.Now()
	tr.more(20)
	t.Logf("another primary served the slot %s after the kill; messages passed %s after that",
		served.Sub(began).Round(time.Millisecond), time.Since(served).Round(time.Millisecond))
	must(t, killed.Restart())
	tr.more(100)

	from, _ := c.Owner(slot)
	relaytest.Eventually(t, "the slot has moved", func() bool {
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
	tr.more(100)
	tr.finish()
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
	publish(t, open(t, url, "a", t.TempDir(), nil), "", lines("a", 1, 1)...)
	to.Refused(t)
	from.Refused(t)
}
