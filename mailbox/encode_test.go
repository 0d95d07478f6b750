package mailbox_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

func TestEncode(t *testing.T) {
	e := hello()
	e.Timestamp = time.Date(2026, 4, 26, 18, 0, 0, 123456789, time.FixedZone("", 8*3600))
	e.Trace, e.Content.Parts[0].Text = nil, `<at> & "x"`
	e.Metadata.Extra = map[string]json.RawMessage{"z": json.RawMessage(`1`), "a": json.RawMessage(`{ "k" : "<" }`), "ttl": json.RawMessage(`9`)}
	got, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"m1","from":"writer","to":"coder","timestamp":"2026-04-26T10:00:00.123Z","type":"message","priority":3,"ttl":3,"trace":[],` +
		`"content":{"parts":[{"type":"text","text":"<at> & \"x\""}]},"reply_to":null,` +
		`"metadata":{"correlationId":null,"requiresAck":false,"retryCount":0,"tags":[],"a":{"k":"<"},"z":1}}`
	if string(got) != want {
		t.Errorf("encoded as\n%s\nwant\n%s", got, want)
	}

	e.Content.Parts = []mailbox.Part{data(`{"half":`)}
	if _, err := mailbox.Encode(e); err == nil {
		t.Error("data that is no JSON is written")
	}
	e.Content.Parts = []mailbox.Part{data(`"` + strings.Repeat("x", mailbox.MaxEnvelope) + `"`)}
	_, err = mailbox.Encode(e)
	refused(t, err, "", "at most 1048576")
}

// validate reports why e would be refused by who gets it.
func validate(e mailbox.Envelope) error {
	_, err := mailbox.Signing{}.Seal(e)
	return err
}

func TestValidate(t *testing.T) {
	e := hello()
	if err := validate(e); err != nil {
		t.Error(err)
	}
	e.Priority = 0
	refused(t, validate(e), "priority", "at least 1")
	refused(t, validate(mailbox.Envelope{}), "id", "must not be empty")
}

// What is written is read as it was.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		again(t, randomEnvelope(r))
	}
}

func randomEnvelope(r *rand.Rand) mailbox.Envelope {
	maybe := func(f func()) {
		if r.IntN(2) == 0 {
			f()
		}
	}
	letters := []rune("aZ09-é字😀\\\"<>&\u2028\u00a0 {[")
	words := func(from, to int) string {
		var b strings.Builder
		for range from + r.IntN(to-from+1) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	name := func() mailbox.AgentID { return mailbox.AgentID(fmt.Sprintf("agent%d", r.IntN(50))) }
	values := []string{`null`, `true`, `1.50`, `1e400`, `"\u0000"`, `"\ud800"`, `[1,{"a":[]}]`, `{"taskId":"T","parts":[]}`, `{}`, `"<\/x>"`}
	value := func() json.RawMessage { return json.RawMessage(values[r.IntN(len(values))]) }
	at := func() time.Time { return time.UnixMilli(1 + r.Int64N(253402300799000)).UTC() }
	list := []mailbox.Type{"message", "question", "answer", "task", "task_update", "task_assign", "task_complete", "ack", "heartbeat", "error"}
	states := []mailbox.TaskState{"pending", "accepted", "working", "completed", "failed", "rejected"}

	e := mailbox.Envelope{
		ID: words(1, 40), From: name(), To: name(), Timestamp: at(), Type: list[r.IntN(len(list))],
		Priority: mailbox.Priority(1 + r.IntN(5)), Hops: r.IntN(65),
		Content: mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "x" + words(0, 50)}}},
	}
	e.Task = &mailbox.Task{ID: words(1, 20), State: states[r.IntN(6)]}
	maybe(func() { e.Task.Deadline = at() })
	for range r.IntN(5) {
		e.Trace = append(e.Trace, name())
	}
	maybe(func() { e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "data", Data: value()}) })
	maybe(func() { e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "file", Path: words(1, 30)}) })
	maybe(func() { e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: "text"}) })
	maybe(func() { e.Callback = &mailbox.Callback{Channel: words(1, 9), ChatID: words(1, 9)} })
	maybe(func() { e.ReplyTo = words(1, 30) })
	maybe(func() { e.Metadata.CorrelationID = words(1, 30) })
	maybe(func() { e.Metadata.TTL = new(r.IntN(100)) })
	maybe(func() { e.Metadata.RequiresAck, e.Metadata.RetryCount = true, r.IntN(5) })
	maybe(func() { e.Metadata.MaxRetries = new(r.IntN(10)) })
	maybe(func() { e.Metadata.Tags = []string{words(1, 9), words(1, 9)} })
	maybe(func() { e.Metadata.Goal = words(1, 30) })
	maybe(func() { e.Metadata.Extra = map[string]json.RawMessage{"": value(), words(1, 5) + "!": value()} })
	return e
}

// FuzzDecodeFields adds fields to a message, which gets further into it than
// changes of a whole one do.
func FuzzDecodeFields(f *testing.F) {
	f.Add("content", `{"parts":[{"type":"data","data":null},{"type":"x"}],"y":1}`, "task_update")
	f.Add("metadata", `{"correlation_id":"c","ttl":1e2,"":null}`, "message")
	f.Add("task", `{"taskId":"T","status":"Done","deadline":1777197600}`, "task")
	f.Add("timestamp", `"2026-04-26 10:00"`, "ack")
	f.Add("trace", `["a","b"]`, "pong")
	f.Fuzz(func(t *testing.T, name, value, typ string) {
		field, _ := json.Marshal(name)
		kind, _ := json.Marshal(typ)
		raw := letter(fmt.Sprintf(`,"type":%s,%s:%s`, kind, field, value))
		if e, err := mailbox.Decode([]byte(raw)); err == nil {
			again(t, e)
			mailbox.Render([]mailbox.Envelope{e})
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{ours, fileMail, protocolMail, letter(""), letter(`,"content":{"parts":[{"type":"data","data":null}],"x":1}`),
		letter(`,"type":"task_update","content":{"taskId":"T","status":"done"}`), letter(`,"timestamp":1777197600.25,"ttl":1.0`),
		letter(`,"metadata":{"requires_ack":true,"":[],"ttl":0}`), letter(`,"body":"x","content":{}`), `{"trace":[{}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		mailbox.Check(mailbox.MessageSchema, raw)
		mailbox.DecodeDraft(raw)
		e, err := mailbox.Decode(raw)
		if err != nil {
			if _, ok := err.(*mailbox.Error); !ok {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		again(t, e)
		mailbox.Render([]mailbox.Envelope{e})
		mailbox.Refusal(e)
		mailbox.Original(e)
	})
}

// A program that looks at mail of others, such as dead letters, sees what is over a bound, too.
func TestPlainJSONHasNoBounds(t *testing.T) {
	const odd = `{"correlationId":"a\nb","ttl":-1,"retryCount":5000,"tags":["","x"],"lang":"en"}`
	var m mailbox.Metadata
	err := json.Unmarshal([]byte(odd), &m)
	if err != nil || m.CorrelationID != "a\nb" || *m.TTL != -1 || m.RetryCount != 5000 || len(m.Tags) != 2 {
		t.Errorf("read as %+v, %v", m, err)
	}
}
