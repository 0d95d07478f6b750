package feishu_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// received is the event of docs/feishu.md 3.1.
const received = `{"schema":"2.0",
 "header":{"event_id":"ev1","event_type":"im.message.receive_v1","create_time":"1608725989000","token":"tok","app_id":"cli_receiver","tenant_key":"ten"},
 "event":{
  "sender":{"sender_id":{"union_id":"on_s","user_id":"e33ggbyz","open_id":"ou_s"},"sender_type":"user","tenant_key":"ten"},
  "message":{"message_id":"om_1","root_id":"om_r","parent_id":"om_p","thread_id":"omt_1",
   "create_time":"1609073151345","update_time":"1687343654666",
   "chat_id":"oc_1","chat_type":"group","message_type":"text",
   "content":"{\"text\":\"@_user_1 hello\"}",
   "mentions":[{"key":"@_user_1","id":{"union_id":"on_t","user_id":"u_t","open_id":"ou_t"},"mentioned_type":"user","name":"Tom","tenant_key":"ten"}],
   "user_agent":"x"}}}`

func TestParseEventReadsAMessage(t *testing.T) {
	got, err := feishu.ParseEvent([]byte(received))
	if err != nil {
		t.Fatal(err)
	}
	want := feishu.Event{
		ID: "ev1", Type: feishu.MessageReceived, AppID: "cli_receiver", TenantKey: "ten", Token: "tok", CreateTime: 1608725989000, ChatID: "oc_1",
		Message: &feishu.Message{
			ID: "om_1", RootID: "om_r", ParentID: "om_p", ThreadID: "omt_1", ChatID: "oc_1", ChatType: "group", Type: "text",
			Content: `{"text":"@_user_1 hello"}`, CreateTime: 1609073151345,
			Mentions: []feishu.Mention{{Key: "@_user_1", OpenID: "ou_t", UnionID: "on_t", UserID: "u_t", Name: "Tom", Type: "user"}},
			Sender: feishu.Sender{Type: "user", OpenID: "ou_s", UnionID: "on_s", UserID: "e33ggbyz",
				Tenant: "ten"},
		},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("event (-got +want):\n%s", diff)
	}
	if text := got.Message.Text(); text != "@Tom hello" {
		t.Errorf("text %q", text)
	}
}

func TestParseEventOtherTypes(t *testing.T) {
	datadriven.RunTest(t, "testdata/events/others.txt", func(t *testing.T, d *datadriven.TestData) string {
		e, err := feishu.ParseEvent([]byte(d.Input))
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprintf("%s %s %s %s %+v %+v", e.ID, e.Type, e.AppID, e.ChatID, e.Recall, e.Reaction)
	})
}

// What is not essential does not cost a message.
func TestParseEventLeavesOddFieldsOut(t *testing.T) {
	for _, odd := range [][2]string{
		{`"create_time":"1609073151345"`, `"create_time":"soon"`},
		{`"create_time":"1609073151345"`, `"create_time":{}`},
		{`"root_id":"om_r"`, `"root_id":null`},
		{`"thread_id":"omt_1"`, `"thread_id":7`},
		{`"mentions":[`, `"mentions":"all","x":[`},
		{`"mentions":[`, `"mentions":[7,{"key":"@_user_2","id":[1]},`},
		{`"sender_type":"user"`, `"sender_type":null`},
		{`{"union_id":"on_s","user_id":"e33ggbyz","open_id":"ou_s"}`, `"ou_s"`},
		{`"tenant_key":"ten"},`, `"tenant_key":{}},`},
	} {
		data := strings.Replace(received, odd[0], odd[1], 1)
		got, err := feishu.ParseEvent([]byte(data))
		if data == received || err != nil || got.Message == nil || got.Message.ID != "om_1" || got.Message.Content == "" {
			t.Errorf("%s: %+v, %v", odd[1], got, err)
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":             "",
		"a list":              "[]",
		"a torn event":        received[:200],
		"two events":          received + received,
		"url_verification":    `{"challenge":"SECRET","token":"SECRET","type":"url_verification"}`,
		"no type":             `{"schema":"2.0","header":{"event_id":"e"},"event":{}}`,
		"encrypted":           `{"encrypt":"SECRET"}`,
		"no message":          `{"header":{"event_type":"im.message.receive_v1"},"event":{}}`,
		"no message_id":       strings.Replace(received, `"om_1"`, `""`, 1),
		"no chat_id":          strings.Replace(received, `"oc_1"`, `7`, 1),
		"an id with newlines": strings.Replace(received, `"om_1"`, `"om\nSECRET"`, 1),
		"a long id":           strings.Replace(received, `"om_1"`, `"`+strings.Repeat("x", relay.MaxID+1)+`"`, 1),
		"a sender with NUL":   strings.Replace(received, `"ou_s"`, `"\u0000"`, 1),
		"too deep":            strings.Repeat(`{"event":`, 40) + "1" + strings.Repeat("}", 40),
		"too large":           received + strings.Repeat(" ", 4<<20),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := feishu.ParseEvent([]byte(data))
			if !errors.Is(err, feishu.ErrNotEvent) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 200 {
				t.Errorf("the error quotes the event: %v", err)
			}
		})
	}
}

func TestParseEventKnowsAStreamingCard(t *testing.T) {
	for content, want := range map[string]bool{
		`{"title":"","elements":[],"user_dsl":"{\"schema\":\"2.0\",\"config\":{\"streaming_mode\":true},\"body\":{\"elements\":[]}}"}`:  true,
		`{"title":"","elements":[],"user_dsl":"{\"schema\":\"2.0\",\"config\":{\"streaming_mode\":false},\"body\":{\"elements\":[]}}"}`: false,
		`{"config":{"streaming_mode":true},"elements":[]}`:                    true,
		`{"config":{"streaming_mode":"true"},"elements":[]}`:                  false,
		`{"title":"t","elements":[[{"tag":"text","text":"streaming_mode"}]]}`: false,
		`broken`: false,
	} {
		quoted, _ := json.Marshal(content)
		data := strings.Replace(received, `"message_type":"text"`, `"message_type":"interactive"`, 1)
		data = strings.Replace(data, `"{\"text\":\"@_user_1 hello\"}"`, string(quoted), 1)
		got, err := feishu.ParseEvent([]byte(data))
		if err != nil || got.Streaming != want {
			t.Errorf("%s: streaming %v, %v", content, got.Streaming, err)
		}
	}
}

// sentAnswer is the answer of docs/feishu.md 5.
const sentAnswer = `{"code":0,"msg":"success","data":{"message_id":"om_1","root_id":"om_r","parent_id":"om_p","thread_id":"omt_1","msg_type":"text","create_time":"1615380573411","update_time":"1615380573411","deleted":false,"updated":false,"chat_id":"oc_1",
 "sender":{"id":"cli_a","id_type":"app_id","sender_type":"app","tenant_key":"ten"},
 "body":{"content":"{\"text\":\"@_user_1 test\"}"},
 "mentions":[{"key":"@_user_1","id":"ou_t","id_type":"open_id","name":"Tom","tenant_key":"ten"}]}}`

func sentMessage() feishu.Message {
	return feishu.Message{ID: "om_1", RootID: "om_r", ParentID: "om_p", ThreadID: "omt_1", ChatID: "oc_1", Type: "text", CreateTime: 1615380573411,
		Content: `{"text":"@_user_1 test"}`, Sender: feishu.Sender{Type: "app", AppID: "cli_a", Tenant: "ten"},
		Mentions: []feishu.Mention{{Key: "@_user_1", OpenID: "ou_t", Name: "Tom"}}}
}

func TestParseSent(t *testing.T) {
	got, err := feishu.ParseSent([]byte(sentAnswer))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, sentMessage()); diff != "" {
		t.Errorf("message (-got +want):\n%s", diff)
	}
	if !got.Sender.IsBot() {
		t.Error("the sender is no bot")
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(sentAnswer, `{"code":0,"msg":"success","data":`), "}")
	forwarded, err := feishu.ParseSent([]byte(`{"code":0,"data":{"message":` + inner + `,"invalid_message_id_list":[]}}`))
	if diff := cmp.Diff(forwarded, sentMessage()); err != nil || diff != "" {
		t.Errorf("merge_forward: %v (-got +want):\n%s", err, diff)
	}
	none, err := feishu.ParseSent([]byte(`{"code":0,"msg":"success","data":{}}`))
	if diff := cmp.Diff(none, feishu.Message{}); err != nil || diff != "" {
		t.Errorf("a card's PATCH: %v (-got +want):\n%s", err, diff)
	}
}

// A bot is named by its app_id where user_id_type is given (docs/feishu.md 4.1).
func TestParseSentFilesIDsUnderWhatTheyAre(t *testing.T) {
	for id, want := range map[string]feishu.Mention{
		`"id":"ou_1","id_type":"open_id"`:                  {OpenID: "ou_1"},
		`"id":"cli_1","id_type":"open_id"`:                 {AppID: "cli_1", Type: "bot"},
		`"id":"on_1","id_type":"union_id"`:                 {UnionID: "on_1"},
		`"id":"7f3","id_type":"user_id"`:                   {UserID: "7f3"},
		`"id":"7f3"`:                                       {UserID: "7f3"},
		`"id":"7f3","id_type":"app_id"`:                    {AppID: "7f3", Type: "bot"},
		`"id":{"open_id":"ou_1","union_id":"on_1"}`:        {OpenID: "ou_1", UnionID: "on_1"},
		`"id":"ou_1","name":"a\nb","mentioned_type":"bot"`: {OpenID: "ou_1", Name: "a b", Type: "bot"},
	} {
		m, err := feishu.ParseSent(fmt.Appendf(nil, `{"code":0,"data":{"message_id":"om","mentions":[{"key":"@_user_1",%s}]}}`, id))
		want.Key = "@_user_1"
		if diff := cmp.Diff(m.Mentions, []feishu.Mention{want}); err != nil || diff != "" {
			t.Errorf("%s: %v (-got +want):\n%s", id, err, diff)
		}
	}
}

func TestParseSentRefuses(t *testing.T) {
	_, err := feishu.ParseSent([]byte(`{"code":230002,"msg":"Bot/User can NOT be out of the chat.","data":{"message_id":"om"}}`))
	e, ok := errors.AsType[*feishu.CodeError](err)
	if !ok || e.Code != 230002 || !errors.Is(err, feishu.ErrNotAccepted) || !strings.Contains(err.Error(), "230002") || !strings.Contains(err.Error(), "out of the chat") {
		t.Errorf("got %v", err)
	}
	_, err = feishu.ParseSent([]byte(`{"code":1,"msg":"` + strings.Repeat("长", 300) + `\nx"}`))
	if err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
		t.Errorf("a long msg: %v", err)
	}
	for name, body := range map[string]string{
		"nothing": "", "HTML": "<html>SECRET", "no code": `{"msg":"SECRET"}`, "code of another type": `{"code":"0"}`,
		"a bad id": `{"code":0,"data":{"message_id":"\u0001"}}`,
	} {
		_, err := feishu.ParseSent([]byte(body))
		if _, coded := errors.AsType[*feishu.CodeError](err); !errors.Is(err, feishu.ErrNotAccepted) || coded || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseHistory(t *testing.T) {
	inner := strings.TrimSuffix(strings.TrimPrefix(sentAnswer, `{"code":0,"msg":"success","data":`), "}")
	got, err := feishu.ParseHistory([]byte(`{"code":0,"data":{"has_more":false,"items":[` + inner +
		`,{"message_id":"bad\u0000"},{"chat_id":"oc"},7,{"message_id":"om_2","msg_type":"text","deleted":true,"body":{"content":"This message was recalled"},"create_time":1615380573,` +
		`"sender":{"id":"ou_u","id_type":"open_id","sender_type":"user","sender_name":"Ann"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []feishu.Message{sentMessage(), {ID: "om_2", Type: "text", Deleted: true, Content: "This message was recalled", CreateTime: 1615380573000,
		Sender: feishu.Sender{Type: "user", OpenID: "ou_u", Name: "Ann"}}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("messages (-got +want):\n%s", diff)
	}
	if text := got[1].Text(); text != "This message was recalled" {
		t.Errorf("text %q", text)
	}
	if none, err := feishu.ParseHistory([]byte(`{"code":0,"data":{}}`)); err != nil || len(none) != 0 {
		t.Errorf("an empty chat: %v, %v", none, err)
	}
	if _, err := feishu.ParseHistory([]byte(`{"code":230027,"msg":"no"}`)); !errors.Is(err, feishu.ErrNotAccepted) {
		t.Errorf("no permission: %v", err)
	}
}
