package groups

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fields are an object's values by their folded keys.
type fields map[string]json.RawMessage

// fold converts a key in snake_case or camelCase to a common form.
func fold(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

// object reads an object with folded keys; if a key has both spellings the one
// in snake_case counts. After a mistake it returns nil.
func (p *parser) object(where string, data json.RawMessage) fields {
	section := p.section(where, data)
	if section == nil {
		return nil
	}
	f := fields{}
	spelling := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(section)) {
		k := fold(key)
		if old, twice := spelling[k]; twice && strings.Count(old, "_") >= strings.Count(key, "_") {
			continue
		}
		spelling[k] = key
		f[k] = section[key]
	}
	return f
}

// section reads an object with its original keys. After a mistake it returns
// nil.
func (p *parser) section(where string, data json.RawMessage) map[string]json.RawMessage {
	var section map[string]json.RawMessage
	if json.Unmarshal(data, &section) != nil || section == nil {
		p.mistake(where, "wants an object")
		return nil
	}
	return section
}

// text returns the string of key without surrounding blanks, "" if it is
// absent.
func (p *parser) text(where string, f fields, key string) string {
	data := f[fold(key)]
	if absent(data) {
		return ""
	}
	s, _ := p.string(join(where, key), data)
	return s
}

func (p *parser) string(where string, data json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(data, &s) != nil || s == nil {
		p.mistake(where, "wants a text in quotes")
		return "", false
	}
	return strings.TrimSpace(*s), true
}

// texts returns the list of strings of key, nil if it is absent.
func (p *parser) texts(where string, f fields, key string) []string {
	data := f[fold(key)]
	if absent(data) {
		return nil
	}
	where = join(where, key)
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		p.mistake(where, "wants a list of texts")
		return nil
	}
	out := make([]string, 0, len(list))
	for i, data := range list {
		if s, ok := p.string(fmt.Sprintf("%s[%d]", where, i), data); ok && s != "" {
			out = append(out, s)
		}
	}
	return out
}

// count returns the whole number of key, nil if it is absent.
func (p *parser) count(where string, f fields, key string) *int {
	data := f[fold(key)]
	if absent(data) {
		return nil
	}
	var n int
	if json.Unmarshal(data, &n) != nil || n < 0 {
		p.mistake(join(where, key), "wants a whole number, 0 or more")
		return nil
	}
	return &n
}

// flag returns the truth value of key, nil if it is absent.
func (p *parser) flag(where string, f fields, key string) *bool {
	data := f[fold(key)]
	if absent(data) {
		return nil
	}
	var b bool
	if json.Unmarshal(data, &b) != nil {
		p.mistake(join(where, key), "wants true or false")
		return nil
	}
	return &b
}

// isBot reports whether the entry is an agent's. Other entries are not checked
// further.
func isBot(f fields) bool {
	kind := f["type"]
	if absent(kind) {
		return true
	}
	var s string
	return json.Unmarshal(kind, &s) == nil && (s == "" || strings.EqualFold(strings.TrimSpace(s), "bot"))
}

func absent(data json.RawMessage) bool { return len(data) == 0 || string(data) == "null" }

func join(where, key string) string {
	if where == "" {
		return key
	}
	return where + "." + key
}
