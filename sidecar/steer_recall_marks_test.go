//go:build unix

package sidecar_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// The text of a recalled command, and the answer to it, is gone for all who read.
func TestRecalledCommand(t *testing.T) {
	t.Parallel()
	n, a, b, _, _, _ := twoBots(t)
	id := n.says("/relay pasuword")
	n.repliesTo(id)
	for _, s := range []*running{a, b} {
		n.until("the answer is shown", func() bool {
			_, body := n.asks(s, "GET", "/v1/transcripts/feishu/"+n.chat, "")
			return strings.Count(string(body), "pasuword") > 1
		})
	}
	must(t, n.Recall(id))
	n.until("no file of the marks has it", func() bool { return n.holding("pasuword", "transcripts") == nil })
	for _, s := range []*running{a, b} {
		n.forgets(s, id, "pasuword")
		if _, body := n.asks(s, "GET", "/v1/transcripts/feishu/"+n.chat+"?q=pasuword", ""); strings.Contains(string(body), "pasuword") {
			t.Errorf("a search finds %s", body)
		}
	}
}

// A recall that names another chat by mistake keeps the right one from nothing.
func TestRedactAfterAMistypedChat(t *testing.T) {
	t.Parallel()
	n, a, b := twoOverHTTP(t, "")
	n.chat = "oc_x"
	events := n.reads(b, "/v1/events", "")
	if status, body := n.asks(a, "POST", "/v1/outbound", `{"chat_id":"oc_x","content":"kiwi","message_id":"om_1"}`); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	n.until("it waits", func() bool { return events.has("kiwi") && n.waits(b) == 1 })
	cfg := n.steeredAPI("agent_a", "")
	cfg.TranscriptDir = filepath.Join(n.dir, "elsewhere")
	must(t, os.Mkdir(cfg.TranscriptDir, 0o700))
	for _, chat := range []relay.ChatID{"oc_typo", "oc_x"} {
		if _, err := sidecar.Redact(t.Context(), cfg, "feishu", chat, "om_1"); err != nil {
			t.Fatal(err)
		}
	}
	n.until("it is recalled", func() bool { return n.shownOf(b, "om_1").Recalled && n.waits(b) == 0 })
}
