package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
)

// FuzzPosts: whatever is posted is taken, and then is as it should be, or is
// refused in the API's form.
func FuzzPosts(f *testing.F) {
	for _, body := range []string{
		`{"chat_id":"oc_x","content":"hi","sender_agent_name":"b","ts":"1","metadata":{"a":[{}]},"mentions":[{"key":"@_user_1"}]}`,
		`{"chat_id":"oc_x","content":"hi","role":"user","ts":1e400}`, `null`, `[]`, `{"chat_id":null}`, "{\"chat_id\":\"\xff\"}", `{"CHAT_ID":"a","chat_id":"b\u0007","content":" "}`,
	} {
		for path := range 3 {
			f.Add(uint8(path), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		behind := newFakes()
		path := []string{"/v1/outbound", "/v1/inbound", "/v1/decide"}[route%3]
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(string(body)))
		httpapi.New(behind.Options).ServeHTTP(w, r)
		var answer struct {
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%d %q: %v", w.Code, w.Body, err)
		}
		reached := len(behind.sent) + len(behind.heard) + len(behind.decided)
		switch w.Code {
		case 200, 202:
			if answer.Error != nil || reached != 1 {
				t.Errorf("accepted: %s, reached %d", w.Body, reached)
			}
		case 400:
			if answer.Error == nil || answer.Error.Message == "" || reached != 0 {
				t.Errorf("refused: %s, reached %d", w.Body, reached)
			}
		default:
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		for _, out := range behind.sent {
			if out.ChatID == "" || strings.TrimSpace(out.Content) == "" || relay.CheckID(string(out.ChatID)) != nil {
				t.Errorf("let through: %+v", out)
			}
		}
	})
}
