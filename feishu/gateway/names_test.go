package gateway

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// Nobody names the id: the chat is asked once, and what was said goes out.
func TestUnknownIDIsAskedForOnce(t *testing.T) {
	var asked atomic.Int32
	r := newRig(t, nil).knowGroup()
	r.up.on("GET /open-apis/im/v1/chats/"+group+"/members/bots", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		answer(w, 200, `{"code":0,"data":{"items":[{"bot_id":"ou_other","bot_name":"Other"}]}}`)
	})
	r.call("GET", "/open-apis/bot/v3/info", "")
	for range 2 {
		r.send("interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"<at id=ou_nobody></at> look"}]}}`)
		if m := r.said(); m.Text != "<at id=ou_nobody></at> look" {
			t.Errorf("published %q", m.Text)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the chat's bots were asked for %d times", n)
	}
}

// People are asked for by the kind of the id that is without a name; an app is none of them.
func TestPeopleAreAskedForByTheKindOfID(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	kinds := make(chan string, 10)
	r.up.on("GET /open-apis/im/v1/chats/"+group+"/members", func(w http.ResponseWriter, q *http.Request) {
		kinds <- q.URL.Query().Get("member_id_type")
		answer(w, 200, `{"code":0,"data":{"items":[]}}`)
	})
	r.call("GET", "/open-apis/bot/v3/info", "")
	for id, want := range map[string]string{"cli_0000000000000000": "", "1a2b3c4d": "user_id", "on_1": "union_id",
		"ou_1": "open_id"} {
		r.send("interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"<at id=`+id+`></at>"}]}}`)
		r.said()
		kinds <- "" // behind what was asked
		if got := <-kinds; got != want {
			t.Errorf("%s is asked for by %q", id, got)
		}
		for len(kinds) > 0 {
			<-kinds
		}
	}
}

// What a text said before is not overtaken by one that follows it while names
// are asked for.
func TestUnknownIDKeepsTheOrder(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	asked, release := make(chan bool, 1), make(chan bool)
	r.up.on("GET /open-apis/im/v1/chats/"+group+"/members/bots", func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-release
		answer(w, 200, `{"code":0,"data":{"items":[{"bot_id":"ou_b","bot_name":"BotB"}]}}`)
	})
	r.call("GET", "/open-apis/bot/v3/info", "")
	r.send("interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"<at id=ou_b></at> first"}]}}`)
	select {
	case <-asked:
	case m := <-r.host.said:
		t.Fatalf("published %q without asking", m.Text)
	}
	r.text("second")
	r.silent()
	close(release)
	if m := r.said(); m.Text != "@BotB first" {
		t.Errorf("published %q", m.Text)
	}
	if m := r.said(); m.Text != "second" {
		t.Errorf("then %q", m.Text)
	}
}

// Feishu's answers name those they mention, mostly without their type. A name
// seen once names the id everywhere, also over a restart.
func TestNamesOfAnswersAreRemembered(t *testing.T) {
	dir, up := t.TempDir(), newUpstream(t)
	r := newRigIn(t, dir, up, nil).knowGroup()
	say := func(content, mentions string) {
		r.up.say("POST /open-apis/im/v1/messages", 200, fmt.Sprintf(`{"code":0,"data":{"message_id":"om_m","chat_id":"%s","msg_type":"text",
			"sender":{"id":"%s","id_type":"app_id","sender_type":"app"},"body":{"content":%s},"mentions":%s}}`, group, r.app, js(content), mentions))
		r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", `{"receive_id":"oc_group","msg_type":"text","content":"{\"text\":\"hi.\"}"}`)
		r.said()
		r.up.on("POST /open-apis/im/v1/messages", nil)
	}
	say(`{"text":"@_user_1 look"}`, `[{"key":"@_user_1","id":"ou_b","id_type":"open_id","name":"BotB"}]`)
	card := `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"<at id=ou_b></at> look"}]}}`
	r.send("interactive", card)
	if m := r.said(); m.Text != "@BotB look" || len(m.Mentions) != 1 || m.Mentions[0].Name != "BotB" {
		t.Errorf("published %q, %+v", m.Text, m.Mentions)
	}
	r.stop()
	_ = r.book.Close()
	_ = r.store.Close()
	r = newRigIn(t, dir, up, nil).knowGroup()
	r.send("interactive", card)
	if m := r.said(); m.Text != "@BotB look" {
		t.Errorf("after a restart, published %q", m.Text)
	}
}
