//go:build unix

package redisrelay

import (
	"strings"
	"testing"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

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
		must(t, rawClient(t, step.node).Do(t.Context(), "CLUSTER", "SETSLOT", slot, step.state, step.peer).Err())
	}
	url := strings.Replace(c.URL(), "://", "://"+redistest.User+":"+redistest.Password+"@", 1)
	publish(t, open(t, url, "a", t.TempDir(), nil), "", lines("a", 1, 1)...)
	to.Refused(t)
	from.Refused(t)
}
