//go:build unix

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/loopback"
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

// A sidecar that is killed while it passes a message to its bot is started
// again: the bot's SDK connects by itself, and gets the message; a second time,
// if at all, under the same message_id.
func TestGatewayCrashOfReceiver(t *testing.T) {
	verify.Only(t)
	for _, step := range []string{"arrived", "taken", "inject", "delivered"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
			_, botA := n.behind(apps[0], n.config("agent_a"), nil)
			cfg := n.config("agent_b")
			cfg.Gateway.Addr = freeAddr(t)
			b := newProcess(t, n.dir, cfg)
			b.start(step + ":1")
			_, err := b.url(limited(t))
			must(t, err)
			botB := n.bot(apps[1], "http://"+cfg.Gateway.Addr, nil)
			must(t, n.WaitConnected(limited(t), apps[1].ID, 1))

			n.says("@BotA say it", apps[0].ID)
			n.reply(botA, n.hears(botA, "say it"), apps[1].ID, "the first")
			l, _ := b.current()
			select {
			case <-l.exited:
			case <-limited(t).Done():
				t.Fatalf("BotB's sidecar never came to %s", step)
			}
			b.start("")
			n.reply(botA, heard{ID: n.sees("say it").ID}, apps[1].ID, "the second")
			n.hears(botB, "the second")
			ids := map[string]string{}
			times := 0
			// A frame that the SDK lost on its new connection comes again after the second message.
			n.until("the first is heard", func() bool {
				botB.mu.Lock()
				defer botB.mu.Unlock()
				times = 0
				for _, h := range botB.all {
					if strings.Contains(h.Text, "the first") {
						ids[h.ID] = h.Text
						times++
					}
				}
				return times > 0
			})
			if len(ids) != 1 || times > 2 {
				t.Errorf("BotB was given the first message %d times under %d ids", times, len(ids))
			}
			if once := step != "delivered" && step != "inject"; once && times != 1 {
				t.Errorf("BotB was given the first message %d times, though no delivery was in doubt", times)
			}
			n.recorded([]string{"say it", "the first", "the second"})
		})
	}
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
				resp, err := botA.client.Im.Message.Create(context.Background(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(
					larkim.NewCreateMessageReqBodyBuilder().ReceiveId(n.chat).MsgType("text").Content(quoted("text", "said once")).Uuid("once").Build()).Build())
				if err != nil || !resp.Success() {
					return "", false
				}
				return *resp.Data.MessageId, true
			}
			id, answered := send()
			if l, _ := a.current(); l != nil {
				select {
				case <-l.exited:
				case <-limited(t).Done():
					t.Fatalf("BotA's sidecar never came to %s", step)
				}
			}
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
