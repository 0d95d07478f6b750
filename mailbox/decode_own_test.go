package mailbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

func TestDraftsAreHeldToMore(t *testing.T) {
	const to = `{"to":"coder","content":"hi"`
	for _, tt := range []struct{ raw, field, says string }{
		{to + `,"calback":{"channel":"feishu","chat_id":"oc_x"}}`, "calback", "unknown field; did you mean callback?"},
		{to + `,"tpye":"task"}`, "tpye", "type"}, {to + `,"Task":{"id":"t"}}`, "Task", "task"},
		{to + `,"replyto":"m1"}`, "replyto", "did you mean replyTo?"}, {to + `,"forward_off":"m1"}`, "forward_off", "forward_of"},
		{to + `,"callback":{"channel":"feishu"}}`, "callback", "want one of chat_id, session_id"},
		{to + `,"callback":{"channel":"feishu","chatId":null}}`, "callback", "want one of chat_id, session_id"},
		{to + `,"callback":{"chat_id":"oc_x"}}`, "callback.channel", "required"},
		{`{"to":"coder","text":" "}`, "content", "empty"}, {`{"to":"coder","text":5}`, "content", "a text"},
		{`{"to":"coder","text":"` + strings.Repeat("字", 21_846) + `"}`, "content.parts.0.text", "has 65538 bytes, at most 65536"},
		{`{"to":"coder","type":"task","task":{"id":"t"},"content":" \n"}`, "content", "empty"},
		{`{"to":"coder","type":"task","task":{"id":"t"},"content":{}}`, "content", "empty"},
	} {
		_, err := mailbox.DecodeDraft([]byte(tt.raw))
		refused(t, err, tt.field, tt.says)
	}
	for _, raw := range []string{
		`{"to":"coder","text":"hi"}`, `{"to":"coder","text":"hi","content":null}`,
		to + `,"context":{},"tags":["a"],"thread":1,"name":"x","body":null,"ttl":1,"trace":["a"],"test":true}`,
		to + `,"callback":{"channel":"feishu","sessionId":"feishu:oc_x"},"replyTo":"m1","forwardOf":"m2","correlationId":"c"}`,
	} {
		if e, err := mailbox.DecodeDraft([]byte(raw)); err != nil || e.Text() != "hi" {
			t.Errorf("%s: got %q, %v", raw, e.Text(), err)
		}
	}
	// What others send is read all the same, as far as it can be.
	for _, rest := range []string{`,"calback":1`, `,"callback":{"channel":"feishu"}`, `,"type":"task","task":{"id":"t"},"content":" "`} {
		if _, err := mailbox.Decode([]byte(letter(rest))); err != nil {
			t.Errorf("%s: %v", rest, err)
		}
	}
	_, err := mailbox.Decode([]byte(letter(`,"content":null,"text":"hi"`)))
	refused(t, err, "content", "required")
}

// Bounds are of bytes, whatever is written.
func TestBoundsCountBytes(t *testing.T) {
	wide := func(n int) string { return strings.Repeat("字", n) }
	for _, tt := range []struct{ raw, field, says string }{
		{letter(`,"content":"` + strings.Repeat("x", 70_000) + `"`), "content.parts.0.text", "has 70000 bytes, at most 65536"},
		{letter(`,"content":{"parts":[{"type":"text","text":"` + wide(21_846) + `"}]}`), "content.parts.0.text", "has 65538 bytes, at most 65536"},
		{letter(`,"content":{"parts":[{"type":"file","path":"` + wide(1366) + `"}]}`), "content.parts.0.path", "has 4098 bytes, at most 4096"},
		{letter(`,"metadata":{"tags":["` + wide(67) + `"]}`), "metadata.tags.0", "has 201 bytes, at most 200"},
	} {
		_, err := mailbox.Decode([]byte(tt.raw))
		refused(t, err, tt.field, tt.says)
	}
}

func TestDecodeLine(t *testing.T) {
	now := ten.Add(time.Hour)
	for _, tt := range []struct{ raw, to string }{
		{`{"type":"handshake.register"}`, "writer"}, {`{"type":"ping","to":null}`, "writer"}, {`{"type":"ping","to":"coder"}`, "coder"},
		{`{"type":"message","to":"coder","content":"hi","id":null,"from":null,"timestamp":null}`, "coder"},
	} {
		e, err := mailbox.DecodeLine([]byte(tt.raw), "writer", now)
		if err != nil || e.ID == "" || e.From != "writer" || string(e.To) != tt.to || !e.Timestamp.Equal(now) {
			t.Errorf("%s: got %+v, %v", tt.raw, e, err)
		}
	}
	e, err := mailbox.DecodeLine([]byte(letter("")), "coder", now)
	if diff := cmp.Diff(hello(), e); err != nil || diff != "" {
		t.Errorf("what is there is changed: %v (-want +got):\n%s", err, diff)
	}
	e, err = mailbox.DecodeLine([]byte(`{"type":"message","content":"hi"}`), "writer", now)
	if refused(t, err, "to", "required"); e.ID != "" {
		t.Errorf("it is refused as %q, which its sender did not say", e.ID)
	}
	if e, _ = mailbox.DecodeLine([]byte(`{"id":"m1","type":"message"}`), "writer", now); e.ID != "m1" {
		t.Errorf("it is refused as %q", e.ID)
	}
}
