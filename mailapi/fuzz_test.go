package mailapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// FuzzMailPosts: whatever is posted to the mailbox is taken, and then others
// will take it too, or is refused with a code and a message.
func FuzzMailPosts(f *testing.F) {
	for _, body := range []string{
		`{"to":"agent_b","content":{"parts":[{"type":"text","text":"<hi>"}]},"forward_of":"m","metadata":{"ttl":5}}`,
		`{"to":"agent_b","type":"task_assign","content":{"taskId":"t","deadline":"2026-04-26T11:00:00Z","x":[{}]},"priority":1}`,
		`{"to":"agent_b","text":"do","parts":[{"type":"data","data":null},{"type":"file","path":"/a"}],"deadline":1777200000,"task_id":"t/1","callback":{"channel":"feishu","chat_id":"oc_x"}}`, `{"to":"agent_b","text":"hi","calback":{}}`, `{"to":"agent_b","type":"task","content":{"x":[]}}`,
		`{"to":"agent_b","content":"do","deadline":null,"priority":2}`, `{"state":"completed","text":"done","parts":[{"type":"text","text":"x"}],"from":"agent_b"}`,
		`{"message":"hi","correlation_id":"c"}`, `null`, `[]`, ``, `{"to":null}`, "{\"message\":\"\xff\"}", `{"TO":"a","to":"b\u0007","Content":" ","content":1e400}`,
	} {
		for path := range 4 {
			f.Add(uint8(path), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		b := newBox()
		path := []string{"/v1/mailbox/messages", "/v1/mailbox/tasks", "/v1/mailbox/tasks/t1", "/v1/peers/agent_b/messages"}[route%4]
		w := httptest.NewRecorder()
		withMailbox(b).handler().ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(string(body))))
		var answer struct {
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%d %q: %v", w.Code, w.Body, err)
		}
		switch w.Code {
		case 200, 202:
			if answer.Error != nil || len(b.reached) != 1 {
				t.Fatalf("taken: %s, reached %v", w.Body, b.reached)
			}
			wantSendable(t, b.reached[0])
		case 400, 413:
			if answer.Error == nil || answer.Error.Code == "" || answer.Error.Message == "" || len(b.reached) != 0 {
				t.Errorf("refused: %s, reached %v", w.Body, b.reached)
			}
		default:
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
}

// wantSendable checks that what reached the mailbox is taken by who gets it, once
// the mailbox has filled in what is its to know.
func wantSendable(t *testing.T, reached any) {
	t.Helper()
	e := letter("msg_1")
	switch r := reached.(type) {
	case agent.Draft:
		e = r.Envelope
		e.ID, e.From, e.Timestamp, e.Trace = "msg_1", "agent_a", noon, []mailbox.AgentID{"agent_a"}
		if e.Task == nil || e.Task.ID == "" { // made up for a new one; for a step it is the one that is open
			e.Task = &mailbox.Task{ID: "t1"}
		}
	case agent.TaskUpdate:
		e.Type, e.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: r.TaskID, State: r.State}
		e.Content.Parts = withText(r.Text, r.Parts)
	default:
		return
	}
	if _, err := (mailbox.Signing{}).Seal(e); err != nil {
		t.Errorf("let through %+v: %v", reached, err)
	}
}

func withText(text string, others []mailbox.Part) []mailbox.Part {
	if text == "" {
		return others
	}
	return append([]mailbox.Part{{Type: "text", Text: text}}, others...)
}
