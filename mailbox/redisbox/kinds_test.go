package redisbox

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// passes does all that a store does.
func passes(t *testing.T, url string, raw *redis.Client) {
	t.Helper()
	s := open(t, url, "bob", nil)
	var key string
	relaytest.Eventually(t, "putting", func() (ok bool) {
		var err error
		key, err = s.Put(t.Context(), mailboxtest.Sealed(toGoal(1, "g")))
		return err == nil
	})
	e := hearing(t, s, "bob")
	e.want(toGoal(1, "g").ID)
	listening(t, raw, "bob")
	put(t, s, toGoal(2, "g"))
	e.want(toGoal(2, "g").ID)
	key, err := s.Again(t.Context(), key, mailboxtest.Sealed(toGoal(1, "g")))
	if err != nil {
		t.Fatal(err)
	}
	e.want(toGoal(1, "g").ID)
	publish(t, raw, "agent.inbox.bob", peerText("carol", "bob", "x"))
	foreign := e.next()
	for _, mail := range []struct {
		key   string
		how   mailbox.Outcome
		place mailbox.Place
	}{{key, mailbox.Taken, mailbox.Processed}, {foreign.Key, mailbox.Malformed, mailbox.Aside}} {
		if err := s.Settle(t.Context(), "bob", mail.key, mail.how); err != nil {
			t.Fatal(err)
		}
		if place, err := s.Where(t.Context(), "bob", mail.key); err != nil || place != mail.place {
			t.Errorf("got the place %d, %v, want %d", place, err, mail.place)
		}
	}
	for _, agent := range []mailbox.AgentID{"alice", "bob", "}c"} {
		setCard(t, s, mailboxtest.Card(agent, 1))
	}
	if got := statuses(t, s); len(got) != 3 || got["bob"] != mailbox.Busy || got["}c"] != mailbox.Busy {
		t.Errorf("got the statuses %v", got)
	}
}

func TestCluster(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.StartNode(t)
	passes(t, "redis+cluster://"+srv.Addr(), rawClient(t, srv.URL()))
}

func TestSentinel(t *testing.T) {
	srv := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, srv, "main")
	passes(t, "redis+sentinel://"+sentinel.Addr()+"/main", rawClient(t, srv.URL()))
}

// The user of docs/redis.md may do all that is needed, and needs nothing else.
func TestUserInTheDocs(t *testing.T) {
	t.Parallel()
	srv := redistest.StartRestricted(t, "../../docs/redis.md")
	passes(t, srv.RestrictedURL(), rawClient(t, srv.URL()))
	srv.Refused(t)
}
