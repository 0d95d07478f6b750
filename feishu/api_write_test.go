package feishu_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/feishu"
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
