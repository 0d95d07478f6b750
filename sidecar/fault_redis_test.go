//go:build unix

package sidecar_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// Redis is away when the sidecars start: they start all the same, say what is
// wrong, take what the bots send, and deliver it when Redis is there.
func TestFaultRedisDownAtStart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Kill()
	c := prepare(t, setup{redis: srv.URL(), separate: true, bots: 2})
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	ctx := limited(t)
	c.talk(ctx, 5, "oc_1", "oc_2")
	for _, b := range c.bots {
		must(t, b.notReady(ctx))
	}
	c.killOne(0) // what was accepted survives that, too
	must(t, srv.Restart())
	c.talk(ctx, 2, "oc_1", "oc_2")
	c.verify(ctx)
}

// Redis, which persists nothing, forgets what nobody has read, and who sent it says no more.
func TestFaultRedisForgets(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2})
	ctx := limited(t)
	c.bots[1].side.kill()
	_, err := c.bots[0].say(ctx, "oc_1")
	must(t, errors.Join(err, c.bots[0].hear(ctx, "oc_1", "Ann", 1)))
	for _, lane := range []string{"outbound", "inbound"} {
		eventually(ctx, t, "it is in Redis", func() bool { return srv.LastEntry("test:"+lane+":log") != "" })
	}
	srv.Kill()
	must(t, srv.Restart())
	c.bots[1].side.start("")
	c.verify(ctx)
}

// A user of Redis that may not touch the side lane is not ready, and its bot hears the others all the same.
func TestTheSideLaneRefusedByRedis(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	must(t, client.Do(t.Context(), "ACL", "SETUSER", "relay", "on", ">pw", "~metrics:outbound:log", "~metrics:inbound:log", "&*", "+@all").Err())
	ctx := limited(t)
	sidecarOf := func(name string) *sidecar.Sidecar {
		cfg := aloneIn(t.TempDir(), name)
		cfg.Backend, cfg.RedisURL = "redis", sidecar.Secret("redis://relay:pw@"+srv.Addr())
		s, err := sidecar.New(cfg, sidecar.Options{})
		must(t, err)
		running, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(running) }()
		t.Cleanup(func() {
			cancel()
			must(t, <-done)
		})
		eventually(ctx, t, "only the side lane is not ready", func() bool {
			err := s.Ready()
			return err != nil && strings.Contains(err.Error(), "side queue") && !strings.Contains(err.Error(), "bound queue")
		})
		return s
	}
	a, b := sidecarOf("agent_a"), sidecarOf("agent_b")
	_, err := a.Send(t.Context(), relay.Outbound{ChatID: "oc_1", Content: "Please look at the parser."})
	must(t, err)
	for _, selector := range []string{"feishu_relay_decisions_total", "feishu_relay_undelivered_messages",
		`feishu_relay_publish_errors_total{queue="side"}`} {
		eventually(ctx, t, selector, func() bool { return series(scrape(t, b), selector) > 0 })
	}
}
