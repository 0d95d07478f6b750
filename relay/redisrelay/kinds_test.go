package redisrelay

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// passes publishes and reads at a URL, stream and channel; raw publishes as another program does.
func passes(t *testing.T, url string, raw redis.UniversalClient) {
	t.Helper()
	q := open(t, url, "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	var receipt relay.Receipt
	relaytest.Eventually(t, "publishing", func() bool {
		var err error
		receipt, err = q.Publish(context.Background(), lines("a", 1, 300), "")
		return err == nil
	})
	publish(t, q, receipt, lines("a", 301, 303)...)
	e.skipTo(lines("a", 1, 1)[0])
	e.Want(lines("a", 2, 303)...)
	must(t, raw.Publish(t.Context(), testChannel, foreignLine(1)).Err())
	e.Want(foreignLine(1))
}

func TestCluster(t *testing.T) {
	verify.Only(t)
	srv := redistest.StartNode(t)
	passes(t, "redis+cluster://"+srv.Addr(), rawClient(t, srv))
}

func TestSentinel(t *testing.T) {
	srv := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, srv, "main")
	login := sentinel.RestrictSentinel(t, "../../docs/redis.md")
	passes(t, "redis+sentinel://"+sentinel.Addr()+"/main"+login, rawClient(t, srv))
}

// Each form of rediss, with a client's certificate; a socket; a password with every special character, and a database.
func TestOtherURLs(t *testing.T) {
	verify.Only(t)
	socket, locked := redistest.StartUnix(t, "--requirepass", "pw"), redistest.Start(t, "--requirepass", "p/?#@:%")
	urls := map[string]string{"socket": "unix://:pw@" + socket.Addr(), "password": "redis://:p%2F%3F%23%40:%25@" + locked.Addr() + "/3"}
	for _, form := range redistest.StartTLSForms(t, t.TempDir()) {
		urls["TLS "+form.Name] = form.URL
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			opts, err := redislink.ParseURL(url)
			must(t, err)
			raw := redis.NewUniversalClient(opts)
			defer raw.Close()
			_ = raw.Del(t.Context(), testChannel+":log") // some forms are of one server
			passes(t, url, raw)
		})
	}
}
