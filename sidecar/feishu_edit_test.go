//go:build unix

package sidecar_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
)

// A card whose bot pauses for longer than it may stream is relayed as it is then. What
// it says in the end reaches those that were given the beginning, once, and the record
// has one message.
func TestCardThatGoesOnIsEdited(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"}, feishusim.App{Name: "BotC"})
	cfgA, cfgB, cfgC := n.config("agent_a"), n.config("agent_b"), n.config("agent_c")
	cfgA.Gateway.StreamLife, cfgC.GroupPolicy = 500*time.Millisecond, "mention"
	_, botA := n.behind(apps[0], cfgA, nil)
	b, botB := n.behind(apps[1], cfgB, nil)
	c, botC := n.behind(apps[2], cfgC, nil)
	n.says("hello")
	for _, bot := range []*sdkBot{botA, botB, botC} {
		n.hears(bot, "hello")
	}

	card, err := larktest.Card(t.Context(), botA.client, "I look")
	must(t, err)
	id := n.sends(botA, "interactive", larktest.Shown(card))
	first := n.hears(botB, "I look")
	if first.ID != id || first.Text != "I look" {
		t.Errorf("BotB was given %+v", first)
	}

	b.stop() // that it was given the beginning is known after a restart, too
	b = n.start(cfgB)
	botB = n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	must(t, larktest.Grow(t.Context(), botA.client, card, "I look it up: 42", 1))
	must(t, larktest.End(t.Context(), botA.client, card, 2))
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
	must(t, json.Unmarshal([]byte(body), &page))
	if e := page.Entries; len(e) != 3 || e[1].MessageID != id || e[1].Content != "I look it up: 42" || e[1].Depth != 1 || e[2].Depth != 2 {
		t.Errorf("the transcript shows %s", body)
	}
}
