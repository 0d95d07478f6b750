package mailbox_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

func TestSchemas(t *testing.T) {
	for _, name := range mailbox.SchemaNames() {
		raw, ok := mailbox.Schema(name)
		if !ok {
			t.Fatalf("no schema %s", name)
		}
		var doc struct {
			Schema string `json:"$schema"`
			ID     string `json:"$id"`
		}
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if doc.ID != "/v1/mailbox/schemas/"+name+".json" || doc.Schema != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $id %s, $schema %s", name, doc.ID, doc.Schema)
		}
	}
	for _, name := range []string{"", "Envelope", "envelope.json", "../schema.go"} {
		if _, ok := mailbox.Schema(name); ok {
			t.Errorf("there is a schema %q", name)
		}
		if mailbox.Check(name, []byte(`{}`)) == nil {
			t.Errorf("schema %q is checked", name)
		}
	}
}

// The schema and the code list the same words.
func TestSchemaEnums(t *testing.T) {
	type enum struct {
		Enum []string `json:"enum"`
	}
	var doc struct {
		Defs struct {
			Type enum `json:"type"`
		} `json:"$defs"`
	}
	raw, _ := mailbox.Schema("envelope")
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(doc.Defs.Type.Enum, func(s string) bool { return !mailbox.Type(s).Known() }); i >= 0 || len(doc.Defs.Type.Enum) != 22 {
		t.Errorf("the schema's types are not ours: %v", doc.Defs.Type.Enum)
	}
	var task struct {
		Properties struct {
			State enum `json:"state"`
		} `json:"properties"`
	}
	raw, _ = mailbox.Schema("task")
	if err := json.Unmarshal(raw, &task); err != nil {
		t.Fatal(err)
	}
	want := []string{"pending", "accepted", "working", "completed", "failed", "rejected"}
	if diff := cmp.Diff(want, task.Properties.State.Enum); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	const card = `{"agent_id":"a","description":"","capabilities":[],"status":"idle","allow_from":["*"],"max_concurrent_tasks":3,` +
		`"current_tasks":[],"registered_at":"2026-04-26T10:00:00.000Z","last_heartbeat":"2026-04-26T10:00:00.000Z"`
	for _, tt := range []struct{ name, schema, raw, field, says string }{
		{"an envelope", "envelope", ours, "", ""},
		{"a foreign envelope is not of our form", "envelope", letter(""), "type", "required"},
		{"a part of an unknown type", "envelope", strings.Replace(ours, `"type":"file"`, `"type":"image"`, 1), "content.parts.2.type", "want one of text, data, file"},
		{"a task", "task", `{"id":"T","state":"working","deadline":"2026-04-26T10:00:00Z"}`, "", ""},
		{"a task's state", "task", `{"id":"T","state":"begun"}`, "state", "want one of pending"},
		{"a task's deadline", "task", `{"id":"T","deadline":1777197600}`, "deadline", "want a time"},
		{"a task without an id", "task", `{}`, "id", "required"},
		{"a card", "agent", card + `,"mood":"good"}`, "", ""},
		{"a card's status", "agent", card + `,"status":"asleep"}`, "status", "want one of idle, busy, offline"},
		{"a card's name", "agent", card + `,"agent_id":"a b"}`, "agent_id", "spaces"},
		{"a message as parts", "message", `{"to":"a","content":{"parts":[{"type":"text","text":"hi"}]}}`, "", ""},
		{"a message as a text", "message", `{"to":"a","content":"hi"}`, "", ""},
		{"a message as an object", "message", `{"to":"a","content":{"n":1}}`, "", ""},
		{"a message as a body", "message", `{"to":"a","body":"hi"}`, "", ""},
		{"a message as a text of its own", "message", `{"to":"a","text":"hi"}`, "", ""},
		{"a conversation without a chat", "message", `{"to":"a","text":"hi","callback":{"channel":"feishu"}}`, "callback", "want one of chat_id, session_id"},
		{"a message with all there is", "message", strings.Replace(ours, `"id"`, `"forward_of":"m0","id"`, 1), "", ""},
		{"a message without content", "message", `{"to":"a"}`, "content", "required"},
		{"a ping without content", "message", `{"to":"a","type":"ping"}`, "", ""},
		{"a message to nobody", "message", `{"content":"hi"}`, "to", "required"},
		{"a part in a message", "message", `{"to":"a","content":{"parts":[{"type":"text"}]}}`, "content.parts.0.text", "required"},
		{"content as a list", "message", `{"to":"a","content":[]}`, "content", "want an object or a text"},
		{"a huge exponent", "message", `{"to":"a","content":"hi","priority":1e999999999}`, "priority", ""},
		{"a huge exponent below", "message", `{"to":"a","content":"hi","ttl":1e-999999999}`, "ttl", ""},
		{"no JSON", "message", `{"to"`, "", "want one JSON object"},
		{"a list", "message", `[]`, "", "want one JSON object"},
		{"no UTF-8", "message", "{\"to\":\"\xff\"}", "", "UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := mailbox.Check(tt.schema, []byte(tt.raw))
			if tt.field == "" && tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			refused(t, err, tt.field, tt.says)
		})
	}
}

// Whatever order a validation finds mistakes in, the same one is told.
func TestCheckTellsTheSameMistake(t *testing.T) {
	raw := []byte(`{"id":"","from":"a b","to":"*","timestamp":0,"type":"x","priority":9,"ttl":-1,"trace":5,"task":{},"content":{},"metadata":[]}`)
	for range 200 {
		refused(t, mailbox.Check("envelope", raw), "id", "must not be empty")
		refused(t, mailbox.Check("message", raw), "id", "must not be empty")
		refused(t, mailbox.Check("agent", []byte(`{}`)), "agent_id", "required")
	}
}
