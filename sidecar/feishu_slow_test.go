//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// A bot on the official SDK that thinks inside its event handler is given each
// message once. The chat's next message does not wait. An answer after
// DELIVERY_TIMEOUT counts.
func TestSlowBotAtTheGateway(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a := n.start(n.config("agent_a"))
	cfg := n.config("agent_b")
	cfg.DeliveryTimeout = 2 * time.Second
	b := n.start(cfg)
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	botB := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	release := thinkAbout(botB, "slow")
	n.connected(a)
	n.connected(b)
	n.says("go")
	question := n.hears(botA, "go")
	n.reply(botA, question, apps[1].ID, "a slow one")
	n.hears(botB, "a slow one")
	n.reply(botA, question, apps[1].ID, "the next one")
	n.hears(botB, "the next one")
	n.until("the slow one is undeliverable, and in progress no more", func() bool {
		return n.stops(b, "undeliverable") == 1 && !strings.Contains(n.get(b, "/v1/deliveries"), "om_")
	})
	release()
	n.until("its late answer counts", func() bool {
		return n.deliveredOf(b, "agent_a") == 2
	})
	n.eachOnce(botB)
}

// deliveredOf is how many messages of a sender were delivered to a bot, as a sidecar shows it.
func (n *tenant) deliveredOf(s *running, sender relay.AgentName) (count int) {
	n.t.Helper()
	var list struct{ Outcomes []httpapi.Outcome }
	must(n.t, json.Unmarshal([]byte(n.get(s, "/v1/outcomes?channel=feishu&chat_id="+n.chat)), &list))
	for _, o := range list.Outcomes {
		if o.Sender == sender && o.Agent != sender && o.Delivered != 0 {
			count++
		}
	}
	return count
}

// A sidecar shows of itself, and by its card the others of it, that it is there and its bot is not.
func TestBotIsAwayAndItsSidecarIsThere(t *testing.T) {
	t.Parallel()
	for _, mail := range []bool{true, false} {
		t.Run(fmt.Sprintf("mail %t", mail), func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
			cfgA, cfgB := n.config("agent_a"), n.config("agent_b")
			cfgB.BotName = "BotB"
			for _, cfg := range []*sidecar.Config{&cfgA, &cfgB} {
				cfg.Mailbox.On, cfg.Mailbox.Dir = mail, filepath.Join(n.dir, "mailboxes")
				// The others hear of a change at once, not at the next heartbeat.
				cfg.Mailbox.Heartbeat, cfg.Mailbox.HeartbeatTimeout = time.Hour, 2*time.Hour
			}
			a, b := n.start(cfgA), n.start(cfgB)
			shows := func(what string, connected bool) {
				t.Helper()
				for name, s := range map[string]*running{"its sidecar": b, "the other one": a} {
					n.until(what+": "+name+" shows it", func() bool {
						return slices.ContainsFunc(s.Status().Agents, func(is sidecar.AgentStatus) bool {
							return is.Agent == "agent_b" && is.Name == "BotB" && is.Online && is.Bot != nil && is.Bot.Connected == connected &&
								!is.Bot.Since.IsZero()
						})
					})
				}
			}
			shows("no bot yet", false)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			stream := newBot("BotB", nil)
			body, err := stream.open(ctx, "http://"+b.Addr().String())
			must(t, err)
			defer closeIf(body)
			shows("a bot at the stream", true)
			leave()
			shows("it has gone", false)
			n.bot(apps[1], "http://"+b.Gateway().String(), nil)
			shows("a bot at the gateway", true)
		})
	}
}

// What waited for the bot is as new as its writing: frameworks drop events that are
// older than their own start. The transcript keeps the time at which it was sent.
func TestWhatWaitedForTheBotIsNewToIt(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	sent := relay.MillisOf(time.Now().Add(-time.Minute))
	n.posts(a, "/v1/outbound", fmt.Sprintf(`{"chat_id":%q,"content":"it waits","message_id":"om_1","ts":%d}`, n.chat, sent))
	started := relay.MillisOf(time.Now())
	botB := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	var event, message relay.Millis
	if _, err := fmt.Sscan(n.hears(botB, "it waits").Created, &event, &message); err != nil {
		t.Fatal(err)
	}
	if event < started || message < started {
		t.Errorf("the event is of %d, the message of %d; the bot started at %d", event, message, started)
	}
	transcript, err := os.ReadFile(filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl"))
	if err != nil || !strings.Contains(string(transcript), fmt.Sprintf(`"ts":%d`, sent)) {
		t.Errorf("the transcript lacks the time of sending: %s %v", transcript, err)
	}
}

// thinkAbout lets the bot think inside its handler about messages with a text,
// until release is called.
func thinkAbout(b *sdkBot, text string) (release func()) {
	over := make(chan struct{})
	b.thinks.Store(new(func(h heard) {
		if strings.Contains(h.Text, text) {
			<-over
		}
	}))
	return sync.OnceFunc(func() { close(over) })
}
