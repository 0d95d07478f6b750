package gateway

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"feishu-relay/feishu"
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
			r := newRig(t, func(o *Options) { o.RewriteMentions = true }).knowGroup()
			r.api.SawToken("t-" + r.app)
			r.book.LearnBot(feishu.Bot{OpenID: "ou_b", Name: "BotB"}) // Feishu returns nobody
			r.up.say("GET /open-apis/im/v1/chats/"+group+"/members/bots", 400, `{"code":99991672,"msg":"no scope"}`)
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
