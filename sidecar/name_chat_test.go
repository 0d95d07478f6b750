package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// What a person writes is recorded while Feishu is asked what the group is called. A group
// is asked about once, also where Feishu refuses the answer.
func TestQuestionForAGroupsNameHoldsUpNothing(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan string, 100), make(chan bool)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chat, about := strings.CutPrefix(r.URL.Path, "/open-apis/im/v1/chats/")
		if !about {
			_, _ = io.WriteString(w, `{"code":0,"tenant_access_token":"t","expire":7200}`)
			return
		}
		asked <- chat
		if <-goOn {
			_, _ = io.WriteString(w, `{"code":0,"data":{"chat_mode":"group","name":"the name"}}`)
		} else {
			_, _ = io.WriteString(w, `{"code":99991672,"msg":"Access denied."}`)
		}
	}))
	t.Cleanup(api.Close)
	s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
	s.app.book = feishu.NewDirectory(nil, feishu.NewAPI(api.URL, "cli_a", "secret"), nil)
	t.Cleanup(func() { s.app.book.Close() })
	says := func(chat relay.ChatID, id relay.MessageID) {
		t.Helper()
		m := feishu.Message{ID: id, ChatID: chat, ChatType: feishu.ChatGroup, Type: "text", Content: `{"text":"hi"}`,
			Sender: feishu.Sender{OpenID: "ou_1"}}
		p := newArrival(relay.Delivery{Settle: func() {}})
		p.msg = relay.Message{RelayMsgID: id, Channel: relay.DefaultChannel, ChatID: chat, MessageID: id, Role: relay.RoleUser,
			TS: relay.MillisOf(time.Now()), Metadata: relay.Metadata{metaEvent: m.Event("e", "", feishu.Self{AppID: "cli_a"})}}
		if _, err := (&native{base: s.base, app: s.app, send: s.send, receive: s.receive}).recordHeard(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(chat relay.ChatID, accepted bool) {
		t.Helper()
		if got := <-asked; got != string(chat) {
			t.Errorf("asked about %s, want %s", got, chat)
		}
		goOn <- accepted
		if err := s.app.book.Ask(t.Context(), "group "+string(chat), time.Hour, nil); (err == nil) != accepted {
			t.Error(err)
		}
	}
	says("oc_x", "om_1")
	says("oc_x", "om_2")
	if got := s.transcriptOf(t, "oc_x"); len(got) != 2 {
		t.Errorf("recorded: %v", got)
	}
	answer("oc_x", true)
	if name := s.app.book.Chat("oc_x").Name; name != "the name" {
		t.Errorf("the group is called %q", name)
	}
	says("oc_z", "om_3")
	answer("oc_z", false)
	says("oc_x", "om_4")
	says("oc_z", "om_5")
	says("oc_last", "om_6")
	answer("oc_last", true)
}
