//go:build unix

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

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

// A recalled line is not offered in front of a person's message.
func TestRecalledIsNoContext(t *testing.T) {
	t.Parallel()
	n, _, _, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.InjectContext = 5 })
	last := n.says("hi")
	n.hears(botA, "hi")
	n.hears(botB, "hi")
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
