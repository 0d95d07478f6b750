//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
)

// A program that knows no Feishu takes part through the connector: it is posted
// what people and bots say, and says things by POST /v1/send.
func TestConnectorBesideAGateway(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotC"})
	_, botA := n.behind(apps[0], n.config("agent_a"), func(b *sdkBot, h heard) {
		if strings.Contains(h.Text, "who can") {
			n.reply(b, h, apps[1].ID, "can you count the words?")
		}
	})
	c, botC := n.connector(apps[1], asIs)
	n.says("who can count words?")
	in := botC.gets("who can")
	if in.Metadata["from_bot"] == true || in.Metadata["chat_type"] != "group" || string(in.ChatID) != n.chat {
		t.Errorf("a person's message came as %+v", in)
	}
	if in = botC.gets("count the words"); in.Metadata["from_bot"] != true || in.Metadata["is_mentioned"] != true {
		t.Errorf("BotA's message came as %+v", in)
	}
	var said [2]sentByAPI
	for i := range said { // the second call says nothing again
		said[i] = n.sendsByAPI(c, map[string]any{"content": "@BotA there are **42** words",
			"reply_to": in.Metadata["message_id"], "idempotency_key": "answer-1"})
		if len(said[i].IDs) != 1 || !said[i].Relayed || said[i].IDs[0] != said[0].IDs[0] {
			t.Fatalf("POST /v1/send is answered %+v, and before %+v", said[i], said[0])
		}
	}
	n.sees("42")
	if h := n.hears(botA, "42"); !n.mentioned(botA, h) || h.ID != said[0].IDs[0] {
		t.Errorf("BotA was given %+v, which does not mention it or is another message", h)
	}
	n.recorded([]string{"who can", "count the words", "42"})
}

// sentByAPI is the answer to POST /v1/send.
type sentByAPI struct {
	IDs     []string `json:"message_ids"`
	Relayed bool
}

// sendsByAPI has a connector's bot say something in the group.
func (n *tenant) sendsByAPI(s *running, body map[string]any) (answer sentByAPI) {
	n.t.Helper()
	body["chat_id"] = n.chat
	data, err := json.Marshal(body)
	must(n.t, err)
	status, text := n.posts(s, "/v1/send", string(data))
	if status != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil {
		n.t.Fatalf("POST /v1/send is answered %d: %s", status, text)
	}
	return answer
}

// An answer that is cut into several messages counts once, whether or not it replies to
// one, so that the others hear all of it.
func TestConnectorLongAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotC"})
	a, botA := n.behind(apps[0], n.config("agent_a"), nil)
	c, _ := n.connector(apps[1], asIs)
	for _, replies := range []bool{false, true} {
		asked := n.says("please write it all down")
		n.hears(botA, "write it all down")
		const parts = 6
		var text strings.Builder
		for i := range parts {
			fmt.Fprintf(&text, "part %d %s\n\n", i, strings.Repeat("word ", 700))
		}
		send := map[string]any{"content": text.String()}
		if replies {
			send["reply_to"] = asked
		}
		said := n.sendsByAPI(c, send)
		if len(said.IDs) != parts {
			t.Fatalf("it was said in %d messages, want %d", len(said.IDs), parts)
		}
		for _, id := range said.IDs {
			n.until("BotA is given each part", func() bool { return botA.given(id) == 1 })
			var decision struct{ Depth int }
			status, answer := n.posts(a, "/v1/decide", `{"chat_id":"`+n.chat+`","sender_agent_name":"agent_c","message_id":"`+id+`"}`)
			if err := json.Unmarshal([]byte(answer), &decision); err != nil || status != http.StatusOK || decision.Depth != 1 {
				t.Errorf("a piece has status %d, %s, want depth 1", status, answer)
			}
		}
	}
}

// A private chat reaches the program and nobody else, and leaves no transcript. It is answered also where the app may
// not ask about chats.
func TestConnectorKeepsPrivateChatsPrivate(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC",
		Scopes: []string{"im:message", "im:message:send_as_bot", feishusim.ScopeP2P, feishusim.ScopeGroup}})
	c, botC := n.connector(apps[0], asIs)
	_, err := n.SayPrivate(apps[0].ID, n.user.ID, "between us")
	must(t, err)
	in := botC.gets("between us")
	if status, body := n.posts(c, "/v1/send", `{"chat_id":"`+string(in.ChatID)+`","content":"only you"}`); status != http.StatusOK {
		t.Errorf("the answer to a private message: %d %s", status, body)
	}
	if list := n.get(c, "/v1/transcripts"); strings.Contains(list, "oc_") {
		t.Errorf("a private chat has a transcript: %s", list)
	}
}

// 230002 ends a membership.
func TestConnectorLearnsFromARefusedSend(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	c, botC := n.connector(apps[0], asIs)
	n.says("hello")
	botC.gets("hello")
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "POST /open-apis/im/v1/messages", Code: 230002, Msg: "Bot can NOT be out of the chat."})
	if status, body := n.posts(c, "/v1/send", `{"chat_id":"`+n.chat+`","content":"still here?"}`); status != http.StatusBadGateway {
		t.Errorf("%d %s", status, body)
	}
	if strings.Contains(n.get(c, "/v1/transcripts"), n.chat) {
		t.Error("the bot is still taken for a member")
	}
}
