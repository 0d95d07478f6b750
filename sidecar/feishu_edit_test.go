//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	larkcardkit "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/feishusim"
)

// A card whose bot pauses for longer than it may stream is relayed as it is then. What
// it says in the end reaches those that were given the beginning, once, and the record
// has one message.
func TestCardThatGoesOnIsEdited(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"}, feishusim.App{Name: "BotC"})
	cfgA := n.config("agent_a")
	cfgA.Gateway.StreamLife = 500 * time.Millisecond
	a := n.start(cfgA)
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	cfgB := n.config("agent_b")
	b, botB := n.behind(apps[1], cfgB, nil)
	cfgC := n.config("agent_c")
	cfgC.GroupPolicy = "mention"
	c := n.start(cfgC)
	botC := n.bot(apps[2], "http://"+c.Gateway().String(), nil)
	for _, s := range []*running{a, b, c} {
		n.connected(s)
	}
	n.says("hello")
	for _, bot := range []*sdkBot{botA, botB, botC} {
		n.hears(bot, "hello")
	}

	ctx := context.Background()
	made, err := botA.client.Cardkit.V1.Card.Create(ctx, larkcardkit.NewCreateCardReqBuilder().Body(larkcardkit.NewCreateCardReqBodyBuilder().
		Type("card_json").Data(`{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","content":"I look","element_id":"content"}]}}`).Build()).Build())
	if err != nil || !made.Success() {
		t.Fatalf("%v %+v", err, made)
	}
	card := *made.Data.CardId
	sent, err := botA.client.Im.Message.Create(ctx, larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(larkim.NewCreateMessageReqBodyBuilder().
		ReceiveId(n.chat).MsgType("interactive").Content(`{"type":"card","data":{"card_id":"`+card+`"}}`).Build()).Build())
	if err != nil || !sent.Success() {
		t.Fatalf("%v %+v", err, sent)
	}
	id := *sent.Data.MessageId
	first := n.hears(botB, "I look")
	if first.ID != id || first.Text != "I look" {
		t.Errorf("BotB was given %+v", first)
	}

	b.stop() // that it was given the beginning is known after a restart, too
	b = n.start(cfgB)
	botB = n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	put, err := botA.client.Cardkit.V1.CardElement.Content(ctx, larkcardkit.NewContentCardElementReqBuilder().CardId(card).ElementId("content").Body(
		larkcardkit.NewContentCardElementReqBodyBuilder().Content("I look it up: 42").Sequence(1).Build()).Build())
	if err != nil || !put.Success() {
		t.Fatalf("%v %+v", err, put)
	}
	end, err := botA.client.Cardkit.V1.Card.Settings(ctx, larkcardkit.NewSettingsCardReqBuilder().CardId(card).Body(
		larkcardkit.NewSettingsCardReqBodyBuilder().Settings(`{"config":{"streaming_mode":false}}`).Sequence(2).Build()).Build())
	if err != nil || !end.Success() {
		t.Fatalf("%v %+v", err, end)
	}
	edit := n.hears(botB, "42")
	if edit.ID == id || edit.Text != "I look it up: 42" {
		t.Errorf("BotB was given %+v", edit)
	}
	n.reply(botB, edit, apps[2].ID, "BotA is done") // a reply to the edit is one to the message
	if m := n.sees("is done"); m.ParentID != id {
		t.Errorf("BotB's reply stands below %q, want %s", m.ParentID, id)
	}
	n.hears(botC, "is done")
	botC.mu.Lock()
	if slices.ContainsFunc(botC.all, func(h heard) bool { return strings.Contains(h.Text, "look") }) {
		t.Errorf("BotC was given a message that it was not given first: %+v", botC.all)
	}
	botC.mu.Unlock()

	// The same edit again is a duplicate.
	queue, err := os.ReadFile(filepath.Join(n.dir, "relay", "outbound.jsonl"))
	must(t, err)
	var again map[string]any
	for line := range strings.Lines(string(queue)) {
		if strings.Contains(line, `"edit_of"`) {
			must(t, json.Unmarshal([]byte(line), &again))
		}
	}
	before := n.stops(b, "duplicate")
	n.publishes(again)
	n.until("it is dealt with", func() bool { return n.stops(b, "duplicate") > before })
	if times := botB.count("42"); times != 1 {
		t.Errorf("BotB was given the edit %d times", times)
	}

	var page struct {
		Entries []struct {
			MessageID, Content string
			Depth              int
		}
	}
	body := strings.ReplaceAll(n.get(c, "/v1/transcripts/feishu/"+n.chat), `"message_id"`, `"MessageID"`)
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	if e := page.Entries; len(e) != 3 || e[1].MessageID != id || e[1].Content != "I look it up: 42" || e[1].Depth != 1 || e[2].Depth != 2 {
		t.Errorf("the transcript shows %s", body)
	}
}
