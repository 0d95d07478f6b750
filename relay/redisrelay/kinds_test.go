package redisrelay

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// passes publishes and reads over q, stream and channel.
func passes(t *testing.T, q *Queue, foreign func(line []byte)) {
	t.Helper()
	e := listenTo(t, q, true)
	var receipt relay.Receipt
	eventually(t, "publishing", func() bool {
		var err error
		receipt, err = q.Publish(context.Background(), lines("a", 1, 300), "")
		return err == nil
	})
	publish(t, q, receipt, lines("a", 301, 303)...)
	e.skipTo(lines("a", 1, 1)[0])
	e.want(lines("a", 2, 303)...)
	foreign(foreignLine(1))
	e.want(foreignLine(1))
}

func TestCluster(t *testing.T) {
	verify.Only(t)
	srv := redistest.StartNode(t)
	raw := rawClient(t, srv)
	q := open(t, "redis+cluster://"+srv.Addr(), "a", t.TempDir(), nil)
	passes(t, q, func(line []byte) {
		if err := raw.Publish(t.Context(), testChannel, line).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSentinel(t *testing.T) {
	srv := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, srv, "main")
	login := sentinel.RestrictSentinel(t, "../../docs/redis.md")
	q := open(t, "redis+sentinel://"+sentinel.Addr()+"/main"+login, "a", t.TempDir(), nil)
	passes(t, q, func(line []byte) {
		if err := rawClient(t, srv).Publish(t.Context(), testChannel, line).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// Each form of rediss, with a client's certificate.
func TestTLS(t *testing.T) {
	verify.Only(t)
	for _, form := range redistest.StartTLSForms(t, t.TempDir()) {
		t.Run(form.Name, func(t *testing.T) {
			opts, err := redislink.ParseURL(form.URL)
			if err != nil {
				t.Fatal(err)
			}
			raw := redis.NewUniversalClient(opts)
			defer raw.Close()
			q := open(t, form.URL, form.Name, t.TempDir(), func(o *Options) { o.Channel += ":" + form.Name })
			passes(t, q, func(line []byte) {
				if err := raw.Publish(t.Context(), testChannel+":"+form.Name, line).Err(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestUnixSocket(t *testing.T) {
	srv := redistest.StartUnix(t, "--requirepass", "pw")
	url := "unix://:pw@" + srv.Addr()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	raw := redis.NewClient(opts)
	defer raw.Close()
	q := open(t, url, "a", t.TempDir(), nil)
	passes(t, q, func(line []byte) {
		if err := raw.Publish(t.Context(), testChannel, line).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPasswordAndDatabase(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "p/?#@:%")
	q := open(t, "redis://:p%2F%3F%23%40:%25@"+srv.Addr()+"/3", "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	publish(t, q, "", lines("a", 1, 3)...)
	e.want(lines("a", 1, 3)...)
}
