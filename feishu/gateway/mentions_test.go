package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// members makes Feishu tell who is in the group.
func (r *rig) members(people, bots string) {
	r.up.say("GET /open-apis/im/v1/chats/"+group+"/members", 200, `{"code":0,"data":{"items":[`+people+`]}}`)
	r.up.say("GET /open-apis/im/v1/chats/"+group+"/members/bots", 200, `{"code":0,"data":{"items":[`+bots+`]}}`)
}

// login shows the gateway the bot's token.
func (r *rig) login() {
	r.t.Helper()
	r.call("POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"`+r.app+`","app_secret":"x"}`)
}

func rewriting(o *Options) { o.RewriteMentions = true }

const (
	ann  = `{"member_id":"ou_ann","name":"Ann"}`
	botB = `{"bot_id":"ou_b","bot_name":"BotB"}`
)

// What Feishu refuses is sent once more as the bot wrote it; a failure is the bot's to deal with.
func TestMentionsThatFeishuRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		code    string
		sends   int32
		finally string
	}{
		{"a parameter", 400, "230001", 2, "om_ok"},
		{"the card", 400, "230099", 2, "om_ok"},
		{"too many calls, by status", 429, "230001", 1, "230001"},
		{"a failure", 500, "230001", 1, "230001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rewriting).knowGroup()
			r.login()
			r.members(ann, botB)
			var sends atomic.Int32
			body := `{"receive_id":"oc_group","msg_type":"text","content":"{\"text\":\"@BotB hi\"}"}`
			r.up.on("POST /open-apis/im/v1/messages", func(w http.ResponseWriter, req *http.Request) {
				data, _ := io.ReadAll(req.Body)
				if sends.Add(1) == 1 {
					answer(w, c.status, `{"code":`+c.code+`,"msg":"m"}`)
					return
				}
				if string(data) != body {
					t.Errorf("the second time Feishu got %s", data)
				}
				answer(w, 200, `{"code":0,"data":{"message_id":"om_ok","chat_id":"oc_group","msg_type":"text","create_time":"1700000000000",
					"sender":{"id":"`+r.app+`","id_type":"app_id","sender_type":"app"},"body":{"content":"{\"text\":\"@BotB hi\"}"}}}`)
			})
			_, got := r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", body)
			if sends.Load() != c.sends || !strings.Contains(got, c.finally) || r.counts.of("mention_refused") != int(c.sends)-1 || r.counts.of("mention_written") != 0 {
				t.Errorf("sent %d times; the bot got %s", sends.Load(), got)
			}
			if c.sends == 2 {
				if m := r.said(); m.ID != "om_ok" || m.Text != "@BotB hi" {
					t.Errorf("published %+v", m)
				}
			}
		})
	}
}

// With the official SDK and the stand-in: the other bot is mentioned, and what is published
// says so.
func TestRewrittenMentionsStory(t *testing.T) {
	l := newLab(t, rewriting)
	a := l.bot(l.a, l.url)
	l.book.SawChat(relay.ChatID(l.group.ID), feishu.ChatGroup)
	for msgType, content := range map[string]string{
		"text": textOf("@BotB and @Ann, please look"),
		"post": `{"zh_cn":{"title":"","content":[[{"tag":"text","text":"@BotB and @Ann, please look"}]]}}`,
	} {
		id := l.create(a, msgType, content)
		m := l.said()
		if string(m.ID) != id || m.Text != "@BotB and @Ann, please look" || len(m.Mentions) != 2 ||
			m.Mentions[0].Name != "BotB" || m.Mentions[1].Name != "Ann" {
			t.Errorf("%s: published %+v", msgType, m)
		}
		if real, _ := l.sim.Message(id); !slices.Contains(real.Mentions, l.b.ID) || !slices.Contains(real.Mentions, l.ann.ID) {
			t.Errorf("%s: Feishu has %+v", msgType, real)
		}
	}
}
