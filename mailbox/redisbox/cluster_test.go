package redisbox

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// Mail passes a Cluster whose primaries are killed, and what its replicas have is not lost.
func TestClusterOfSix(t *testing.T) {
	verify.Only(t)
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
			relaytest.Eventually(t, "putting", func() bool {
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

// While the slot of an inbox moves to another primary, mail is put and read: nothing is lost, and each sender's
// comes in order.
func TestMailWhileItsSlotMoves(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	const bob = "bob1809" // its slot is one of the first of its primary: few move with it
	c := redistest.StartCluster(t)
	receiver := open(t, c.URL(), bob, nil)
	e := hearing(t, receiver, bob)
	moved, allSent := make(chan struct{}), make(chan struct{})
	var slots int
	go func() {
		defer close(moved)
		for err := errors.New("not tried"); err != nil && t.Context().Err() == nil; {
			slots, err = c.Move(inboxKey(bob)) // fails while the nodes do not agree on who has which slots
		}
	}()
	senders := []mailbox.AgentID{"alice", "carol"}
	sent := make([]int, len(senders))
	var sending sync.WaitGroup
	for n, sender := range senders {
		s := open(t, c.URL(), sender, nil)
		sending.Go(func() {
			for last := false; !last && t.Context().Err() == nil; sent[n]++ {
				select {
				case <-moved:
					last = true
				default:
				}
				m := mailboxtest.Sealed(mailboxtest.Envelope(sender, bob, sent[n]+1))
				for _, err := s.Put(t.Context(), m); err != nil && t.Context().Err() == nil; {
					_, err = s.Put(t.Context(), m)
				}
			}
		})
	}
	go func() { sending.Wait(); close(allSent) }()
	came := make([]int, len(senders))
	for {
		var item mailbox.Item
		select {
		case item = <-e.items:
		case <-allSent:
			if slices.Equal(came, sent) {
				t.Logf("%v messages of %v while %d slots moved", sent, senders, slots)
				return
			}
			item = e.next()
		}
		got := decode(t, item)
		for n, sender := range senders {
			switch next := mailboxtest.Envelope(sender, bob, came[n]+1).ID; {
			case got.From != sender:
			case got.ID == next:
				came[n]++
			case came[n] == 0 || got.ID != mailboxtest.Envelope(sender, bob, came[n]).ID: // else it is a repeat
				t.Fatalf("got %s of %s behind message %d", got.ID, sender, came[n])
			}
		}
		_ = receiver.Settle(t.Context(), bob, item.Key, mailbox.Taken) // it may stay in the inbox
	}
}
