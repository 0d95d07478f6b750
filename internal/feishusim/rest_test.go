package feishusim

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

// raw makes a call with a token of the app, and decodes the answer.
func (r *room) raw(a App, method, path, body string) (status int, out map[string]any) {
	r.t.Helper()
	r.mu.Lock()
	token := r.token(r.Server.apps[a.ID]).value
	r.mu.Unlock()
	return r.call(token, method, path, body)
}

func (r *room) call(token, method, path, body string) (status int, out map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		r.t.Fatalf("%s %s: %v in %q", method, path, err, b)
	}
	if resp.Header.Get("X-Tt-Logid") == "" || resp.Header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s %s: no log id", method, path)
	}
	if got, want := resp.Header.Get("Content-Type"), "application/json; charset=utf-8"; got != want {
		r.t.Errorf("%s %s: content type %q, want %q", method, path, got, want)
	}
	return resp.StatusCode, out
}

func code(v map[string]any) int { n, _ := v["code"].(float64); return int(n) }

func TestTokens(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	a := r.apps[0]
	fetch := func(id, secret string) map[string]any {
		_, v := r.call("", "POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"`+id+`","app_secret":"`+secret+`"}`)
		return v
	}
	first := fetch(a.ID, a.Secret)
	if code(first) != 0 || first["expire"] != 7200.0 || !strings.HasPrefix(str(first["tenant_access_token"]), "t-") {
		t.Fatalf("token: %v", first)
	}
	if again := fetch(a.ID, a.Secret); again["tenant_access_token"] != first["tenant_access_token"] {
		t.Error("a fresh token was replaced")
	}
	if got := code(fetch("cli_0000000000000000", "x")); got != 10014 {
		t.Errorf("unknown app: %d", got)
	}
	if got := code(fetch(a.ID, "wrong")); got != 10014 {
		t.Errorf("wrong secret: %d", got)
	}
	if _, v := r.call("", "POST", "/open-apis/auth/v3/app_access_token/internal", `{`); code(v) != 10003 {
		t.Errorf("malformed: %v", v)
	}
	token := str(first["tenant_access_token"])
	r.mu.Lock()
	r.tokens[token].expires = time.Now().Add(29 * time.Minute) // less than a quarter is left
	r.mu.Unlock()
	second := str(fetch(a.ID, a.Secret)["tenant_access_token"])
	if second == token {
		t.Error("a token near its end came back")
	}
	for _, tt := range []struct {
		name, token string
		code        int
	}{
		{"the old one", token, 0},
		{"the new one", second, 0},
		{"none", "", 99991661},
		{"an invented one", "t-nothing", 99991663},
		{"a user's", "u-nothing", 99991668},
		{"of no shape", "nothing", 99991671},
	} {
		if _, v := r.call(tt.token, "GET", "/open-apis/bot/v3/info", ""); code(v) != tt.code {
			t.Errorf("%s: got %v, want code %d", tt.name, v, tt.code)
		}
	}
	r.RevokeTokens(a.ID)
	if _, v := r.call(second, "GET", "/open-apis/bot/v3/info", ""); code(v) != 99991663 {
		t.Errorf("revoked: %v", v)
	}
}

func TestErrorsHaveFeishusShape(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA", Scopes: []string{}})
	status, v := r.call("", "GET", "/open-apis/im/v9/nothing", "")
	if status != 404 || code(v) != 99991201 || v["msg"] != "resource not find" {
		t.Errorf("unknown path: %d %v", status, v)
	}
	status, v = r.raw(r.apps[0], "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{}`)
	detail, _ := v["error"].(map[string]any)
	violations, _ := detail["permission_violations"].([]any)
	if status != 400 || code(v) != 99991672 || len(violations) == 0 || detail["log_id"] == "" || !strings.Contains(str(v["msg"]), r.apps[0].ID) {
		t.Errorf("no scope: %d %v", status, v)
	}
	if status, v := r.call("", "POST", "//open-apis/auth/v3/tenant_access_token/internal", `{}`); status != 200 || code(v) != 10003 {
		t.Errorf("a double slash: %d %v", status, v)
	}
}

func TestSendIsRefused(t *testing.T) {
	o := quick
	o.GroupQPS = 5
	r := newRoom(t, o, App{Name: "BotA"}, App{Name: "BotB"})
	c := r.client(r.apps[0])
	other := r.AddGroup("Elsewhere", r.apps[1].ID, r.ann.ID)
	for _, tt := range []struct {
		name, chat, msgType, content string
		code                         int
	}{
		{"no such chat", "oc_nothing", "text", textOf("hi"), 230001},
		{"not a member", other.ID, "text", textOf("hi"), 230002},
		{"content is no JSON", r.group.ID, "text", "hi", 230001},
		{"content is no object", r.group.ID, "text", `"hi"`, 230001},
		{"no such type", r.group.ID, "telegram", `{}`, 99992402},
		{"text too long", r.group.ID, "text", textOf(strings.Repeat("x", maxTextBytes)), 230025},
		{"post too long", r.group.ID, "post", `{"zh_cn":{"content":[[{"tag":"text","text":"` + strings.Repeat("x", maxPostBytes) + `"}]]}}`, 230025},
		{"no locale", r.group.ID, "post", `{"zh_cn":{}}`, 230001},
		{"card is no JSON", r.group.ID, "interactive", `{"elements":`, 230099},
		{"one element twice", r.group.ID, "interactive", `{"schema":"2.0","body":{"elements":[{"tag":"hr","element_id":"a"},{"tag":"hr","element_id":"a"}]}}`, 230099},
		{"no such card", r.group.ID, "interactive", `{"type":"card","data":{"card_id":"7123"}}`, 230099},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, got := r.send(c, tt.chat, tt.msgType, tt.content); got != tt.code {
				t.Errorf("got code %d, want %d", got, tt.code)
			}
			r.mu.Lock()
			r.chats[r.group.ID].recent = nil // refusals count at the limit too
			r.mu.Unlock()
		})
	}
	codes := map[int]int{}
	for range 8 { // both bots share the limit
		for _, a := range r.apps {
			_, v := r.raw(a, "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", compact(map[string]string{
				"receive_id": r.group.ID, "msg_type": "text", "content": textOf("hi"),
			}))
			codes[code(v)]++
		}
	}
	if codes[230020] == 0 || codes[0] == 0 {
		t.Errorf("16 messages at once: got codes %v, want some 230020", codes)
	}
	if got := len(r.Messages(other.ID)); got != 0 {
		t.Errorf("%d messages where the bot is not", got)
	}
}

func TestRepliesAndTopics(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	c := r.client(r.apps[0])
	reply := func(to string, thread bool) (*larkim.ReplyMessageResp, *larkim.ReplyMessageRespData) {
		resp, err := c.Im.V1.Message.Reply(t.Context(), larkim.NewReplyMessageReqBuilder().MessageId(to).
			Body(larkim.NewReplyMessageReqBodyBuilder().MsgType("text").Content(textOf("reply")).ReplyInThread(thread).Build()).Build())
		if err != nil {
			t.Fatal(err)
		}
		return resp, resp.Data
	}
	root := r.say("root")
	_, first := reply(root, false)
	if *first.RootId != root || *first.ParentId != root || first.ThreadId != nil || *first.ChatId != r.group.ID {
		t.Errorf("reply: %s", larkcore.Prettify(first))
	}
	_, second := reply(*first.MessageId, true)
	if *second.RootId != root || *second.ParentId != *first.MessageId || !strings.HasPrefix(*second.ThreadId, "omt_") {
		t.Errorf("reply in thread: %+v", second)
	}
	if got := r.message(root).ThreadID; got != *second.ThreadId {
		t.Errorf("the root is in topic %q, want %q", got, *second.ThreadId)
	}
	resp, err := c.Im.V1.Message.List(t.Context(), larkim.NewListMessageReqBuilder().ContainerIdType("thread").ContainerId(*second.ThreadId).Build())
	if err != nil || !resp.Success() || len(resp.Data.Items) != 2 {
		t.Errorf("topic: %v %v", err, resp)
	}
	for _, tt := range []struct {
		to   string
		code int
	}{{"om_nothing", 231003}, {"nothing", 230001}} {
		if resp, _ := reply(tt.to, false); resp.Code != tt.code {
			t.Errorf("reply to %s: got %d, want %d", tt.to, resp.Code, tt.code)
		}
	}
	if err := r.Recall(root); err != nil {
		t.Fatal(err)
	}
	if resp, _ := reply(root, false); resp.Code != 230011 {
		t.Errorf("reply to what was taken back: %d", resp.Code)
	}
	topics := must(r.addGroup(Group{Name: "Topics", Topic: true, Members: []string{r.apps[0].ID, r.ann.ID}}))
	id, err := r.Say(topics.ID, "Ann", "a topic")
	if err != nil || r.message(id).ThreadID == "" {
		t.Errorf("a message in a topic group has no thread: %v", err)
	}
}

func TestEditsPatchesRecalls(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB"})
	a, b := r.connect(r.apps[0]), r.connect(r.apps[1])
	c := r.client(r.apps[0])
	id := r.mustSend(c, "text", textOf("one"))
	edit := func(content string) int {
		resp, err := c.Im.V1.Message.Update(t.Context(), larkim.NewUpdateMessageReqBuilder().MessageId(id).
			Body(larkim.NewUpdateMessageReqBodyBuilder().MsgType("text").Content(content).Build()).Build())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Code
	}
	for range maxEdits {
		if got := edit(textOf("two")); got != 0 {
			t.Fatalf("edit: %d", got)
		}
	}
	if got := edit(textOf("three")); got != 230072 {
		t.Errorf("one edit too many: %d", got)
	}
	if m := r.message(id); m.Text != "two" || m.Edits != maxEdits {
		t.Errorf("edited: %+v", m)
	}
	if _, v := r.raw(r.apps[1], "PUT", "/open-apis/im/v1/messages/"+id, `{"msg_type":"text","content":"{\"text\":\"x\"}"}`); code(v) != 230017 {
		t.Errorf("edit of another's: %v", v)
	}
	card := r.mustSend(c, "interactive", `{"config":{"update_multi":true},"elements":[{"tag":"markdown","content":"Thinking…"}]}`)
	resp, err := c.Im.V1.Message.Patch(t.Context(), larkim.NewPatchMessageReqBuilder().MessageId(card).
		Body(larkim.NewPatchMessageReqBodyBuilder().Content(`{"config":{"update_multi":true},"elements":[{"tag":"div","text":{"tag":"lark_md","content":"done"}}]}`).Build()).Build())
	if err != nil || !resp.Success() || r.message(card).Text != "done" {
		t.Errorf("patch: %v %v, %q", err, resp, r.message(card).Text)
	}
	if _, v := r.raw(r.apps[0], "PATCH", "/open-apis/im/v1/messages/"+id, `{"content":"{}"}`); code(v) != 230054 {
		t.Errorf("patch of a text: %v", v)
	}
	if _, v := r.raw(r.apps[1], "DELETE", "/open-apis/im/v1/messages/"+id, `{}`); code(v) != 230026 {
		t.Errorf("recall of another's: %v", v)
	}
	gone, err := c.Im.V1.Message.Delete(t.Context(), larkim.NewDeleteMessageReqBuilder().MessageId(id).Build())
	if err != nil || !gone.Success() || !r.message(id).Deleted {
		t.Errorf("recall: %v %v", err, gone)
	}
	recalled := func(d Delivery) bool { return d.EventType == eventRecalled && d.MessageID == id && d.Acked == 200 }
	if d, err := r.WaitDelivery(r.soon(), recalled); err != nil || d.App != b.app.ID {
		t.Errorf("recall event: %+v %v", d, err)
	}
	if slices.ContainsFunc(r.Deliveries(), func(d Delivery) bool { return d.App == a.app.ID }) {
		t.Error("the bot got an event of its own message")
	}
}

func TestRecallsByPeople(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB"})
	r.connect(r.apps[1])
	r.AddUser("Bob")
	r.AddUser("Eve")
	for _, name := range []string{"Bob", "Eve"} {
		if err := r.Join("Lab", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.UpdateGroup(Group{Name: "Lab", Managers: []string{"Bob", "BotA"}}); err != nil {
		t.Fatal(err)
	}
	if err := r.RecallBy(r.say("Ann's own"), "Eve"); err == nil {
		t.Error("a member recalled what another one said")
	}
	c := r.client(r.apps[0])
	for by, want := range map[string]string{"": "message_owner", "BotA": "message_owner", "Ann": "group_owner", "Bob": "group_manager"} {
		id := r.mustSend(c, "text", textOf("hello"))
		if err := r.RecallBy(id, by); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Event larkim.P2MessageRecalledV1Data
		}
		if _, err := r.WaitDelivery(r.soon(), func(d Delivery) bool {
			return d.EventType == eventRecalled && d.MessageID == id && d.Acked == 200 && json.Unmarshal(d.Body, &got) == nil
		}); err != nil {
			t.Fatalf("%q: %v", by, err)
		}
		if e := got.Event; *e.MessageId != id || *e.ChatId != r.group.ID || *e.RecallType != want || *e.RecallTime == "" {
			t.Errorf("%q: %s", by, larkcore.Prettify(e))
		}
		for method, body := range map[string]string{"PUT": `{"msg_type":"text","content":"{\"text\":\"x\"}"}`, "DELETE": `{}`} {
			if _, v := r.raw(r.apps[0], method, "/open-apis/im/v1/messages/"+id, body); code(v) != 230011 {
				t.Errorf("%s of a recalled message: %v", method, v)
			}
		}
	}
	if _, v := r.raw(r.apps[0], "DELETE", "/open-apis/im/v1/messages/"+r.say("Ann's"), `{}`); code(v) != 0 {
		t.Errorf("a bot that manages the group recalls: %v", v)
	}
}
