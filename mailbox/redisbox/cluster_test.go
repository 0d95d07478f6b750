package redisbox

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

// Mail passes a Cluster whose primaries are killed, and what its replicas have is not lost.
func TestClusterOfSix(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := open(t, c.URL(), "bob", nil)
	raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer raw.Close()
	inbox, err := raw.MasterForKey(t.Context(), inboxKey("bob"))
	if err != nil {
		t.Fatal(err)
	}
	node := c.Node(inbox.Options().Addr)
	putAll := func(first, last int) { // a node that is slow is taken for a dead one
		for i := first; i <= last; i++ {
			eventually(t, "putting", func() bool {
				_, err := s.Put(t.Context(), mailboxtest.Sealed(mails(i, i)[0]))
				return err == nil
			})
		}
	}
	putAll(1, 3)
	for _, agent := range []mailbox.AgentID{"alice", "bob"} {
		setCard(t, s, mailboxtest.Card(agent, 1))
	}
	node.AwaitReplicas(t, 1)
	node.Kill()
	putAll(4, 6)
	e := hearing(t, s, "bob")
	e.want(ids(mails(1, 6))...)
	if got := statuses(t, s); len(got) != 2 {
		t.Errorf("got the statuses %v", got)
	}
}
