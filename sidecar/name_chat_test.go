package sidecar

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// What a person writes is recorded, and acknowledged to Feishu, before Feishu is asked what the group is called.
// A group is asked about once, also where Feishu refuses the answer.
func TestQuestionForAGroupsNameHoldsUpNothing(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	var refuse atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chat, about := strings.CutPrefix(r.URL.Path, "/open-apis/im/v1/chats/")
		switch {
		case !about:
			_, _ = io.WriteString(w, `{"code":0,"tenant_access_token":"t","expire":7200}`)
		case refuse.Load():
			asked <- chat
			_, _ = io.WriteString(w, `{"code":99991672,"msg":"Access denied."}`)
		default:
			asked <- chat
			_, _ = io.WriteString(w, `{"code":0,"data":{"chat_mode":"group","name":"the name"}}`)
		}
	}))
	t.Cleanup(api.Close)
	s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
	s.app.api = feishu.NewAPI(api.URL, "cli_a", "secret")
	says := func(chat relay.ChatID, id relay.MessageID) {
		t.Helper()
		p, err := s.send.heard(t.Context(), feishu.Message{ID: id, ChatID: chat, ChatType: feishu.ChatGroup, Type: "text",
			Content: `{"text":"hi"}`, Sender: feishu.Sender{OpenID: "ou_1", Name: "Li"}}, nil)
		if err == nil {
			err = p.After(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	says("oc_x", "om_1")
	says("oc_x", "om_2")
	if len(asked) > 0 {
		t.Error("Feishu was asked while the message waited")
	}
	if got := s.transcriptOf(t, "oc_x"); len(got) != 2 {
		t.Errorf("recorded: %v", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.app.nameChats(ctx) }()
	wants := func(chat string) {
		t.Helper()
		if got := <-asked; got != chat {
			t.Errorf("asked about %s, want %s", got, chat)
		}
	}
	wants("oc_x")
	says("oc_y", "om_3") // asked about when the answer about oc_x is in
	wants("oc_y")
	if name := s.app.book.Chat("oc_x").Name; name != "the name" {
		t.Errorf("the group is called %q", name)
	}
	refuse.Store(true)
	says("oc_z", "om_4")
	wants("oc_z")
	says("oc_x", "om_5")
	says("oc_z", "om_6")
	says("oc_last", "om_7")
	wants("oc_last")
	cancel()
	<-ended
	if next := time.Until(s.app.chatsAsked.next["oc_z"]); next < 23*time.Hour {
		t.Errorf("after a refusal Feishu is asked again in %s", next)
	}
}
