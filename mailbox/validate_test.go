package mailbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaBase stands for the host in the schemas' relative $ids.
const schemaBase = "mailbox://schemas/v1/mailbox/schemas/"

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
	if err := checkJSON(raw, MaxEnvelope); err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return Invalid("", "want one JSON object")
	}
	if err := s.Validate(shorten(doc)); err != nil {
		return firstMistake(err)
	}
	return nil
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
func firstMistake(err error) error {
	v, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return Invalid("", "%v", err)
	}
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
func mistakes(v *jsonschema.ValidationError) []mistake {
	if _, choice := v.ErrorKind.(*kind.AnyOf); choice { // of the schemas' there is one, of fields
		return []mistake{{slices.Clone(v.InstanceLocation), 1, "want one of " + strings.Join(missing(v), ", ")}}
	}
	if len(v.Causes) > 0 {
		var all []mistake
		for _, cause := range v.Causes {
			all = append(all, mistakes(cause)...)
		}
		return all
	}
	m := mistake{path: slices.Clone(v.InstanceLocation)}
	switch k := v.ErrorKind.(type) {
	case *kind.Required:
		missing := slices.MinFunc(k.Missing, compareField)
		m.path, m.says = append(m.path, missing), "required"
	case *kind.Format:
		m.says = k.Err.Error()
	case *kind.Pattern:
		m.rank, m.says = 2, "must have no control characters"
	default:
		m.rank, m.says = 1, says(v)
	}
	return []mistake{m}
}

// missing lists the fields that v wants.
func missing(v *jsonschema.ValidationError) []string {
	var all []string
	if k, ok := v.ErrorKind.(*kind.Required); ok {
		all = k.Missing
	}
	for _, cause := range v.Causes {
		all = append(all, missing(cause)...)
	}
	slices.SortFunc(all, compareField)
	return all
}

// says puts into words what is wanted.
func says(v *jsonschema.ValidationError) string {
	switch k := v.ErrorKind.(type) {
	case *kind.Type:
		if strings.HasSuffix(v.SchemaURL, "/time") {
			return errTime.Error()
		}
		return "want " + anyOf(k.Want)
	case *kind.Enum:
		words := make([]string, len(k.Want))
		for i, w := range k.Want {
			words[i] = fmt.Sprint(w)
		}
		return "want one of " + strings.Join(words, ", ")
	case *kind.MinLength:
		return "must not be empty"
	case *kind.MaxItems:
		return fmt.Sprintf("want at most %d entries", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("want at most %d fields", k.Want)
	case *kind.Minimum:
		return "want at least " + k.Want.RatString()
	case *kind.Maximum:
		return "want at most " + k.Want.RatString()
	}
	return "is not of the expected form"
}

// anyOf names JSON types in plain words.
func anyOf(types []string) string {
	plain := map[string]string{
		"string": "a text", "integer": "a whole number", "object": "an object",
		"array": "a list", "boolean": "true or false", "null": "null",
	}
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = plain[t]
	}
	slices.Sort(words) // null comes last
	return strings.Join(words, " or ")
}
