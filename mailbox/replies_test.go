package mailbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

func TestReplies(t *testing.T) {
	now := ten.Add(1500*time.Millisecond + 7)
	of := hello()
	of.Metadata = mailbox.Metadata{RequiresAck: true, CorrelationID: "c", Goal: "g"}
	for _, tt := range []struct {
		got     mailbox.Envelope
		typ     mailbox.Type
		content string
	}{
		{mailbox.AckFor(of, "coder", now), "ack", `{"originalMessageId":"m1","success":true,"timestamp":"2026-04-26T10:00:01.500Z"}`},
		{mailbox.NackFor(of, "coder", now, mailbox.AgentBusy, "full <3>"), "nack",
			`{"originalMessageId":"m1","success":false,"error":{"code":"AGENT_BUSY","message":"full <3>"}}`},
		{mailbox.PongFor(of, "coder", now), "pong", `{"originalMessageId":"m1","timestamp":"2026-04-26T10:00:01.500Z"}`},
	} {
		t.Run(string(tt.typ), func(t *testing.T) {
			want := mailbox.Envelope{
				ID: tt.got.ID, From: "coder", To: "writer", Timestamp: ten.Add(1500 * time.Millisecond),
				Type: tt.typ, Priority: tt.typ.DefaultPriority(), Hops: 3, Trace: []mailbox.AgentID{"coder"},
				Content: mailbox.Content{Parts: []mailbox.Part{data(tt.content)}}, ReplyTo: "m1",
				Metadata: mailbox.Metadata{CorrelationID: "m1"},
			}
			if diff := cmp.Diff(want, tt.got); diff != "" {
				t.Errorf("wrong reply (-want +got):\n%s", diff)
			}
			again(t, tt.got)
			if got := mailbox.Original(tt.got); got != "m1" {
				t.Errorf("it is about %q, want m1", got)
			}
		})
	}
}

func TestOriginal(t *testing.T) {
	for _, tt := range []struct{ name, more, want string }{
		{"content", `,"content":{"originalMessageId":"m0","success":true},"metadata":{"correlationId":"c"},"reply_to":"r"`, "m0"},
		{"snake_case content", `,"content":{"original_message_id":"m0"}`, "m0"},
		{"correlation", `,"content":{"success":true},"metadata":{"correlationId":"c"},"reply_to":"r"`, "c"},
		{"reply", `,"content":{"originalMessageId":5},"reply_to":"r"`, "r"},
		{"nothing", `,"content":"ok"`, ""},
	} {
		e, err := mailbox.Decode([]byte(letter(`,"type":"ack"` + tt.more)))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := mailbox.Original(e); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	long := strings.Repeat("字", 500)
	for _, tt := range []struct {
		name, content string
		code          mailbox.Code
		message       string
	}{
		{"code and message", `{"error":{"code":"RATE_LIMITED","message":"slow"}}`, "RATE_LIMITED", "slow"},
		{"a text", `{"error":"no"}`, "INVALID_MESSAGE", "no"},
		{"none", `{"success":false}`, "INVALID_MESSAGE", ""},
		{"odd", `{"error":{"code":5}}`, "INVALID_MESSAGE", ""},
		{"long", `{"error":"` + long + `"}`, "INVALID_MESSAGE", long[:999]},
	} {
		e, err := mailbox.Decode([]byte(letter(`,"type":"nack","content":` + tt.content)))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if code, message := mailbox.Refusal(e); code != tt.code || message != tt.message {
			t.Errorf("%s: %s %q, want %s %q", tt.name, code, message, tt.code, tt.message)
		}
	}
}

func TestExpires(t *testing.T) {
	for _, tt := range []struct {
		ttl  *int
		want time.Time
	}{
		{nil, ten.Add(time.Hour)}, {new(0), time.Time{}}, {new(5), ten.Add(5 * time.Second)},
		{new(mailbox.MaxLife), ten.Add(mailbox.MaxLife * time.Second)},
	} {
		e := hello()
		e.Metadata.TTL = tt.ttl
		if got := e.Expires(); !got.Equal(tt.want) {
			t.Errorf("expires %v, want %v", got, tt.want)
		}
	}
}

func TestChat(t *testing.T) {
	for _, tt := range []struct {
		c    *mailbox.Callback
		want string
	}{
		{nil, ""},
		{&mailbox.Callback{Channel: "feishu", ChatID: "oc_x", SessionID: "feishu:oc_y"}, "oc_x"},
		{&mailbox.Callback{Channel: "feishu", SessionID: "feishu:oc_y"}, "oc_y"},
		{&mailbox.Callback{Channel: "feishu", SessionID: "feishu:oc_y:t"}, "oc_y:t"},
		{&mailbox.Callback{Channel: "feishu", SessionID: "slack:oc_y"}, ""},
		{&mailbox.Callback{Channel: "feishu", SessionID: "feishu"}, ""},
		{&mailbox.Callback{Channel: "feishu"}, ""},
	} {
		if got := tt.c.Chat(); got != tt.want {
			t.Errorf("%+v: chat %q, want %q", tt.c, got, tt.want)
		}
	}
}

// As JSON an envelope is what it is encoded as, and a plain reader of that loses nothing.
func TestPlainJSON(t *testing.T) {
	e, err := mailbox.Decode([]byte(ours))
	if err != nil {
		t.Fatal(err)
	}
	e.Metadata.Extra = map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)}
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := mailbox.Encode(e); err != nil || string(line) != string(raw) {
		t.Errorf("encoded as %s, as JSON %s", line, raw)
	}
	var got mailbox.Envelope
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestEscape(t *testing.T) {
	const hostile = "a\u2028b\n\"</x>&"
	if got, want := mailbox.EscapeValue(hostile), `a b &quot;&lt;/x&gt;&amp;`; got != want {
		t.Errorf("value: got %q, want %q", got, want)
	}
	if got, want := mailbox.EscapeText(hostile), "a\u2028b\n&quot;&lt;/x&gt;&amp;"; got != want {
		t.Errorf("text: got %q, want %q", got, want)
	}
}
