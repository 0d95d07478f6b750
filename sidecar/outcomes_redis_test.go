//go:build unix

package sidecar_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// A user of Redis that may not touch the outcomes lacks them and nothing else.
func TestOutcomesRefusedByRedis(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	must(t, client.Do(t.Context(), "ACL", "SETUSER", "relay", "on", ">pw", "~metrics:outbound:log", "~metrics:inbound:log", "&*", "+@all").Err())
	sidecarOf := func(name string) *sidecar.Sidecar {
		cfg := aloneIn(t.TempDir(), name)
		cfg.Backend, cfg.RedisURL = "redis", sidecar.Secret("redis://relay:pw@"+srv.Addr())
		return alone(t, cfg, nil)
	}
	a, b := sidecarOf("agent_a"), sidecarOf("agent_b")
	_, err := a.Send(t.Context(), relay.Outbound{ChatID: "oc_1", Content: "Please look at the parser."})
	must(t, err)
	ctx := limited(t)
	for _, selector := range []string{"feishu_relay_outcomes_write_errors_total", "feishu_relay_decisions_total", "feishu_relay_undelivered_messages"} {
		eventually(ctx, t, selector, func() bool { return series(scrape(t, b), selector) > 0 })
	}
	if shown := series(scrape(t, b), "feishu_relay_outcomes_pending"); shown == 0 {
		t.Error("no outcome waits")
	}
}
