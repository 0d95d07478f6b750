//go:build unix

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// deletes lets a bot recall a message of its own, through its gateway.
func (n *tenant) deletes(b *sdkBot, id string) {
	n.t.Helper()
	resp, err := b.client.Im.Message.Delete(context.Background(), larkim.NewDeleteMessageReqBuilder().MessageId(id).Build())
	if err != nil || !resp.Success() {
		n.t.Fatalf("%v %+v", err, resp)
	}
}

// A message that its bot deletes, or that a manager of the group recalls, reaches no bot that has
// not got it, and no reader shows its text.
func TestRecalledByBotAndByManager(t *testing.T) {
	t.Parallel()
	n, a, b, c, botA, botB, _ := threeReaders(t, "")
	last := n.says("please begin")
	n.hears(botA, "please begin")
	for text, recall := range map[string]func(id string){
		"cherry": func(id string) { n.deletes(botA, id) },
		"plum":   func(id string) { must(t, n.RecallBy(id, n.user.ID)) },
	} {
		stopped := n.stops(c, "recalled")
		n.reply(botA, heard{ID: last}, "", "a "+text+" for all")
		id := n.sees(text).ID
		n.hears(botB, text)
		n.until("it waits", func() bool { return n.waits(c) == 1 })
		recall(id)
		n.until("it is withdrawn", func() bool { return n.stops(c, "recalled") == stopped+1 && n.waits(c) == 0 })
		for _, s := range []*running{a, b, c} {
			n.until("it is recalled everywhere", func() bool { return n.shownOf(s, id).Recalled })
			for _, path := range []string{"?limit=100", "?q=" + text} {
				if _, body := n.asks(s, "GET", "/v1/transcripts/feishu/"+n.chat+path, ""); strings.Contains(string(body), text) {
					t.Errorf("%s shows %s", path, body)
				}
			}
			n.forgets(s, id, text)
			if read := n.readsTranscript(s); strings.Contains(read, text) || !strings.Contains(read, id) {
				t.Errorf("MCP shows %s", read)
			}
		}
		n.until("no transcript has it", func() bool { return n.holding(text, "transcripts") == nil })
		n.until("no copy has it", func() bool {
			return n.holding(text, "gateway", "held", "deliveries", "processed") == nil
		})
		// What stays in the queues and outboxes, the operator removes.
		_, err := sidecar.Redact(t.Context(), n.steeredAPI("agent_a", ""), "feishu", relay.ChatID(n.chat), relay.MessageID(id))
		must(t, err)
		n.until("it is nowhere on the host", func() bool { return n.holding(text, "relay", "transcripts") == nil })
	}
	stream := n.reads(c, "/v1/stream", "")
	n.reply(botA, heard{ID: last}, "", "an orange for all")
	n.until("the next is delivered", func() bool { return stream.has("orange") })
	if stream.has("cherry") || stream.has("plum") {
		t.Error("what was recalled is delivered")
	}
}

// A recalled line is not offered in front of a person's message.
func TestRecalledIsNoContext(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfg := n.steered("agent_b")
	cfg.InjectContext = 5
	a, b := n.start(n.steered("agent_a")), n.start(cfg)
	botA, botB := n.bot(apps[0], "http://"+a.Gateway().String(), nil), n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	botA.introduce(t)
	botB.introduce(t)
	last := n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.know(a, b)
	n.answers("/relay mute BotB")
	for i, text := range []string{"a cherry", "a fig"} {
		n.reply(botA, heard{ID: last}, "", text)
		n.until("BotB is not given it", func() bool { return n.stops(b, "muted") == i+1 })
	}
	id := n.sees("a cherry").ID
	n.deletes(botA, id)
	n.until("it is recalled", func() bool { return n.shownOf(b, id).Recalled })
	n.answers("/relay unmute BotB")
	n.says("what is new?")
	if h := n.hears(botB, "what is new?"); strings.Contains(h.Text, "cherry") || !strings.Contains(h.Text, "a fig") {
		t.Errorf("BotB was given %q", h.Text)
	}
}
