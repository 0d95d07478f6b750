package mailbox

import "fmt"

// Check is validate of a text.
func Check(schema string, raw []byte) error {
	if compiled()[schema] == nil {
		return fmt.Errorf("no schema %q", schema)
	}
	doc, err := parseFields(raw)
	if err != nil {
		return err
	}
	return validate(schema, doc)
}
