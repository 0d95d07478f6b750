package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
)

// peerRig is a gateway whose bot has got mail from the agent "writer".
func peerRig(t *testing.T) (r *rig, mail peerchat.Message) {
	t.Helper()
	var chats *peerchat.Chats
	var err error
	r = newRig(t, func(o *Options) {
		chats, err = peerchat.Open(chatsOf(o))
		if err != nil {
			t.Fatal(err)
		}
		o.Peers = chats
	})
	r.book.LearnSelf(feishu.Self{OpenID: "ou_self", AppID: r.app, Name: "Me"})
	r.proved("t-"+r.app, r.app)
	if mail, err = chats.Receive("writer", "msg_1", "please write it", nil); err != nil {
		t.Fatal(err)
	}
	return r, mail
}

// chatsOf are the options of the chats of a gateway whose bot has no mailbox.
func chatsOf(o *Options) peerchat.Options {
	return peerchat.Options{Store: o.Book.Store(), Self: o.Book.Self, SenderType: feishu.SenderUser, Logger: o.Logger,
		Needed: func(peerchat.Message) bool { return false }, Trace: func(string) {}}
}

// peerCalls are the calls that may name a chat, a message or a person; {oc}, {om}, {ou} are ids.
var peerCalls = []string{
	`POST im/v1/messages?receive_id_type=chat_id {"receive_id":"{oc}","msg_type":"text","content":"{\"text\":\"hi\"}"}`,
	`POST im/v1/messages?receive_id_type=open_id {"receive_id":"{ou}","msg_type":"text","content":"{\"text\":\"hi\"}"}`,
	`POST im/v1/messages/{om}/reply {"msg_type":"text","content":"{\"text\":\"hi\"}"}`,
	`PUT im/v1/messages/{om} {"msg_type":"text","content":"{\"text\":\"hi\"}"}`,
	`PATCH im/v1/messages/{om} {"content":"{}"}`,
	`DELETE im/v1/messages/{om}`,
	`GET im/v1/messages/{om}`,
	`GET im/v1/messages/{om}?user_id_type=open_id`,
	`GET im/v1/messages/mget?message_ids={om}`,
	`GET im/v1/messages?container_id_type=chat&container_id={oc}`,
	`POST im/v1/messages/{om}/forward?receive_id_type=chat_id {"receive_id":"oc_real"}`,
	`POST im/v1/messages/om_real/forward?receive_id_type=chat_id {"receive_id":"{oc}"}`,
	`POST im/v1/messages/merge_forward?receive_id_type=chat_id {"receive_id":"oc_real","message_id_list":["om_real","{om}"]}`,
	`POST im/v1/threads/omt_real/forward?receive_id_type=chat_id {"receive_id":"{oc}"}`,
	`POST im/v1/messages/{om}/reactions {"reaction_type":{"emoji_type":"Typing"}}`,
	`GET im/v1/messages/{om}/reactions`,
	`DELETE im/v1/messages/{om}/reactions/abc`,
	`GET im/v1/messages/{om}/resources/img_1?type=image`,
	`GET im/v1/messages/{om}/read_users?user_id_type=open_id`,
	`PATCH im/v1/messages/{om}/urgent_app {"user_id_list":["{ou}"]}`,
	`POST im/v1/pins {"message_id":"{om}"}`,
	`GET im/v1/pins?chat_id={oc}`,
	`GET im/v1/chats/{oc}`,
	`PUT im/v1/chats/{oc} {"name":"x"}`,
	`DELETE im/v1/chats/{oc}`,
	`GET im/v1/chats/{oc}/members?member_id_type=open_id`,
	`GET im/v1/chats/{oc}/members/bots`,
	`GET im/v1/chats/{oc}/members/is_in_chat`,
	`POST im/v1/chats/oc_real/members {"id_list":["{ou}"]}`,
	`GET contact/v3/users/{ou}?user_id_type=open_id`,
	`GET contact/v3/users/batch?user_ids={ou}`,
	`GET bot/v3/bots/basic_batch?bot_ids={ou}`,
	`POST cardkit/v1/cards/id_convert {"message_id":"{om}"}`,
	`POST message/v4/send/ {"open_chat_id":"{oc}","msg_type":"text"}`,
	`POST ephemeral/v1/send {"chat_id":"{oc}","open_id":"{ou}"}`,
	`POST interactive/v1/card/update {"card":{"open_ids":["{ou}"]}}`,
	`PUT im/v2/app_feed_card/batch {"feed_cards":[{"user_id":" {ou} "}]}`,
	`GET chat/v4/info?chat_id={oc}`,
	`POST search/v2/message {"query":"x","chat_ids":["{oc}"]}`,
	`POST search/v2/message?user_id_type=open_id {"from_ids":["{ou}"],"query":"x"}`,
	`POST calendar/v4/calendars/c/events/e/attendees {"attendees":[{"type":"chat","chat_id":"{oc}"}]}`,
	`POST drive/v1/permissions/tok/members?type=docx {"member_type":"openchat","member_id":"{oc}","perm":"view"}`,
	`POST task/v2/tasks {"summary":"x","members":[{"id":"{ou}","type":"user"}]}`,
	`POST im/v1/chats/oc_real/x {"a":{"b":{"c":{"chat_id":"{oc}"}}}}`,
}

// textCalls are calls in which such an id is a text.
var textCalls = []string{
	`PUT cardkit/v1/cards/7301/elements/e1/content {"content":"see {oc}","sequence":3}`,
	`POST bitable/v1/apps/a/tables/b/records {"fields":{"chat_id":"{oc}"}}`,
	`POST docx/v1/documents/d/blocks/b/children {"children":[{"chat_id":"{oc}"}]}`,
	`POST im/v1/messages?receive_id_type=chat_id {"receive_id":"oc_1","msg_type":"text","content":"{\"text\":\"{oc}\"}"}`,
}

// spellings are how a call may be written so that it is the same call.
var spellings = map[string]func(target string) string{
	"as usual":        func(target string) string { return target },
	"doubled slashes": func(target string) string { return strings.Replace(target, "/", "//", 2) },
	"percent signs": func(target string) string {
		return strings.NewReplacer("relaypeer", "%72elay%70eer", "om_", "om%5F", "oc_", "%6Fc_").Replace(target)
	},
}

// A call that names a chat with an agent reaches Feishu never, however it is written, whether or not there is such a
// chat; the same call with Feishu's own ids always does.
func TestCallsForPeersNeverReachFeishu(t *testing.T) {
	r, mail := peerRig(t)
	ours := strings.NewReplacer("{oc}", string(mail.Chat), "{om}", string(mail.ID), "{ou}",
		string(r.opts.Peers.User("writer")))
	guessed := strings.NewReplacer("{oc}", "oc_relaypeer0123456789abcdef0123456789abcdef", "{om}", "om_relaypeer01",
		"{ou}", "ou_relaypeer0123456789abcdef0123456789abcdef")
	real := strings.NewReplacer("{oc}", "oc_5ad11d72b830411d72b836c20", "{om}", "om_x100b4c2f8a9e0f3b", "{ou}",
		"ou_7d8a6e6df7621556ce0d21922b676706")
	for _, line := range peerCalls {
		method, rest, _ := strings.Cut(line, " ")
		target, body, _ := strings.Cut(rest, " ")
		for name, spell := range spellings {
			for kind, ids := range map[string]*strings.Replacer{"a chat": ours, "a guessed id": guessed, "Feishu's": real} {
				target, body := spell("/open-apis/"+ids.Replace(target)), ids.Replace(body)
				before := len(r.up.seen())
				status, answer := r.call(method, target, body)
				reached := len(r.up.seen()) - before
				if kind == "Feishu's" {
					if reached == 0 {
						t.Errorf("%s %s (%s) with Feishu's ids is kept here: %s", method, target, name, answer)
					}
					continue
				}
				if reached > 0 {
					t.Errorf("%s %s (%s) with %s reached Feishu", method, target, name, kind)
				}
				var ans struct{ Code *int }
				if json.Unmarshal([]byte(answer), &ans) != nil || ans.Code == nil || (status == http.StatusOK) != (*ans.Code == 0) {
					t.Errorf("%s %s (%s) with %s is answered %d %s", method, target, name, kind, status, answer)
				}
			}
		}
	}
}

// What only talks about such a chat goes to Feishu as it is.
func TestTextsAboutPeersPass(t *testing.T) {
	r, mail := peerRig(t)
	r.knowGroup()
	text := "what is " + string(mail.Chat) + "?"
	r.text(text)
	if m := r.said(); m.ChatID != group || m.Text != text {
		t.Errorf("the host got %+v", m)
	}
	pass := func(line, kind string) {
		method, rest, _ := strings.Cut(strings.NewReplacer("{oc}", string(mail.Chat)).Replace(line), " ")
		target, body, _ := strings.Cut(rest, " ")
		before := len(r.up.seen())
		if _, answer := r.callWith(method, "/open-apis/"+target, body, http.Header{"Content-Type": {kind}}); len(r.up.seen()) == before {
			t.Errorf("%s is kept here: %s", line, answer)
		}
	}
	for _, line := range textCalls {
		pass(line, "application/json")
	}
	pass("POST im/v1/files --x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{\"chat_id\":\"{oc}\"}\r\n--x--\r\n",
		"multipart/form-data; boundary=x")
}

// callWith makes a call with headers of its own.
func (r *rig) callWith(method, target, body string, header http.Header) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+target, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer t-"+r.app)
	return r.do(req)
}

// Nobody but the bot speaks in its chats, and no agent is reached by an id that no mail came under.
func TestPeersAreReachedByTheBotOnly(t *testing.T) {
	r, mail := peerRig(t)
	body := js(map[string]any{"receive_id": mail.Chat, "msg_type": "text", "content": `{"text":"hi"}`})
	const send = "/open-apis/im/v1/messages?receive_id_type=chat_id"
	for _, token := range []string{"u-user", "t-stranger", ""} {
		if _, answer := r.as(token, "POST", send, body); !strings.Contains(answer, "99991663") {
			t.Errorf("with the token %q: %s", token, answer)
		}
	}
	other := r.opts.Peers.Chat("other")
	if _, answer := r.call("POST", send, strings.Replace(body, string(mail.Chat), string(other), 1)); !strings.Contains(answer, "230001") {
		t.Errorf("a chat without mail: %s", answer)
	}
	r.silent()
	if n := len(r.opts.Peers.Messages(mail.Chat)); n != 1 {
		t.Errorf("the chat has %d messages", n)
	}
}

// replyTo answers mail with a text and returns Feishu's answer, as the bot gets it.
func (r *rig) replyTo(mail peerchat.Message, text string) (status int, answer string) {
	r.t.Helper()
	return r.call("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reply",
		js(map[string]any{"msg_type": "text", "content": textOf(text)}))
}

// idIn is an id in the data of an answer; "" where it has none.
func idIn(t testing.TB, answer, field string) string {
	t.Helper()
	var ans struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(answer), &ans); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return str(ans.Data[field])
}

// codeIn is the code of an answer.
func codeIn(t testing.TB, answer string) int {
	t.Helper()
	var ans struct{ Code *int }
	if json.Unmarshal([]byte(answer), &ans) != nil || ans.Code == nil {
		t.Fatalf("an answer without a code: %s", answer)
	}
	return *ans.Code
}

// A message whose receiver cannot be read goes nowhere: one that is too long for Feishu is refused for good, others the
// bot is to send again.
func TestMessagesWhoseReceiverCannotBeRead(t *testing.T) {
	r, mail := peerRig(t)
	send := func(chat string, size int, header http.Header) (int, string) {
		return r.callWith("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{"content":"{\"text\":\"`+
			strings.Repeat("x", size)+`\"}","msg_type":"text","receive_id":"`+chat+`"}`, header)
	}
	if _, answer := send(string(mail.Chat), 1100<<10, http.Header{}); codeIn(t, answer) != 99992402 {
		t.Errorf("a body of more than 1 MiB is answered %s", answer)
	}
	waitFor(t, func() bool { return r.large.TryAcquire(maxLarge) })
	if _, answer := send(string(mail.Chat), 80<<10, http.Header{}); codeIn(t, answer) != 99991400 {
		t.Errorf("without room for the body, the bot gets %s", answer)
	}
	r.large.Release(maxLarge)
	if seen := r.up.seen(); len(seen) > 0 {
		t.Errorf("%s %s reached Feishu", seen[0].Method, seen[0].URI)
	}
	if _, answer := send("oc_real", 80<<10, http.Header{}); codeIn(t, answer) != 0 || len(r.up.seen()) != 1 {
		t.Errorf("a message for Feishu is answered %s", answer)
	}
}

// A process that is killed as soon as it has accepted messages, before there are drafts, sends them after its next
// start: a text soon, and a card that is written on then.
func TestWhatIsAcceptedForPeersSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	again := func(f func(d *desk)) {
		synctest.Test(t, func(t *testing.T) { withDesk(t, dir, f) })
	}
	var mail *peerchat.Message
	again(func(d *desk) {
		d.step("mail")
		mail = d.mail
		card := `{"type":"card","data":{"card_id":"77"}}`
		for _, said := range [][2]string{{"text", textOf("Thinking…")}, {"interactive", card}, {"text", textOf("done")}} {
			call := newRequest("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reply", "")
			body := js(map[string]any{"msg_type": said[0], "content": said[1]})
			if status, answer := d.opts.Peers.Answer(call, []byte(body), true); status != http.StatusOK {
				d.t.Fatalf("%s is answered %s", body, answer)
			}
		}
	})
	again(func(d *desk) {
		d.mail = mail
		d.after(quiet, "done")
		d.step("put 1 and written")
		time.Sleep(10 * time.Minute)
		d.now("and written")
		for _, m := range d.opts.Peers.Undecided() { // as the host does with what it records
			if m.Type != "text" || m.Content == textOf("done") {
				_ = d.opts.Peers.Keep(m.ID, []byte("{}"))
			}
		}
	})
	again(func(d *desk) { d.never(time.Hour) })
}

// What the bot said to an agent waits while the chats are switched off.
func TestPeersAreSwitchedOffForAWhile(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.step("mail")
		d.text("done")
		d.never(time.Second)
		turn := func(chats *peerchat.Chats) {
			d.drafts.mu.Lock()
			defer d.drafts.mu.Unlock()
			d.opts.Peers = chats
		}
		on := d.opts.Peers
		turn(nil)
		d.never(time.Hour)
		turn(on)
		time.Sleep(10 * time.Minute)
		d.now("done")
	})
}

// Without a host, as where the disk cannot be used, everything passes, both ways.
func TestWithoutAHost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Host = nil })
	if id := r.text("hi"); id == "" || r.api.Ready() {
		t.Error("the message did not pass, or its token was read")
	}
	if v, _ := r.tapEvent([]byte(eventOf(r.app, "user", "ou_u", "om_e", group, "group", "hi"))); v != feishu.Pass {
		t.Errorf("an event: %v", v)
	}
}

// After a restart, as long as Feishu cannot say whose a token is, the bot's own is not refused but to be tried again.
func TestPeersWhileFeishuIsAway(t *testing.T) {
	r, mail := peerRig(t)
	r.tokens.Purge()
	r.up.say("GET /open-apis/bot/v3/info", http.StatusBadGateway, "no such upstream")
	if status, answer := r.replyTo(mail, "done"); status != http.StatusBadGateway {
		t.Errorf("while Feishu is away: %d %s", status, answer)
	}
	r.up.say("GET /open-apis/bot/v3/info", http.StatusOK, `{"code":0,"bot":{"open_id":"ou_self"}}`)
	if status, answer := r.replyTo(mail, "done"); status != http.StatusOK {
		t.Errorf("once it is back: %d %s", status, answer)
	}
	r.said()
}
