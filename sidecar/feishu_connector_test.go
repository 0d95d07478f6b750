//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// A program that knows no Feishu takes part through the connector: it is posted
// what people and bots say, and says things by POST /v1/send.
func TestConnectorBesideAGateway(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotC"})
	a := n.start(n.config("agent_a"))
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), func(b *sdkBot, h heard) {
		if strings.Contains(h.Text, "who can") {
			n.reply(b, h, apps[1].ID, "can you count the words?")
		}
	})
	n.connected(a)

	type inbound struct {
		SenderID string `json:"sender_id"`
		ChatID   string `json:"chat_id"`
		Content  string
		Metadata struct {
			FromBot   bool   `json:"from_bot"`
			Mentioned bool   `json:"is_mentioned"`
			ChatType  string `json:"chat_type"`
			MessageID string `json:"message_id"`
		}
	}
	posted := make(chan inbound, 100)
	listens := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in inbound
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		posted <- in
	}))
	t.Cleanup(listens.Close)
	cfg := n.config("agent_c")
	cfg.Gateway, cfg.Connector, cfg.InjectURL = sidecar.GatewayConfig{}, true, listens.URL
	cfg.AppID, cfg.AppSecret = apps[1].ID, sidecar.Secret(apps[1].Secret)
	c := n.start(cfg)
	n.until("the connector is connected", func() bool {
		st := c.Status()
		return st.Feishu != nil && *st.Feishu && st.Identity.OpenID != ""
	})
	var before []inbound // a person and a bot are two senders: their order is not promised
	next := func(text string) inbound {
		t.Helper()
		for {
			if i := slices.IndexFunc(before, func(in inbound) bool { return strings.Contains(in.Content, text) }); i >= 0 {
				return before[i]
			}
			select {
			case in := <-posted:
				before = append(before, in)
			case <-limited(t).Done():
				t.Fatalf("the program was not posted %q", text)
			}
		}
	}

	n.says("who can count words?")
	if in := next("who can"); in.Metadata.FromBot || in.Metadata.ChatType != "group" || in.ChatID != n.chat {
		t.Errorf("a person's message came as %+v", in)
	}
	in := next("count the words")
	if !in.Metadata.FromBot || !in.Metadata.Mentioned {
		t.Errorf("BotA's message came as %+v", in)
	}
	say := func(key string) []string {
		t.Helper()
		body := `{"chat_id":"` + n.chat + `","content":"@BotA there are **42** words","reply_to":"` + in.Metadata.MessageID + `","idempotency_key":"` + key + `"}`
		resp, err := http.Post("http://"+c.Addr().String()+"/v1/send", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			IDs     []string `json:"message_ids"`
			Relayed bool
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK || len(answer.IDs) != 1 || !answer.Relayed {
			t.Fatalf("status %d, %+v, %v", resp.StatusCode, answer, err)
		}
		return answer.IDs
	}
	first, again := say("answer-1"), say("answer-1")
	if first[0] != again[0] {
		t.Errorf("the same idempotency key said it twice: %s, %s", first[0], again[0])
	}
	n.sees("42")
	if h := n.hears(botA, "42"); !n.mentioned(botA, h) || h.ID != first[0] {
		t.Errorf("BotA was given %+v, which does not mention it or is another message", h)
	}
	n.recorded([]string{"who can", "count the words", "42"})
}

// An answer that is cut into several messages counts once, whether or not it replies to
// one, so that the others hear all of it.
func TestConnectorLongAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotC"})
	a := n.start(n.config("agent_a"))
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), func(*sdkBot, heard) {})
	n.connected(a)
	cfg := n.config("agent_c")
	cfg.Gateway, cfg.Connector = sidecar.GatewayConfig{}, true
	cfg.AppID, cfg.AppSecret = apps[1].ID, sidecar.Secret(apps[1].Secret)
	c := n.start(cfg)
	n.until("the connector is connected", func() bool {
		st := c.Status()
		return st.Feishu != nil && *st.Feishu && st.Identity.OpenID != ""
	})
	for _, replies := range []bool{false, true} {
		asked := n.says("please write it all down")
		n.hears(botA, "write it all down")
		const parts = 6
		var text strings.Builder
		for i := range parts {
			fmt.Fprintf(&text, "part %d %s\n\n", i, strings.Repeat("word ", 700))
		}
		send := map[string]any{"chat_id": n.chat, "content": text.String()}
		if replies {
			send["reply_to"] = asked
		}
		body, err := json.Marshal(send)
		must(t, err)
		status, answer := n.posts(c, "/v1/send", string(body))
		var said struct {
			IDs []string `json:"message_ids"`
		}
		if err := json.Unmarshal([]byte(answer), &said); err != nil || status != http.StatusOK || len(said.IDs) != parts {
			t.Fatalf("status %d, %s", status, answer)
		}
		missing := map[int]bool{} // the SDK handles messages side by side: in any order
		for i := range parts {
			missing[i] = true
		}
		for len(missing) > 0 {
			var part int
			if _, err := fmt.Sscanf(n.hears(botA, "part ").Text, "part %d ", &part); err == nil {
				delete(missing, part)
			}
		}
		for _, id := range said.IDs {
			var decision struct{ Depth int }
			status, answer := n.posts(a, "/v1/decide", `{"chat_id":"`+n.chat+`","sender_agent_name":"agent_c","message_id":"`+id+`"}`)
			if err := json.Unmarshal([]byte(answer), &decision); err != nil || status != http.StatusOK || decision.Depth != 1 {
				t.Errorf("a piece has status %d, %s, want depth 1", status, answer)
			}
		}
	}
}

// A private chat reaches the program and nobody else, and leaves no transcript.
func TestConnectorKeepsPrivateChatsPrivate(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	got := make(chan string, 10)
	listens := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in struct{ Content string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		got <- in.Content
	}))
	t.Cleanup(listens.Close)
	cfg := n.config("agent_c")
	cfg.Gateway, cfg.Connector, cfg.InjectURL = sidecar.GatewayConfig{}, true, listens.URL
	cfg.AppID, cfg.AppSecret = apps[0].ID, sidecar.Secret(apps[0].Secret)
	c := n.start(cfg)
	n.until("the connector is connected", func() bool { return *c.Status().Feishu })
	if _, err := n.SayPrivate(apps[0].ID, n.user.ID, "between us"); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-got:
		if text != "between us" {
			t.Errorf("got %q", text)
		}
	case <-limited(t).Done():
		t.Fatal("the program was not posted a private message")
	}
	if list := n.get(c, "/v1/transcripts"); strings.Contains(list, "oc_") {
		t.Errorf("a private chat has a transcript: %s", list)
	}
}
