package mailbox

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
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
	text, err := schemaFiles.ReadFile("schemas/" + name + ".json")
	return text, err == nil
}

// schemaBase stands for the host in the schemas' relative $ids.
const schemaBase = "mailbox://schemas/v1/mailbox/schemas/"

// compiled are the schemas by name. They are part of the program: what is wrong with them panics.
var compiled = sync.OnceValue(func() map[string]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for name, check := range map[string]func(string) error{
		"agent":     checkAgent,
		"id":        CheckID,
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
			panic(fmt.Sprintf("mailbox: schema %s: %v", name, err))
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range SchemaNames() {
		all[name] = c.MustCompile(schemaBase + name + ".json")
	}
	return all
})

// validate reports where doc is not as the schema of that name says, as an
// [*Error] with INVALID_MESSAGE: Field is the path of the first mistake in the
// order of the envelope, such as content.parts.0.type.
func validate(schema string, doc any) error {
	err := compiled()[schema].Validate(doc)
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return firstMistake(v)
	}
	return err
}

// fieldOrder is the order in which mistakes are told. Other fields follow.
var fieldOrder = []string{
	"id", "agent_id", "from", "to", "timestamp", "type", "priority", "ttl", "trace", "task", "state", "deadline",
	"content", "body", "parts", "text", "data", "path", "callback", "channel", "chat_id", "session_id", "reply_to",
	"metadata",
}

// mistake is one of those that a validation found.
type mistake struct {
	path []string
	rank int // of several in one field the lowest is told
	says string
}

// firstMistake puts the first of the mistakes of a validation into words.
func firstMistake(v *jsonschema.ValidationError) *Error {
	first := slices.MinFunc(mistakes(v), func(a, b mistake) int {
		return cmp.Or(slices.CompareFunc(a.path, b.path, compareField),
			cmp.Compare(a.rank, b.rank), cmp.Compare(a.says, b.says))
	})
	return Invalid(strings.Join(first.path, "."), "%s", first.says)
}

func compareField(a, b string) int {
	place := func(name string) int {
		if i := slices.Index(fieldOrder, name); i >= 0 {
			return i
		}
		if i, err := strconv.Atoi(name); err == nil {
			return i // an entry of a list has no field beside it
		}
		return len(fieldOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}

// mistakes lists the leaves of v.
func mistakes(v *jsonschema.ValidationError) (all []mistake) {
	m := mistake{path: v.InstanceLocation, rank: 1, says: "is not of the expected form"}
	switch k := v.ErrorKind.(type) {
	case *kind.AnyOf: // the schemas have one
		m.says = "want one of chat_id, session_id"
	case *kind.Required:
		m.path = append(slices.Clone(m.path), slices.MinFunc(k.Missing, compareField))
		m.rank, m.says = 0, "required"
	case *kind.Format:
		m.rank, m.says = 0, k.Err.Error()
		if e, ok := errors.AsType[*Error](k.Err); ok {
			m.says = e.Message
		}
	case *kind.Pattern:
		m.rank, m.says = 2, "must have no control characters"
	case *kind.Type:
		m.says = "want " + plainTypes.Replace(strings.Join(slices.Sorted(slices.Values(k.Want)), " or "))
		if strings.HasSuffix(v.SchemaURL, "/time") {
			m.says = errTime.Error()
		}
	case *kind.Enum:
		m.says = "want one of " + strings.ReplaceAll(strings.Trim(fmt.Sprint(k.Want), "[]"), " ", ", ")
	case *kind.MinLength:
		m.says = "must not be empty"
	case *kind.MaxItems:
		m.says = fmt.Sprintf("want at most %d entries", k.Want)
	case *kind.MaxProperties: // of metadata
		m.says = fmt.Sprintf("want at most %d fields besides ours", MaxFields)
	case *kind.Minimum:
		m.says = "want at least " + k.Want.RatString()
	case *kind.Maximum:
		m.says = "want at most " + k.Want.RatString()
	default:
		for _, cause := range v.Causes {
			all = append(all, mistakes(cause)...)
		}
	}
	if all == nil {
		all = []mistake{m}
	}
	return all
}

// plainTypes names JSON types in plain words. Sorted, null would come before others: it is last in its only pair.
var plainTypes = strings.NewReplacer("null or string", "a text or null", "object or string", "an object or a text",
	"string", "a text", "integer", "a whole number", "object", "an object", "array", "a list", "boolean", "true or false")
