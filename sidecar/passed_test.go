package sidecar

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A message that went to the bot while it was still being stored is recorded, and
// not delivered again.
func TestWhatTheBotHasFromFeishuIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	posted := make(chan string, 9)
	bot := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in relay.Inbound
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		posted <- in.Content
	}))
	defer bot.Close()
	dir := t.TempDir()
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Gateway: GatewayConfig{Addr: "127.0.0.1:0"}, InjectURL: bot.URL,
		Backend: "file", RelayDir: dir + "/relay", TranscriptDir: dir + "/transcripts", DataDir: dir, MaxAge: time.Minute,
		MembershipCheck: "off", Limits: policy.Limits{MaxDepth: 9, Threshold: 9}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()

	h := host{Sidecar: s}
	store := func(id, text string) {
		m := feishu.Message{ID: relay.MessageID(id), ChatID: "oc_x", ChatType: feishu.ChatGroup, Type: "text",
			Content: `{"text":"` + text + `"}`, CreateTime: relay.MillisOf(time.Now()),
			Sender: feishu.Sender{Type: feishu.SenderBot, OpenID: "ou_a"}}
		if err := h.Native(t.Context(), m, false); err != nil {
			t.Fatal(err)
		}
	}
	h.Passed("om_1")
	store("om_1", "seen")
	store("om_2", "not seen")
	if got := <-posted; got != "not seen" {
		t.Errorf("the bot was given %q", got)
	}
	entries, err := s.chats.transcript.Tail("feishu", "oc_x", 9)
	if err != nil || len(entries) != 2 || entries[0].Content != "seen" {
		t.Errorf("the transcript has %+v, %v", entries, err)
	}
}
