//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/feishusim"
)

// A bot that may not list the group's bots was shown another one under an id that
// its sidecar made up. What it mentions so in a text, a post and a card reaches the
// other, also after a restart of the sidecar.
func TestMentionsByMadeUpIDsReachTheBot(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/im/v1/chats/*/members/bots", Code: 99991672, Msg: "Access denied."})
	_, botA := n.behind(apps[0], n.config("agent_a"), nil)
	cfgB := n.config("agent_b")
	b, botB := n.behind(apps[1], cfgB, nil)
	n.says("hello") // a mention of BotA would show BotB its id
	question := n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.reply(botA, question, "", "I am here")
	id := n.hears(botB, "I am here").SenderID
	if id == n.OpenID(apps[1].ID, apps[0].ID) {
		t.Fatal("BotB knows BotA's real id; the test shows nothing")
	}

	tell := func(kind, msgType string, content func(text string) any) {
		t.Helper()
		question := n.says("@BotB "+kind+"?", apps[1].ID)
		n.hears(botB, kind+"?")
		data, err := json.Marshal(content("the " + kind))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := botB.client.Im.Message.Reply(context.Background(), larkim.NewReplyMessageReqBuilder().MessageId(question).
			Body(larkim.NewReplyMessageReqBodyBuilder().MsgType(msgType).Content(string(data)).Build()).Build())
		if err != nil || !resp.Success() {
			t.Fatalf("%v %+v", err, resp)
		}
		if h := n.hears(botA, "the "+kind); !n.mentioned(botA, h) || strings.Contains(h.Text, id) {
			t.Errorf("of the %s BotA was given %q, mentions %v", kind, h.Text, h.Mentions)
		}
	}
	text := func(text string) any {
		return map[string]string{"text": fmt.Sprintf(`<at user_id="%s"></at> %s`, id, text)}
	}
	tell("text", "text", text)
	tell("post", "post", func(text string) any {
		return map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "at", "user_id": id}, map[string]any{"tag": "text", "text": text}}}}}
	})
	tell("card", "interactive", func(text string) any {
		return map[string]any{"elements": []any{map[string]any{"tag": "markdown", "content": fmt.Sprintf("<at id=%s></at> %s", id, text)}}}
	})
	b.stop()
	_, botB = n.behind(apps[1], cfgB, nil)
	tell("next text", "text", text)
}
