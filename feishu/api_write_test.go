package feishu_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

func TestAPIWrites(t *testing.T) {
	type request struct{ call, token, body string }
	var got request
	status, answer := 200, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = request{r.Method + " " + r.RequestURI, r.Header.Get("Authorization"), string(body)}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	defer srv.Close()
	a := feishu.NewAPI(srv.URL, "cli_1", "")
	if _, err := a.Reply(t.Context(), "om_1", "hi", ""); err == nil || got.call != "" {
		t.Errorf("without a token: %v, %+v", err, got)
	}
	a.SawToken("t-bot")

	answer = `{"code":0,"data":{"message_id":"om_new","chat_id":"oc_1"}}`
	id, err := a.Reply(t.Context(), "om_1", "hi <b> \"你\"", "u1")
	if want := (request{"POST /open-apis/im/v1/messages/om_1/reply", "Bearer t-bot",
		`{"msg_type":"text","content":"{\"text\":\"hi <b> \\\"你\\\"\"}","reply_in_thread":false,"uuid":"u1"}`}); id != "om_new" || err != nil || got != want {
		t.Errorf("reply: %q %v\ngot  %+v\nwant %+v", id, err, got, want)
	}
	hi := feishu.Outgoing{Chat: "oc_1", Type: "text", Content: feishu.TextContent("hi")}
	sent, err := a.SendMessage(t.Context(), hi)
	if want := (request{"POST /open-apis/im/v1/messages?receive_id_type=chat_id", "Bearer t-bot",
		`{"receive_id":"oc_1","msg_type":"text","content":"{\"text\":\"hi\"}"}`}); sent.ID != "om_new" || err != nil || got != want {
		t.Errorf("send: %+v %v\ngot  %+v\nwant %+v", sent, err, got, want)
	}
	answer = `{"code":0,"data":{}}`
	if _, err := a.SendMessage(t.Context(), hi); err == nil {
		t.Error("an answer without a message is taken")
	}
	err = a.React(t.Context(), "om_1", "OK")
	if want := (request{"POST /open-apis/im/v1/messages/om_1/reactions", "Bearer t-bot",
		`{"reaction_type":{"emoji_type":"OK"}}`}); err != nil || got != want {
		t.Errorf("react: %v\ngot  %+v\nwant %+v", err, got, want)
	}

	status = 400
	for code, fails := range map[int]bool{231015: false, 231001: true} {
		answer = fmt.Sprintf(`{"code":%d,"msg":"m"}`, code)
		if err := a.React(t.Context(), "om_1", "OK"); (err != nil) != fails {
			t.Errorf("react, code %d: %v", code, err)
		}
	}
	answer = `{"code":231003,"msg":"The message to reply is not found."}`
	if _, err := a.Reply(t.Context(), "om_1", "SECRET", ""); codeOf(err) != 231003 || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("refused: %v", err)
	}
}

// The same against the stand-in.
func TestAPIWritesToAChat(t *testing.T) {
	sim := feishusim.New(feishusim.Options{})
	defer sim.Close()
	url, err := sim.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := sim.AddApp(feishusim.App{Name: "BotA"})
	ann, bob := sim.AddUser("Ann"), sim.AddUser("Bob")
	lab := sim.AddGroup("Lab", app.ID, ann.ID, bob.ID) // which Ann owns
	if _, err := sim.UpdateGroup(feishusim.Group{ID: lab.ID, Managers: []string{bob.ID}}); err != nil {
		t.Fatal(err)
	}
	a := feishu.NewAPI(url, app.ID, app.Secret)
	asked, err := sim.Say(lab.ID, ann.ID, "hello")
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.Reply(t.Context(), relay.MessageID(asked), "done", "u1")
	again, err2 := a.Reply(t.Context(), relay.MessageID(asked), "done", "u1")
	if err != nil || err2 != nil || first != again {
		t.Errorf("%s %v, then %s %v", first, err, again, err2)
	}
	if m, ok := sim.Message(string(first)); !ok || m.ParentID != asked {
		t.Errorf("the reply is %+v", m)
	}
	for range 2 { // a repeat is done
		if err := a.React(t.Context(), relay.MessageID(asked), "OK"); err != nil {
			t.Error(err)
		}
	}
	if m, _ := sim.Message(asked); len(m.Reactions) != 1 || m.Reactions[0].Emoji != "OK" || m.Reactions[0].By != app.ID {
		t.Errorf("reactions %+v", m.Reactions)
	}
	owner, managers, err := a.Managers(t.Context(), relay.ChatID(lab.ID))
	if want := []relay.OpenID{relay.OpenID(sim.OpenID(app.ID, bob.ID))}; err != nil ||
		owner != relay.OpenID(sim.OpenID(app.ID, ann.ID)) || !slices.Equal(managers, want) {
		t.Errorf("owner %s, managers %v, %v", owner, managers, err)
	}
	if _, _, err := a.Managers(t.Context(), "oc_nothing"); codeOf(err) == 0 {
		t.Errorf("of no chat: %v", err)
	}
}
