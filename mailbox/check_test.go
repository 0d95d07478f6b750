package mailbox

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaBase stands for the host in the schemas' relative $ids.
const schemaBase = "mailbox://schemas/v1/mailbox/schemas/"

// compiled are the schemas by name.
var compiled = sync.OnceValue(func() map[string]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for name, check := range map[string]func(string) error{
		"agent": checkAgent, "id": CheckID, "path": atMost(maxPath), "text": atMost(MaxBody), "word": atMost(maxWord),
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
			panic(fmt.Sprintf("schema %s: %v", name, err))
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range SchemaNames() {
		all[name] = c.MustCompile(schemaBase + name + ".json")
	}
	return all
})

// Check reports why a text is not as the schema of that name says.
func Check(schema string, raw []byte) error {
	if compiled()[schema] == nil {
		return fmt.Errorf("no schema %q", schema)
	}
	doc, err := parseFields(raw)
	if err != nil {
		return err
	}
	return compiled()[schema].Validate(doc)
}
