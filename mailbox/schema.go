package mailbox

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schemas/*.json
var schemaFiles embed.FS

// The schemas: an envelope as we write it, its task, an agent's card, and what
// POST /v1/mailbox/messages takes.
const (
	EnvelopeSchema = "envelope"
	TaskSchema     = "task"
	AgentSchema    = "agent"
	MessageSchema  = "message"
)

// SchemaNames lists the schemas.
func SchemaNames() []string {
	return []string{EnvelopeSchema, TaskSchema, AgentSchema, MessageSchema}
}

// Schema is the text of a JSON Schema (2020-12).
func Schema(name string) ([]byte, bool) {
	if !slices.Contains(SchemaNames(), name) {
		return nil, false
	}
	text, err := schemaFiles.ReadFile("schemas/" + name + ".json")
	return text, err == nil
}

// schemaBase stands for the host in the schemas' relative $ids.
const schemaBase = "mailbox://schemas/v1/mailbox/schemas/"

var compiled = sync.OnceValue(func() map[string]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for name, check := range map[string]func(string) error{
		"agent":     agentMistake,
		"id":        checkID,
		"path":      atMost(maxPath),
		"text":      atMost(MaxBody),
		"word":      atMost(maxWord),
		"date-time": func(s string) error { _, err := parseTime(s); return err },
	} {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(v any) error {
			if s, ok := v.(string); ok {
				return check(s)
			}
			return nil
		}})
	}
	for _, name := range SchemaNames() {
		text, _ := Schema(name)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = c.AddResource(schemaBase+name+".json", doc)
		}
		if err != nil {
			panic(fmt.Sprintf("mailbox: schema %s: %v", name, err)) // part of the program
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range SchemaNames() {
		all[name] = c.MustCompile(schemaBase + name + ".json")
	}
	return all
})

// Check reports where raw is not as the schema of that name says, as an
// [*Error] with INVALID_MESSAGE: Field is the path of the first mistake in the
// order of the envelope, such as content.parts.0.type. Names are those of our
// own form; [Decode] reads others, too.
func Check(schema string, raw []byte) error {
	s := compiled()[schema]
	if s == nil {
		return fmt.Errorf("no schema %q; there are %s", schema, strings.Join(SchemaNames(), ", "))
	}
	if err := sane(raw, MaxEnvelope); err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return errNoJSON
	}
	if err := s.Validate(shorten(doc)); err != nil {
		return firstMistake(err)
	}
	return nil
}

// Bounds of texts that no [Decode] counts, in bytes: the path of a file, and an
// entry of a list of words.
const (
	maxPath = 4096
	maxWord = 200
)

// atMost is the check of a text of at most limit bytes; the maxLength of a schema
// counts characters.
func atMost(limit int) func(string) error {
	return func(s string) error {
		if len(s) > limit {
			return fmt.Errorf("has %d bytes, at most %d", len(s), limit)
		}
		return nil
	}
}

// maxList is more entries than any list of the schemas may have.
const maxList = 1001

// shorten cuts the lists of doc that are too long in any case: a validation
// makes errors for each of their entries.
func shorten(doc any) any {
	switch v := doc.(type) {
	case map[string]any:
		for name, value := range v {
			v[name] = shorten(value)
		}
	case []any:
		v = v[:min(len(v), maxList)]
		for i, value := range v {
			v[i] = shorten(value)
		}
		return v
	}
	return doc
}
