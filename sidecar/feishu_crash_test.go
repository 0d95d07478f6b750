//go:build unix

package sidecar_test

import (
	"context"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/loopback"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/verify"
)

// freeAddr returns an address that stays one sidecar's through all its lives: a
// bot's SDK is pointed at it.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := loopback.Addr()
	must(t, err)
	return addr
}

// A sidecar that is killed behind Feishu's answer to a send still relays it; one
// killed before its bot saw the answer relays the bot's repeat of the call, which
// Feishu knows by its uuid.
func TestGatewayCrashOfSender(t *testing.T) {
	verify.Only(t)
	for _, step := range []string{"recorded", "accepted", "answering", "published"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
			_, botB := n.behind(apps[1], n.config("agent_b"), nil)
			cfg := n.config("agent_a")
			cfg.Gateway.Addr = freeAddr(t)
			a := newProcess(t, n.dir, cfg)
			a.start(step + ":1")
			_, err := a.url(limited(t))
			must(t, err)
			botA := n.bot(apps[0], "http://"+cfg.Gateway.Addr, nil)
			must(t, n.WaitConnected(limited(t), apps[0].ID, 1))
			n.says("@BotA say it", apps[0].ID)
			n.hears(botA, "say it")

			send := func() (id string, ok bool) {
				id, err := larktest.Send(context.Background(), botA.client, n.chat, "text", quoted("text", "said once"), "once")
				return id, err == nil
			}
			id, answered := send()
			a.dies(t)
			a.start("")
			if _, err := a.url(limited(t)); err != nil {
				t.Fatal(err)
			}
			if !answered {
				n.until("the repeat is answered", func() bool { id, answered = send(); return answered })
			}
			if h := n.hears(botB, "said once"); h.ID != id {
				t.Errorf("BotB was given %s, BotA had sent %s", h.ID, id)
			}
			n.eachOnce(botB)
			n.recorded([]string{"say it", "said once"})
		})
	}
}
