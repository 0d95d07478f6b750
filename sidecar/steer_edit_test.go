//go:build unix

package sidecar_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

// A bot edits a text that was relayed: readers see what it says now, also after a restart, and a
// bot that has not been given it gets it so. Who has it is not told a second time, since it says the same.
func TestRelayedTextIsEdited(t *testing.T) {
	t.Parallel()
	n, a, b, c, botA, botB, cfgC := threeReaders(t, "")
	n.reply(botA, heard{ID: n.says("what is it?")}, "", "first words")
	id := n.hears(botB, "first words").ID
	n.until("it waits for the third bot", func() bool { return n.waits(c) > 0 && n.shownOf(c, id).Content == "first words" })
	for _, text := range []string{"first words?", "First words!"} {
		put, err := botA.client.Im.V1.Message.Update(context.Background(), larkim.NewUpdateMessageReqBuilder().MessageId(id).
			Body(larkim.NewUpdateMessageReqBodyBuilder().MsgType("text").Content(quoted("text", text)).Build()).Build())
		if err != nil || !put.Success() {
			t.Fatalf("%v %+v", err, put)
		}
	}
	everybody := []*running{a, b, c}
	for _, s := range everybody {
		n.until("readers see the edit", func() bool {
			e := n.shownOf(s, id)
			return e.Content == "First words!" && e.Edited && e.Depth == 1
		})
		if !strings.Contains(n.readsTranscript(s), "First words!") {
			t.Error("MCP does not show the edit")
		}
	}
	stream := n.reads(c, "/v1/stream", "")
	n.until("it is delivered as it is now", func() bool { return stream.has("First words!") })
	if stream.has("first words") || stream.has("first words?") {
		t.Errorf("the stream has %q", stream.lines)
	}
	c.stop()
	c = n.start(cfgC)
	n.until("it knows the group", func() bool { return len(n.group(c, n.chat).Bots) == 3 })
	n.until("readers see the edit after a restart", func() bool { return n.shownOf(c, id).Content == "First words!" })
	n.reply(botA, heard{ID: n.says("and now?")}, "", "that is all")
	n.hears(botB, "that is all")
	botB.mu.Lock()
	defer botB.mu.Unlock()
	if slices.ContainsFunc(botB.all, func(h heard) bool { return strings.Contains(h.Text, "First words!") }) {
		t.Errorf("BotB was told of the edit: %+v", botB.all)
	}
}
