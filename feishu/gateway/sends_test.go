package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func TestSends(t *testing.T) {
	for _, c := range []struct {
		name, msgType, content string
		text                   string
		keys                   []string
	}{
		{"text", "text", `{"text":"hi"}`, "hi", nil},
		{"post", "post", `{"zh_cn":{"title":"T","content":[[{"tag":"text","text":"a"}],[{"tag":"md","text":"**b**"}]]}}`, "T\na\n**b**", nil},
		{"image", "image", `{"image_key":"img_1"}`, "[图片]", []string{"img_1"}},
		{"file", "file", `{"file_key":"file_1","file_name":"a.txt"}`, "[文件] a.txt", []string{"file_1"}},
		{"inline card", "interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"card"},{"tag":"img","img_key":"img_2"}]}}`, "card", []string{"img_2"}},
		{"template", "interactive", `{"type":"template","data":{"template_id":"x","template_variable":{"title":"Tpl"}}}`, "Tpl", nil},
		{"broken card", "interactive", `{`, "[卡片]", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil).knowGroup()
			id := r.send(c.msgType, c.content)
			m := r.said()
			if m.Text != c.text || !slices.Equal(m.Doc.Keys(), c.keys) || string(m.ID) != id || m.ChatID != group || m.ChatType != feishu.ChatGroup {
				t.Errorf("published %+v", m)
			}
			if m.CreateTime != 1700000000001 {
				t.Errorf("its time is %d, want the answer's", m.CreateTime)
			}
			if m.Sender.AppID != r.app {
				t.Errorf("its sender is %+v", m.Sender)
			}
		})
	}
}

// A text is with the host, or on disk, before the bot sees Feishu's answer.
func TestTextIsRecordedBeforeTheAnswer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.EditSettle = time.Hour }).knowGroup()
	recorded := false
	r.host.sent = func(context.Context, Sent) error { recorded = true; return nil }
	r.text("It is 42.")
	if n := r.stored(); !recorded || n > 0 {
		t.Errorf("recorded: %v; %d drafts are stored", recorded, n)
	}
	r.text("Let me…")
	if n := r.stored(); n != 1 {
		t.Errorf("%d drafts are stored", n)
	}
}

func TestPrivateChatsStay(t *testing.T) {
	r := newRig(t, nil)
	for _, query := range []string{"open_id", "user_id", "union_id", "email"} {
		r.call("POST", "/open-apis/im/v1/messages?receive_id_type="+query, js(map[string]any{"receive_id": "oc_p_" + query, "msg_type": "text", "content": `{"text":"secret"}`}))
		if kind := r.book.Chat(relay.ChatID("oc_p_" + query)).Kind; kind != feishu.ChatP2P {
			t.Errorf("sent by %s: the chat is %q", query, kind)
		}
	}
	r.call("POST", "/open-apis/im/v1/messages?receive_id_type=thread_id", js(map[string]any{"receive_id": group, "msg_type": "text", "content": `{"text":"in a topic"}`}))
	if m := r.said(); m.Text != "in a topic" {
		t.Errorf("published %q", m.Text)
	}
	r.sendTo(private, "text", `{"text":"secret"}`) // kind unknown: asked, then dropped
	waitFor(t, func() bool { return r.counts.of("draft_private") == 1 })
	r.silent()
}

// What cannot be told yet waits for Feishu's word, not for luck.
func TestUnknownChatIsAsked(t *testing.T) {
	r := newRig(t, nil)
	r.text("hello")
	if m := r.said(); m.Text != "hello" {
		t.Errorf("published %q", m.Text)
	}
	if r.book.Chat(group).Kind != feishu.ChatGroup {
		t.Error("the answer was not kept")
	}
}

func TestForeignCallsPassUntapped(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	body := js(map[string]any{"receive_id": group, "msg_type": "text", "content": `{"text":"other"}`})
	for range 3 {
		if status, _ := r.as("t-cli_other", "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", body); status != 200 {
			t.Error(status)
		}
	}
	if status, _ := r.as("u-someone", "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", body); status != 200 {
		t.Error(status)
	}
	r.silent()
	if got := r.counts.of("foreign_app"); got != 1 {
		t.Errorf("foreign_app is %d: later calls with a foreign token are not read at all", got)
	}
	r.text("ours")
	if m := r.said(); m.Text != "ours" {
		t.Errorf("published %q", m.Text)
	}
}

func TestIdentityIsLearned(t *testing.T) {
	for name, learn := range map[string]func(r *rig){
		"from a token call": func(r *rig) {
			r.call("POST", "/open-apis/auth/v3/tenant_access_token/internal", js(map[string]string{"app_id": r.app, "app_secret": "s"}))
		},
		"from a send": func(r *rig) { r.text("x") },
		"from a bootstrap": func(r *rig) {
			r.up.say("POST /callback/ws/endpoint", 200, `{"code":0,"data":{"URL":"ws://127.0.0.1:1/ws?fpid=1&device_id=d&service_id=1","ClientConfig":{}}}`)
			r.call("POST", "/callback/ws/endpoint", js(map[string]string{"AppID": r.app, "AppSecret": "s"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { _ = o.Book.Forget() })
			learn(r)
			waitFor(t, func() bool { return r.book.Self().OpenID != "" })
			if self := r.book.Self(); self.AppID != r.app || self.OpenID != relay.OpenID("ou_self_"+r.app) {
				t.Errorf("learned %+v", self)
			}
			r.as("t-x", "POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"cli_other","app_secret":"s"}`)
			if r.book.Self().AppID != r.app {
				t.Error("a second app took its place")
			}
		})
	}
}

// A bootstrap call names an app; whether it is the caller's is shown by its secret alone.
func TestAnAppIsBelievedOnceFeishuAcceptsItsSecret(t *testing.T) {
	const bootstrap = `{"code":0,"data":{"URL":"ws://127.0.0.1:1/ws?fpid=1&device_id=d&service_id=1","ClientConfig":{}}}`
	for name, c := range map[string]struct {
		body, token string
		want        bool
	}{
		"a secret that is refused": {`{"AppID":"%s","AppSecret":"wrong"}`, `{"code":10014,"msg":"app secret invalid"}`, false},
		"no token in the answer":   {`{"AppID":"%s","AppSecret":"wrong"}`, `{"code":0,"msg":"ok"}`, false},
		"no secret":                {`{"AppID":"%s"}`, "", false},
		"a secret that is taken":   {`{"AppID":"%s","AppSecret":"s"}`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { _ = o.Book.Forget() })
			r.up.say("POST /callback/ws/endpoint", 200, bootstrap)
			if c.token != "" {
				r.up.say("POST /open-apis/auth/v3/tenant_access_token/internal", 200, c.token)
			}
			status, answer := r.call("POST", "/callback/ws/endpoint", fmt.Sprintf(c.body, r.app))
			if status != 200 || !strings.Contains(answer, "device_id=d") {
				t.Errorf("the bot got %d %s", status, answer)
			}
			if got := r.book.IsApp(r.app); got != c.want {
				t.Errorf("the app is believed: %v, want %v", got, c.want)
			}
		})
	}
}

func TestOwnOpenIDFromAnswers(t *testing.T) {
	for name, c := range map[string]struct{ method, path, answer string }{
		"info": {"GET", "/open-apis/bot/v3/info", `{"code":0,"bot":{"app_name":"N","open_id":"ou_me"}}`},
		"ping": {"POST", "/open-apis/bot/v1/openclaw_bot/ping", `{"code":0,"data":{"pingBotInfo":{"botID":"ou_me","botName":"N"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.proved("t-"+r.app, r.app)
			r.up.say(c.method+" "+c.path, 200, c.answer)
			r.call(c.method, c.path, "{}")
			if self := r.book.Self(); self.OpenID != "ou_me" || self.Name != "N" {
				t.Errorf("learned %+v", self)
			}
		})
	}
}

// Ids that another app's token is told are that app's.
func TestAnswersToForeignTokensTeachNothing(t *testing.T) {
	r := newRig(t, nil)
	r.as("t-cli_other", "POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"cli_other","app_secret":"s"}`)
	r.as("t-cli_other", "GET", "/open-apis/bot/v3/info", "")
	r.as("t-unknown", "GET", "/open-apis/bot/v3/info", "")
	if self := r.book.Self(); self.OpenID != "" {
		t.Errorf("learned %+v", self)
	}
}

func TestBotsAndChatsAreLearned(t *testing.T) {
	r := newRig(t, nil)
	r.proved("t-"+r.app, r.app)
	r.up.say("GET /open-apis/im/v1/chats/oc_group/members/bots", 200, `{"code":0,"data":{"items":[{"bot_id":"ou_b","bot_name":"B"},{"open_id":"ou_c","name":"C"}]}}`)
	r.up.say("GET /open-apis/bot/v3/bots/basic_batch", 200, `{"code":0,"data":{"bots":{"ou_d":{"bot_id":"ou_d","name":"D"}}}}`)
	r.call("GET", "/open-apis/im/v1/chats/oc_group/members/bots", "{}")
	r.call("GET", "/open-apis/bot/v3/bots/basic_batch?bot_ids=ou_d", "{}")
	r.call("GET", "/open-apis/im/v1/chats/oc_group", "{}")
	for id, name := range map[relay.OpenID]string{"ou_b": "B", "ou_c": "C", "ou_d": "D"} {
		if b, ok := r.book.Bot(id); !ok || b.Name != name {
			t.Errorf("%s is %+v", id, b)
		}
	}
	if c := r.book.Chat(group); c.Kind != feishu.ChatGroup || c.Name != "a chat" {
		t.Errorf("the chat is %+v", c)
	}
}

// A chat_mode that is not known counts as a group's, and an answer without one says nothing.
func TestChatsOfANewKind(t *testing.T) {
	r := newRig(t, nil)
	for mode, want := range map[string]feishu.Chat{
		`{"chat_mode":"hologram","name":"h"}`: {Kind: feishu.ChatGroup, Name: "h"},
		`{"name":"h"}`:                        {},
	} {
		id := relay.ChatID(r.up.id("oc_"))
		r.up.say("GET /open-apis/im/v1/chats/"+string(id), 200, `{"code":0,"data":`+mode+`}`)
		r.call("GET", "/open-apis/im/v1/chats/"+string(id), "{}")
		if c := r.book.Chat(id); c.Kind != want.Kind || c.Name != want.Name || c.Topic {
			t.Errorf("%s: the chat is %+v", mode, c)
		}
	}
}

func TestNotInChat(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.proved("t-"+r.app, r.app)
	r.up.say("POST /open-apis/im/v1/messages", 400, `{"code":230002,"msg":"Bot/User can NOT be out of the chat."}`)
	status, body := r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{"receive_id":"oc_group","msg_type":"text","content":"{}"}`)
	if status != 400 || !strings.Contains(body, "230002") {
		t.Errorf("the bot got %d %s", status, body)
	}
	if r.book.Chat(group).In != feishu.No || !slices.Equal(r.host.leftChats, []relay.ChatID{group}) {
		t.Errorf("membership %v, told %v", r.book.Chat(group).In, r.host.leftChats)
	}
	r.silent()
}

func TestRefusedSendsAreNotRelayed(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	for _, answer := range []string{`{"code":230020,"msg":"limit"}`, `{"code":0}`, `{}`, ``} {
		r.up.say("POST /open-apis/im/v1/messages", 400, answer)
		r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{"receive_id":"oc_group","msg_type":"text","content":"{\"text\":\"x\"}"}`)
	}
	r.silent()
	if n := r.drafts.waiting(); n != 0 {
		t.Errorf("%d drafts", n)
	}
}

// The bot's answer is what Feishu said, whatever the host does.
func TestHostTroubleIsNotTheBots(t *testing.T) {
	for name, sent := range map[string]func(context.Context, Sent) error{
		"panics": func(context.Context, Sent) error { panic("boom") },
		"fails":  func(context.Context, Sent) error { return errTest },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil).knowGroup()
			calls := 0
			r.host.sent = func(ctx context.Context, m Sent) error {
				if calls++; calls == 1 {
					return sent(ctx, m)
				}
				return nil
			}
			r.text("hello") // fatal if the answer is not Feishu's
			if m := r.said(); m.Text != "hello" {
				t.Errorf("published %q", m.Text)
			}
			waitFor(t, func() bool { n := r.drafts.waiting(); return n == 0 })
		})
	}
}

func TestHangingHost(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	goOn := make(chan struct{})
	r.host.sent = func(context.Context, Sent) error { <-goOn; return nil }
	r.text("hello.")
	if r.counts.of("tap_slow") != 1 {
		t.Error("the slow host was not counted")
	}
	r.call("GET", "/open-apis/other", "") // is not served behind it
	close(goOn)
	r.said()
}

func TestMergeForward(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.up.say("POST /open-apis/im/v1/messages/merge_forward", http.StatusOK, fmt.Sprintf(`{"code":0,"data":{"message":{"message_id":"om_f","chat_id":"%s","msg_type":"merge_forward",
		"sender":{"id":"%s","id_type":"app_id","sender_type":"app"},"body":{"content":"Merged and Forwarded Message"}},"invalid_message_id_list":[]}}`, group, r.app))
	r.call("POST", "/open-apis/im/v1/messages/merge_forward?receive_id_type=chat_id", `{"receive_id":"oc_group","message_id_list":["om_1"]}`)
	if m := r.said(); m.ID != "om_f" || m.Type != "merge_forward" {
		t.Errorf("published %+v", m)
	}
}

// The same uuid gives the same message: it is not relayed anew.
func TestRepeatedSends(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	for _, content := range []string{`{"text":"once"}`, `{"text":"Thinking…"}`} {
		r.up.say("POST /open-apis/im/v1/messages", 200, js(map[string]any{"code": 0, "data": map[string]any{"message_id": "om_r" + fmt.Sprint(len(content)), "chat_id": group, "msg_type": "text",
			"sender": map[string]any{"id": r.app, "id_type": "app_id", "sender_type": "app"}, "body": map[string]any{"content": content}}}))
		for range 3 {
			r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{"receive_id":"oc_group","uuid":"u"}`)
		}
	}
	if m := r.said(); m.Text != "once" {
		t.Errorf("published %q", m.Text)
	}
	r.silent()
	if n := r.drafts.waiting(); n != 1 {
		t.Errorf("%d drafts", n)
	}
}

func TestSendsWhileClosing(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.text("last words")
	if m := r.said(); m.Text != "last words" {
		t.Errorf("published %q", m.Text)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error("closed twice:", err)
	}
}
