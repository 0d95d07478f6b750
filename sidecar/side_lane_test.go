//go:build unix

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

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
