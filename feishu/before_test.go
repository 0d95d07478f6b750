package feishu

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func received(msgType, content string) string {
	return fmt.Sprintf(`{"schema":"2.0", "header":{"event_id":"e1","event_type":"im.message.receive_v1","n":1.50},
 "event":{"new":12345678901234567890,"message":{"message_id":"om_1","chat_id":"oc_1","message_type":%q,"content":%s,
 "mentions":[{"key":"@_user_1"}],"odd":1e3},"sender":{}}, "z":null}`, msgType, quoted(content))
}

func quoted(s string) string {
	return string(compact(s))
}

func TestWithBefore(t *testing.T) {
	for _, c := range []struct{ name, msgType, content, before, want string }{
		{"text", "text", `{"x":1.0,"text":"@_user_1 hello","y":"z"}`, "[note]\n", `{"x":1.0,"text":"[note]\n@_user_1 hello","y":"z"}`},
		{"nothing is escaped that need not be", "text", `{"text":"<b>&\u2028"}`, "你\u2028 ", "{\"text\":\"你\u2028 <b>&\u2028\"}"},
		{"no mention comes with it", "text", `{"text":"hi"}`, "<at user_id=\"all\"></at> @_user_1 @_all ", `{"text":"＜at user_id=\"all\">＜/at> ＠_user_1 ＠_all hi"}`},
		{"post", "post", `{"title":"T","content":[[{"tag":"text","text":"a","style":["bold"]}]]}`, "note\n",
			`{"title":"T","content":[[{"tag":"text","text":"note"}],[{"tag":"text","text":"a","style":["bold"]}]]}`},
		{"both forms of a post", "post", `{"content":[ ],"content_v2":[[{"tag":"md","text":"*a*"}]]}`, "note",
			`{"content":[[{"tag":"text","text":"note"}] ],"content_v2":[[{"tag":"text","text":"note"}],[{"tag":"md","text":"*a*"}]]}`},
		{"image", "image", `{"image_key":"img_1"}`, "note", ""},
		{"a text that is none", "text", `{"text":5}`, "note", ""},
		{"a text without text", "text", `{}`, "note", ""},
		{"a post without content", "post", `{"title":"T"}`, "note", ""},
		{"no JSON", "text", `hello`, "note", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := WithBefore([]byte(received(c.msgType, c.content)), c.before)
			if c.want == "" {
				if err == nil {
					t.Errorf("got %s", got)
				} else if strings.Contains(err.Error(), "hello") {
					t.Error("the error quotes the message")
				}
				return
			}
			if want := received(c.msgType, c.want); err != nil || string(got) != want {
				t.Errorf("got  %s %v\nwant %s", got, err, want)
			}
		})
	}
	for _, event := range []string{``, `[]`, `{}`, `{"event":{}}`, `{"event":{"message":{}}}`, `{"event":{"message":{"message_type":"text"}}}`, `{"event":5}`} {
		if got, err := WithBefore([]byte(event), "x"); err == nil {
			t.Errorf("%s became %s", event, got)
		}
	}
}

func FuzzWithBefore(f *testing.F) {
	f.Add([]byte(received("text", `{"text":"hi"}`)), "a\n")
	f.Add([]byte(received("post", `{"content":[[]]}`)), "")
	f.Fuzz(func(t *testing.T, event []byte, before string) {
		if out, err := WithBefore(event, before); err == nil && !json.Valid(out) {
			t.Errorf("%q became %q", event, out)
		}
	})
}
