package mailapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// A message of a bot to the channel "mailbox" is a direct message (docs/protocol.md
// 6.10).
func TestOutboundToTheMailbox(t *testing.T) {
	text := []mailbox.Part{{Type: "text", Text: "do <it>"}}
	for _, tt := range []struct {
		name, body string
		want       agent.Draft
	}{
		{"a text", `{"channel":"mailbox","chat_id":"coder","content":"do <it>"}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "coder", Type: "message", Priority: 3, Hops: 3, Content: mailbox.Content{Parts: text}}}},
		{"a task", `{"channel":"mailbox","chat_id":"coder","content":"do <it>","message_id":"m1","metadata":{"mailbox_type":"task","mailbox_ttl":2,"mailbox_priority":1,
			"mailbox_task":{"id":"t1","state":"pending","deadline":"2026-04-26T12:00:00Z"},"mailbox_callback":{"channel":"feishu","chat_id":"oc_x"},
			"mailbox_forward_of":"m0","correlation_id":"c1","reply_to":"m9","mailbox_parts":[{"type":"file","path":"/a"}],"other":7}}`,
			agent.Draft{ForwardOf: "m0", Envelope: mailbox.Envelope{ID: "m1", To: "coder", Type: "task", Priority: 1, Hops: 2, ReplyTo: "m9",
				Task: &mailbox.Task{ID: "t1", State: "pending", Deadline: time.Date(2026, 4, 26, 12, 0, 0, 0, time.UTC)}, Callback: &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"},
				Content: mailbox.Content{Parts: append(text[:1:1], mailbox.Part{Type: "file", Path: "/a"})}, Metadata: mailbox.Metadata{CorrelationID: "c1"}}}},
		{"parts alone", `{"channel":"mailbox","chat_id":"coder","metadata":{"mailbox_parts":[{"type":"file","path":"/a"}]}}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "coder", Type: "message", Priority: 3, Hops: 3, Content: mailbox.Content{Parts: []mailbox.Part{{Type: "file", Path: "/a"}}}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox()
			b.send = func(agent.Draft) (agent.Sent, error) {
				return agent.Sent{ID: "msg_1", TaskID: "t1", Note: "it waits"}, nil
			}
			f := withMailbox(b)
			w := call(t, f, "POST", "/v1/outbound", tt.body)
			want := `{"relay_msg_id":"msg_1","relayed":true,"task_id":"t1","note":"it waits"}`
			if w.Code != 202 || !cmp.Equal(apitest.Object(t, w.Body.Bytes()), apitest.Object(t, []byte(want))) {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if diff := cmp.Diff(b.reached, []any{tt.want}); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			if len(f.sent) > 0 {
				t.Error("it went to the group, too")
			}
		})
	}
}

func TestOutboundToTheMailboxThatIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ body, field string }{
		"no receiver":         {`{"channel":"mailbox","content":"hi"}`, "to"},
		"to a path":           {`{"channel":"mailbox","chat_id":"../x","content":"hi"}`, "to"},
		"of blanks":           {`{"channel":"mailbox","chat_id":"coder","content":" "}`, "content"},
		"invalid parts":       {`{"channel":"mailbox","chat_id":"coder","metadata":{"mailbox_parts":7}}`, "metadata.mailbox_parts"},
		"forwarding a number": {`{"channel":"mailbox","chat_id":"coder","content":"hi","metadata":{"mailbox_forward_of":7}}`, "mailbox_forward_of"},
		"of an unknown type":  {`{"channel":"mailbox","chat_id":"coder","content":"hi","metadata":{"mailbox_type":"gossip"}}`, "type"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox()
			w := call(t, withMailbox(b), "POST", "/v1/outbound", tt.body)
			apitest.WantError(t, w, 400, "INVALID_MESSAGE")
			if got := fieldOf(t, w); got != tt.field || len(b.reached) > 0 {
				t.Errorf("got field %q in %s, reached %v; want %q", got, w.Body, b.reached, tt.field)
			}
		})
	}
	body := `{"channel":"mailbox","chat_id":"coder","content":"hi"}`
	apitest.WantError(t, call(t, newFakes(), "POST", "/v1/outbound", body), 404, "mailbox_off")
	apitest.WantError(t, call(t, withMailbox(broken(mailbox.ErrFull)), "POST", "/v1/outbound", body), 507, "inbox_full")
}
