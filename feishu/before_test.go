package feishu_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
)

func eventWith(msgType, content string) string {
	quoted, _ := json.Marshal(content)
	return fmt.Sprintf(`{"schema":"2.0", "header":{"event_id":"e1","event_type":"im.message.receive_v1","n":1.50},
 "event":{"new":12345678901234567890,"message":{"message_id":"om_1","chat_id":"oc_1","message_type":%q,"content":%s,
 "mentions":[{"key":"@_user_1"}],"odd":1e3},"sender":{}}, "z":null}`, msgType, quoted)
}

// read is what an event says, with its numbers as they are written and its content parsed.
func read(t *testing.T, event string) (all map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(event))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatalf("%v: %s", err, event)
	}
	m := all["event"].(map[string]any)["message"].(map[string]any)
	var content any
	if err := json.Unmarshal([]byte(m["content"].(string)), &content); err != nil {
		t.Fatal(err)
	}
	m["content"] = content
	return all
}

func TestWithBefore(t *testing.T) {
	for _, c := range []struct{ name, msgType, content, before, want string }{
		{"text", "text", `{"x":1.0,"text":"@_user_1 hello","y":"z"}`, "[note]\n", `{"x":1.0,"text":"[note]\n@_user_1 hello","y":"z"}`},
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
			got, err := feishu.WithBefore([]byte(eventWith(c.msgType, c.content)), c.before)
			if c.want == "" {
				if err == nil || strings.Contains(err.Error(), "hello") {
					t.Errorf("got %s, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(read(t, string(got)), read(t, eventWith(c.msgType, c.want))); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
	for _, event := range []string{``, `[]`, `{}`, `{"event":{}}`, `{"event":{"message":{}}}`, `{"event":{"message":{"message_type":"text"}}}`, `{"event":5}`} {
		if got, err := feishu.WithBefore([]byte(event), "x"); err == nil {
			t.Errorf("%s became %s", event, got)
		}
	}
}

func FuzzWithBefore(f *testing.F) {
	f.Add([]byte(eventWith("text", `{"text":"hi"}`)), "a\n")
	f.Add([]byte(eventWith("post", `{"content":[[]]}`)), "")
	f.Fuzz(func(t *testing.T, event []byte, before string) {
		if out, err := feishu.WithBefore(event, before); err == nil && !json.Valid(out) {
			t.Errorf("%q became %q", event, out)
		}
	})
}
