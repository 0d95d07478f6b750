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

// The schemas describe what the readers take.
func TestCheck(t *testing.T) {
	const card = `{"agent_id":"a","description":"","capabilities":[],"status":"idle","allow_from":["*"],"max_concurrent_tasks":3,` +
		`"current_tasks":[],"registered_at":"2026-04-26T10:00:00.000Z","last_heartbeat":"2026-04-26T10:00:00.000Z"`
	for _, tt := range []struct {
		name, schema, raw string
		valid             bool
	}{
		{"an envelope", "envelope", ours, true},
		{"a foreign envelope is not of our form", "envelope", letter(""), false},
		{"a part of an unknown type", "envelope", strings.Replace(ours, `"type":"file"`, `"type":"image"`, 1), false},
		{"a task", "task", `{"id":"T","state":"working","deadline":"2026-04-26T10:00:00Z"}`, true},
		{"a task's state", "task", `{"id":"T","state":"begun"}`, false},
		{"a task's deadline", "task", `{"id":"T","deadline":1777197600}`, false},
		{"a task without an id", "task", `{}`, false},
		{"a card", "agent", card + `,"mood":"good"}`, true},
		{"a card's status", "agent", card + `,"status":"asleep"}`, false},
		{"a card's name", "agent", card + `,"agent_id":"a b"}`, false},
		{"a message as parts", "message", `{"to":"a","content":{"parts":[{"type":"text","text":"hi"}]}}`, true},
		{"a message as a text", "message", `{"to":"a","content":"hi"}`, true},
		{"a message as an object", "message", `{"to":"a","content":{"n":1}}`, true},
		{"a message as a body", "message", `{"to":"a","body":"hi"}`, true},
		{"a message as a text of its own", "message", `{"to":"a","text":"hi"}`, true},
		{"a conversation without a chat", "message", `{"to":"a","text":"hi","callback":{"channel":"feishu"}}`, false},
		{"a message with all there is", "message", strings.Replace(ours, `"id"`, `"forward_of":"m0","id"`, 1), true},
		{"a message without content", "message", `{"to":"a"}`, false},
		{"a ping without content", "message", `{"to":"a","type":"ping"}`, true},
		{"a message to nobody", "message", `{"content":"hi"}`, false},
		{"a part in a message", "message", `{"to":"a","content":{"parts":[{"type":"text"}]}}`, false},
		{"content as a list", "message", `{"to":"a","content":[]}`, false},
		{"a huge exponent", "message", `{"to":"a","content":"hi","priority":1e999999999}`, false},
		{"no JSON", "message", `{"to"`, false},
		{"a list", "message", `[]`, false},
		{"no UTF-8", "message", "{\"to\":\"\xff\"}", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := mailbox.Check(tt.schema, []byte(tt.raw)); (err == nil) != tt.valid {
				t.Errorf("the schema says %v", err)
			}
			if tt.schema == mailbox.MessageSchema {
				if _, err := mailbox.DecodeDraft([]byte(tt.raw)); (err == nil) != tt.valid {
					t.Errorf("the reader says %v", err)
				}
			}
		})
	}
}
