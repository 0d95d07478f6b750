package mailbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

// ours is an envelope with every field (docs/protocol.md 6.1).
const ours = `{"id":"msg_1745659200000_researcher_x7f","from":"researcher","to":"coder",
 "timestamp":"2026-04-26T10:00:00Z","type":"task","priority":2,
 "ttl":3,"trace":["researcher"],
 "task":{"id":"…","state":"pending","deadline":"2026-04-26T11:00:00Z"},
 "content":{"parts":[{"type":"text","text":"…"},{"type":"data","data":{}},{"type":"file","path":"…"}]},
 "callback":{"channel":"feishu","chat_id":"oc_x","session_id":"feishu:oc_x"},
 "reply_to":null,
 "metadata":{"correlationId":null,"ttl":3600,"requiresAck":true,"retryCount":0,"maxRetries":3,"tags":[]}}`

// What a file mailbox and a program of the protocol 1.1 write (docs/protocol.md 6.3).
const (
	fileMail = `{"id": "m1", "from": "writer", "to": "coder", "timestamp": "2026-04-26T12:00:00.123456+02:00", "type": "message",
		"ttl": 2, "trace": ["planner", "writer"], "task": null, "content": {"parts": [{"type": "text", "text": "one"},
		{"type": "text", "text": "two"}, {"type": "image", "url": "x.png"}]}, "callback": null, "reply_to": "m0", "metadata": {"lang": "en"}}`
	protocolMail = `{"id":"msg-1745661600000-ab12","from":"manager","to":"developer","type":"task_assign","timestamp":"2026-04-26T10:00:00.000Z",
		"content":{"taskId":"T-7","title":"Write it","deadline":"2026-04-26T11:00:00.000Z"},
		"priority":2,"metadata":{"correlationId":"c-1","ttl":0,"requiresAck":true,"retryCount":1,"maxRetries":3,"tags":["a","b"]}}`
)

var ten = time.Date(2026, 4, 26, 10, 0, 0, 0, time.UTC)

// hello is the shortest message, and what it is read as.
func hello() mailbox.Envelope {
	return mailbox.Envelope{
		ID: "m1", From: "writer", To: "coder", Timestamp: ten, Type: mailbox.TypeMessage, Priority: 3, Hops: 3,
		Trace:   []mailbox.AgentID{"writer"},
		Content: mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "hi"}}},
	}
}

// letter is hello with more fields, which come last and so count.
func letter(more string) string {
	return `{"id":"m1","from":"writer","to":"coder","timestamp":"2026-04-26T10:00:00Z","content":"hi"` + more + `}`
}

func data(text string) mailbox.Part {
	return mailbox.Part{Type: "data", Data: json.RawMessage(text)}
}

func TestDecode(t *testing.T) {
	type e = mailbox.Envelope
	parts := func(list ...mailbox.Part) mailbox.Content { return mailbox.Content{Parts: list} }
	for _, tt := range []struct {
		name, raw string
		want      func(*e)
	}{
		{"ours", ours, func(m *e) {
			m.ID, m.From, m.Trace = "msg_1745659200000_researcher_x7f", "researcher", []mailbox.AgentID{"researcher"}
			m.Type, m.Priority = mailbox.TypeTask, 2
			m.Task = &mailbox.Task{ID: "…", State: mailbox.Pending, Deadline: ten.Add(time.Hour)}
			m.Content = parts(mailbox.Part{Type: "text", Text: "…"}, data(`{}`), mailbox.Part{Type: "file", Path: "…"})
			m.Callback = &mailbox.Callback{Channel: "feishu", ChatID: "oc_x", SessionID: "feishu:oc_x"}
			m.Metadata = mailbox.Metadata{TTL: new(3600), RequiresAck: true, MaxRetries: new(3)}
		}},
		{"a file mailbox's", fileMail, func(m *e) {
			m.Timestamp = ten.Add(123 * time.Millisecond)
			m.Hops, m.Trace, m.ReplyTo = 2, []mailbox.AgentID{"planner", "writer"}, "m0"
			m.Content = parts(mailbox.Part{Type: "text", Text: "one"}, mailbox.Part{Type: "text", Text: "two"},
				data(`{"type":"image","url":"x.png"}`))
			m.Metadata.TTL, m.Metadata.Extra = new(0), map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)}
		}},
		{"hops without metadata", letter(`,"ttl":3`), func(m *e) { m.Metadata.TTL = new(0) }},
		{"a trace without metadata", letter(`,"trace":["writer"],"metadata":{}`), func(m *e) { m.Metadata.TTL = new(0) }},
		{"hops and the protocol's metadata", letter(`,"ttl":3,"metadata":{"requiresAck":false}`), nil},
		{"hops and a life", letter(`,"ttl":3,"metadata":{"ttl":60}`), func(m *e) { m.Metadata.TTL = new(60) }},
		{"the protocol's", protocolMail, func(m *e) {
			m.ID, m.From, m.To, m.Trace = "msg-1745661600000-ab12", "manager", "developer", []mailbox.AgentID{"manager"}
			m.Type, m.Priority = mailbox.TypeTaskAssign, 2
			m.Task = &mailbox.Task{ID: "T-7", State: mailbox.Pending, Deadline: ten.Add(time.Hour)}
			m.Content = parts(data(`{"taskId":"T-7","title":"Write it","deadline":"2026-04-26T11:00:00.000Z"}`))
			m.Metadata = mailbox.Metadata{CorrelationID: "c-1", TTL: new(0), RequiresAck: true, RetryCount: 1,
				MaxRetries: new(3), Tags: []string{"a", "b"}}
		}},
		{"the shortest", letter(""), nil},
		{"space around it", " \n" + letter("") + "\n", nil},
		{"unknown fields beside", letter(`,"version":9,"nested":{"id":"other"}`), nil},
		{"nulls are absent fields", letter(`,"type":null,"priority":null,"ttl":null,"trace":null,"task":null,"callback":null,"reply_to":null,"metadata":null`), nil},

		{"time without a zone", letter(`,"timestamp":"2026-04-26T10:00:00"`), nil},
		{"time with a space", letter(`,"timestamp":"2026-04-26 10:00:00.000"`), nil},
		{"time with a short zone", letter(`,"timestamp":"2026-04-26T18:00:00+0800"`), nil},
		{"time to the minute", letter(`,"timestamp":"2026-04-26T10:00"`), nil},
		{"time in milliseconds", letter(`,"timestamp":1777197600000`), nil},
		{"time in seconds", letter(`,"timestamp":1777197600`), nil},
		{"time in seconds with a fraction", letter(`,"timestamp":1777197600.25`), func(m *e) { m.Timestamp = ten.Add(250 * time.Millisecond) }},
		{"time in seconds as a text", letter(`,"timestamp":"1777197600"`), nil},

		{"priority by type", letter(`,"type":"error"`), func(m *e) { m.Type, m.Priority = mailbox.TypeError, 1 }},
		{"a whole number with a point", letter(`,"priority":4.0,"ttl":0`), func(m *e) {
			m.Priority, m.Hops, m.Metadata.TTL = 4, 0, new(0)
		}},
		{"an empty trace stays empty", letter(`,"trace":[]`), func(m *e) { m.Trace, m.Metadata.TTL = nil, new(0) }},
		{"camelCase", letter(`,"replyTo":"m0","callback":{"channel":"feishu","chatId":"oc_x","sessionId":"s"}`), func(m *e) {
			m.ReplyTo, m.Callback = "m0", &mailbox.Callback{Channel: "feishu", ChatID: "oc_x", SessionID: "s"}
		}},
		{"snake_case metadata", letter(`,"metadata":{"correlation_id":"c","requires_ack":true,"retry_count":2,"max_retries":1,"goalId":"g"}`), func(m *e) {
			m.Metadata = mailbox.Metadata{CorrelationID: "c", RequiresAck: true, RetryCount: 2, MaxRetries: new(1), Goal: "g"}
		}},
		{"100 fields of others", letter(`,"metadata":{` + manyFields(100)[1:] + `}`), func(m *e) {
			m.Metadata.Extra = map[string]json.RawMessage{}
			for i := range 100 {
				m.Metadata.Extra[fmt.Sprintf("x%d", i)] = json.RawMessage("1")
			}
		}},
		{"correlation at the top", letter(`,"correlation_id":"c"`), func(m *e) { m.Metadata.CorrelationID = "c" }},
		{"correlation in both places", letter(`,"correlationId":"top","metadata":{"correlationId":"c"}`), func(m *e) { m.Metadata.CorrelationID = "c" }},

		{"content as body", letter(`,"content":{"body":"yo"}`), func(m *e) { m.Content.Parts[0].Text = "yo" }},
		{"content as text", letter(`,"content":{"text":"yo"}`), func(m *e) { m.Content.Parts[0].Text = "yo" }},
		{"body instead of content", letter(`,"content":null,"body":"yo"`), func(m *e) { m.Content.Parts[0].Text = "yo" }},
		{"content as another object", letter(`,"content":{"body":"yo", "n": 1.50}`), func(m *e) { m.Content = parts(data(`{"body":"yo","n":1.50}`)) }},
		{"fields beside the parts", letter(`,"content":{"parts":[{"type":"text","text":"hi"}],"summary":"s"}`), func(m *e) {
			m.Content = parts(mailbox.Part{Type: "text", Text: "hi"}, data(`{"summary":"s"}`))
		}},
		{"data that is null", letter(`,"content":{"parts":[{"type":"data","data":null}]}`), func(m *e) { m.Content = parts(data(`null`)) }},
		{"a huge number in data", letter(`,"content":{"n":1e999999999}`), func(m *e) { m.Content = parts(data(`{"n":1e999999999}`)) }},
		{"no content where none is needed", letter(`,"content":null,"type":"heartbeat"`), func(m *e) {
			m.Type, m.Priority, m.Content, m.Metadata.RequiresAck = mailbox.TypeHeartbeat, 5, mailbox.Content{}, true
		}},
		{"a heartbeat that wants no answer", letter(`,"type":"heartbeat","metadata":{"requires_ack":false}`), func(m *e) {
			m.Type, m.Priority = mailbox.TypeHeartbeat, 5
		}},
		{"empty content where none is needed", letter(`,"content":{},"type":"ping"`), func(m *e) {
			m.Type, m.Priority, m.Content = mailbox.TypePing, 5, mailbox.Content{}
		}},

		{"a task's update", letter(`,"type":"task_update","content":{"taskId":"T","status":"in_progress","progress":40}`), func(m *e) {
			m.Type, m.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: "T", State: mailbox.Working}
			m.Content = parts(data(`{"taskId":"T","status":"in_progress","progress":40}`))
		}},
		{"an update with a status of its own", letter(`,"type":"task_update","content":{"task_id":"T","state":"blocked"}`), func(m *e) {
			m.Type, m.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: "T"}
			m.Content = parts(data(`{"task_id":"T","state":"blocked"}`))
		}},
		{"a task completed", letter(`,"type":"task_complete","content":{"taskId":"T","status":"ok","result":{}}`), func(m *e) {
			m.Type, m.Priority, m.Task = mailbox.TypeTaskComplete, 2, &mailbox.Task{ID: "T", State: mailbox.Completed}
			m.Content = parts(data(`{"taskId":"T","status":"ok","result":{}}`))
		}},
		{"a task failed", letter(`,"type":"task_failed","content":{"taskId":"T","error":"no"}`), func(m *e) {
			m.Type, m.Priority, m.Task = mailbox.TypeTaskFailed, 2, &mailbox.Task{ID: "T", State: mailbox.Failed}
			m.Content = parts(data(`{"taskId":"T","error":"no"}`))
		}},
		{"a task beside the content counts", letter(`,"type":"task_update","task":{"taskId":"A","status":"DONE"},"content":{"taskId":"B"}`), func(m *e) {
			m.Type, m.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: "A", State: mailbox.Completed}
			m.Content = parts(data(`{"taskId":"B"}`))
		}},
		{"a task without a deadline", letter(`,"type":"task","task":{"id":"A","deadline":""}`), func(m *e) {
			m.Type, m.Priority, m.Task = mailbox.TypeTask, 2, &mailbox.Task{ID: "A", State: mailbox.Pending}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := hello()
			if tt.want != nil {
				tt.want(&want)
			}
			got, err := mailbox.Decode([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, sameJSON); diff != "" {
				t.Errorf("wrong envelope (-want +got):\n%s", diff)
			}
			again(t, got)
		})
	}
}

// sameJSON compares data as the value that it is, with numbers as they are written.
var sameJSON = cmp.Transformer("value", func(raw json.RawMessage) any { return valueOf(raw) })

func valueOf(raw []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return string(raw)
	}
	return v
}

// again fails where e is not the same after a way through Encode and Decode.
func again(t testing.TB, e mailbox.Envelope) {
	t.Helper()
	line, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal("encode:", err)
	}
	if err := mailbox.Check(mailbox.EnvelopeSchema, line); err != nil {
		t.Errorf("what we write is not as our schema says: %v\n%s", err, line)
	}
	got, err := mailbox.Decode(line)
	if err != nil {
		t.Fatalf("decode what we wrote: %v\n%s", err, line)
	}
	if diff := cmp.Diff(e, got, sameJSON); diff != "" {
		t.Errorf("not the same after a way through Encode and Decode (-before +after):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for _, tt := range []struct{ name, raw, field, says string }{
		{"nothing", ``, "", "want one JSON object"},
		{"a list", `[]`, "", "want one JSON object"},
		{"half an object", `{"id":"m1"`, "", "want one JSON object"},
		{"two objects", letter("") + letter(""), "", "want one JSON object"},
		{"no UTF-8", letter(`,"x":"` + "\xff" + `"`), "", "UTF-8"},
		{"too deep", letter(`,"x":` + deep), "", "64 deep"},
		{"over a MiB", letter(`,"x":"` + strings.Repeat("x", 1<<20) + `"`), "", "at most 1048576"},
		{"no id", `{"from":"writer","to":"coder","timestamp":1,"content":"hi"}`, "id", "required"},
		{"long id", letter(`,"id":"` + strings.Repeat("i", 201) + `"`), "id", "at most 200"},
		{"long id of wide characters", letter(`,"id":"` + strings.Repeat("字", 67) + `"`), "id", "has 201 bytes, at most 200"},
		{"id with a line break", letter(`,"id":"a\nb"`), "id", "control characters"},
		{"id as a number", letter(`,"id":5`), "id", "want a text"},
		{"no sender", letter(`,"from":null`), "from", "required"},
		{"odd sender", letter(`,"from":"../x"`), "from", "has none of"},
		{"odd receiver", letter(`,"to":"self"`), "to", "stands for the agent itself"},
		{"everybody", letter(`,"to":"*"`), "to", "has none of"},
		{"no time", letter(`,"timestamp":null`), "timestamp", "required"},
		{"odd time", letter(`,"timestamp":"tomorrow"`), "timestamp", "want a time such as 2026-04-26T10:00:00.000Z"},
		{"time before there was any", letter(`,"timestamp":-5`), "timestamp", "want a time"},
		{"time with a huge exponent", letter(`,"timestamp":1e999999999`), "timestamp", "want a time"},
		{"leap second", letter(`,"timestamp":"2016-12-31T23:59:60Z"`), "timestamp", "want a time"},
		{"unknown type", letter(`,"type":"shout"`), "type", "want one of message, question, answer"},
		{"type as a number", letter(`,"type":5`), "type", "want one of message"},
		{"priority", letter(`,"priority":6`), "priority", "want at most 5"},
		{"priority as a text", letter(`,"priority":"high"`), "priority", "want a whole number"},
		{"priority with a huge exponent", letter(`,"priority":1e999999999`), "priority", "want a whole number"},
		{"a number too large to compute with", letter(`,"ttl":1e300`), "ttl", "want a whole number"},
		{"half a hop", letter(`,"ttl":2.5`), "ttl", "want a whole number"},
		{"hops", letter(`,"ttl":-1`), "ttl", "want at least 0"},
		{"trace", letter(`,"trace":["a"` + strings.Repeat(`,"a"`, 64) + `]`), "trace", "want at most 64 entries"},
		{"trace of numbers", letter(`,"trace":["a",5]`), "trace.1", "want a text"},
		{"no task", letter(`,"type":"task"`), "task", "required"},
		{"task without an id", letter(`,"type":"task","task":{}`), "task.id", "required"},
		{"odd deadline", letter(`,"task":{"id":"T","deadline":"soon"}`), "task.deadline", "want a time"},
		{"odd state", letter(`,"task":{"id":"T","state":"begun"}`), "task.state", "want one of pending, accepted, working, completed, failed, rejected"},
		{"odd state", letter(`,"task":{"taskId":"T","status":"begun"}`), "task.state", "want one of pending"},
		{"task that is none", letter(`,"task":7`), "task", "want an object"},
		{"no task in the content", letter(`,"type":"task_assign","content":{"title":"x"}`), "task", "required"},
		{"odd deadline in the content", letter(`,"type":"task_assign","content":{"taskId":"T","deadline":"soon"}`), "task.deadline", "want a time"},
		{"odd task id in the content", letter(`,"type":"task_assign","content":{"taskId":5}`), "task.id", "want a text"},
		{"no content", letter(`,"content":null`), "content", "required"},
		{"no text", letter(`,"content":"  \n"`), "content", "empty"},
		{"no parts", letter(`,"content":{"parts":[]}`), "content", "empty"},
		{"empty content", letter(`,"content":{}`), "content", "empty"},
		{"content as a number", letter(`,"content":5`), "content", "want an object"},
		{"parts that are none", letter(`,"content":{"parts":"x"}`), "content.parts", "want a list"},
		{"part without a type", letter(`,"content":{"parts":[{"text":"x"}]}`), "content.parts.0.type", "required"},
		{"type of a part", letter(`,"content":{"parts":[{"type":7}]}`), "content.parts.0.type", "want one of text, data, file"},
		{"part that is none", letter(`,"content":{"parts":["x"]}`), "content.parts.0", "want an object"},
		{"text part without a text", letter(`,"content":{"parts":[{"type":"text"}]}`), "content.parts.0.text", "required"},
		{"data part without data", letter(`,"content":{"parts":[{"type":"data"}]}`), "content.parts.0.data", "required"},
		{"file part without a path", letter(`,"content":{"parts":[{"type":"file","path":""}]}`), "content.parts.0.path", "must not be empty"},
		{"101 parts", letter(`,"content":{"parts":[{"type":"text","text":"x"}` + strings.Repeat(`,{"type":"text","text":"x"}`, 100) + `]}`), "content.parts", "want at most 100 entries"},
		{"the third part of twelve", letter(`,"content":{"parts":[` + strings.Repeat(`{"type":"text","text":"x"},`, 2) + `{"type":3}` + strings.Repeat(`,{"type":"text"}`, 9) + `]}`), "content.parts.2.type", "want one of"},
		{"callback without a channel", letter(`,"callback":{"chat_id":"oc_x"}`), "callback.channel", "required"},
		{"chat", letter(`,"callback":{"channel":"feishu","chatId":5}`), "callback.chat_id", "want a text"},
		{"reply", letter(`,"replyTo":5`), "reply_to", "want a text"},
		{"metadata that is none", letter(`,"metadata":[]`), "metadata", "want an object"},
		{"life", letter(`,"metadata":{"ttl":-1}`), "metadata.ttl", "want at least 0"},
		{"acknowledgement", letter(`,"metadata":{"requires_ack":"yes"}`), "metadata.requiresAck", "want true or false"},
		{"101 fields of others", letter(`,"metadata":{"x":1` + manyFields(100) + `}`), "metadata", "want at most 100 fields besides ours"},
		{"51 tags", letter(`,"metadata":{"tags":["a"` + strings.Repeat(`,"a"`, 50) + `]}`), "metadata.tags", "want at most 50 entries"},
		{"correlation", letter(`,"correlation_id":5`), "metadata.correlationId", "want a text"},
		{"the first of several", letter(`,"metadata":5,"priority":9,"content":5,"from":"a b","callback":5`), "from", "spaces"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := mailbox.Decode([]byte(tt.raw))
			refused(t, err, tt.field, tt.says)
		})
	}
}

// manyFields is n fields with a comma before each.
func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	return b.String()
}

// A message that is nothing but mistakes costs little more than one of the same
// size that holds data.
func TestDecodeBoundsMistakes(t *testing.T) {
	many := strings.Repeat(",1", 100_000)
	for field, raw := range map[string]string{
		"content.parts": letter(`,"content":{"parts":[1` + many + `]}`),
		"trace":         letter(`,"trace":[1` + many + `]`),
		"metadata.tags": letter(`,"metadata":{"tags":[1` + many + `]}`),
		"metadata":      letter(`,"metadata":{"x":1` + manyFields(20_000) + `}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := mailbox.Decode([]byte(raw))
		runtime.ReadMemStats(&after)
		refused(t, err, field, "want at most")
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 40 {
			t.Errorf("%s: %d MiB for a message of %d bytes", field, used, len(raw))
		}
	}
}

// refused fails where err is not the refusal of a field with these words.
func refused(t *testing.T, err error, field, says string) {
	t.Helper()
	e, ok := err.(*mailbox.Error)
	if !ok || e.Code != mailbox.InvalidMessage {
		t.Fatalf("error %#v, want a refusal with INVALID_MESSAGE", err)
	}
	if e.Field != field || !strings.Contains(e.Message, says) {
		t.Errorf("refused: %v\nwant field %q and %q", e, field, says)
	}
}

func TestDecodeKeepsWhatANackNeeds(t *testing.T) {
	got, err := mailbox.Decode([]byte(letter(`,"type":"question","priority":9,"metadata":{"requires_ack":true}`)))
	if err == nil {
		t.Fatal("priority 9 is read")
	}
	want := mailbox.Envelope{ID: "m1", From: "writer", To: "coder", Type: mailbox.TypeQuestion, Metadata: mailbox.Metadata{RequiresAck: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong head (-want +got):\n%s", diff)
	}
	got, _ = mailbox.Decode([]byte(letter(`,"id":"a\nb","from":"../../etc","to":7,"type":"shout","metadata":5`)))
	if diff := cmp.Diff(mailbox.Envelope{}, got); diff != "" {
		t.Errorf("the head holds what is of no use (-want +got):\n%s", diff)
	}
}

func TestBodyLimit(t *testing.T) {
	whole := strings.Repeat("x", mailbox.MaxBody)
	if _, err := mailbox.Decode([]byte(letter(`,"content":"` + whole + `"`))); err != nil {
		t.Errorf("65,536 bytes are refused: %v", err)
	}
	_, err := mailbox.Decode([]byte(letter(`,"content":"` + whole + `x"`)))
	refused(t, err, "content.parts.0.text", "65536")
	_, err = mailbox.Decode([]byte(letter(`,"content":"` + strings.Repeat("字", mailbox.MaxBody/3+1) + `"`)))
	refused(t, err, "content.parts.0.text", "has 65538 bytes, at most 65536")
	_, err = mailbox.Decode(fmt.Appendf(nil, letter(`,"content":{"parts":[{"type":"text","text":"%s"},{"type":"text","text":"y"}]}`), whole))
	refused(t, err, "content", "has 65537 bytes, at most 65536")
}

// Ours may be longer than what was read, by what that left out: nothing is read
// that cannot be written.
func TestDecodeNearTheLimit(t *testing.T) {
	frame := len(letter(`,"content":{"x":""}`))
	for _, tt := range []struct {
		short int // bytes below the limit
		read  bool
	}{{20, false}, {130, false}, {400, true}} {
		raw := letter(`,"content":{"x":"` + strings.Repeat("x", mailbox.MaxEnvelope-frame-tt.short) + `"}`)
		e, err := mailbox.Decode([]byte(raw))
		if !tt.read {
			refused(t, err, "", "at most 1048576")
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes below the limit: %v", tt.short, err)
		}
		if _, err := mailbox.Encode(e); err != nil {
			t.Errorf("%d bytes below the limit are read and cannot be written: %v", tt.short, err)
		}
	}
}

func TestDecodeDraft(t *testing.T) {
	got, err := mailbox.DecodeDraft([]byte(`{"to":"coder","content":"hi","forward_of":"m0"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := hello()
	want.ID, want.From, want.Trace, want.Timestamp = "", "", nil, time.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong draft (-want +got):\n%s", diff)
	}
	_, err = mailbox.DecodeDraft([]byte(`{"content":"hi"}`))
	refused(t, err, "to", "required")
	_, err = mailbox.DecodeDraft([]byte(`{"to":"coder"}`))
	refused(t, err, "content", "required")
	_, err = mailbox.DecodeDraft([]byte(`{"to":"coder","content":"hi","forward_of":5}`))
	refused(t, err, "forward_of", "want a text")
	if _, err = mailbox.DecodeDraft([]byte(`{"to":"coder","type":"ping"}`)); err != nil {
		t.Errorf("a ping needs no content: %v", err)
	}
}
