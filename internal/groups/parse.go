package groups

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"feishu-relay/internal/spelling"
)

// MaxSize is the most bytes a groups file may have; a larger one is an error.
const MaxSize = 1 << 20

// maxMistakes is how many mistakes are reported in full; further ones are
// counted.
const maxMistakes = 50

// entry is an agent as it is in a file.
type entry struct {
	ID           string            `json:"id"`
	AgentName    string            `json:"agent_name"`
	Name         string            `json:"name"`
	Aliases      []string          `json:"aliases"`
	FeishuOpenID string            `json:"feishu_open_id"`
	AppID        string            `json:"app_id"`
	OpenIDs      map[string]string `json:"open_ids"`
	Description  string            `json:"description"`
	Type         string            `json:"type"`
}

// wants says what the value of a key has to be, by the type of its field.
var wants = map[reflect.Type]string{
	reflect.TypeFor[string]():            "a text in quotes",
	reflect.TypeFor[[]string]():          "a list of texts",
	reflect.TypeFor[map[string]string](): "an object of texts",
	reflect.TypeFor[*int]():              "a whole number, 0 or more",
	reflect.TypeFor[*bool]():             "true or false",
	reflect.TypeFor[bool]():              "true or false",
}

// words are the allowed values of keys.
var words = map[string][]string{
	"group_policy": {"auto", "mention", "open"},
	"answer_mode":  {"all", "named", "default", "one"},
	"stop_notice":  {"off", "reaction", "text"},
}

// Parse reads a groups file of either form. It accepts a UTF-8 byte order mark.
// The error joins one error for each mistake, with its place, such as
// "agents.agent_b.name: …".
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("the file has %d bytes, at most %d", len(data), MaxSize)
	}
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	if len(data) == 0 {
		return nil, errors.New("the file is empty; without groups write {}")
	}
	if err := syntax(data); err != nil {
		return nil, err
	}
	p := parser{file: &File{Agents: map[string]Agent{}, Groups: map[string]Group{}}, ids: map[string]string{}}
	switch data[0] {
	case '[':
		p.list("", data)
	case '{':
		top := p.object("", data)
		p.unread("", data, "agents", "groups")
		p.agents(top["agents"])
		p.groups(top["groups"])
	default:
		p.mistake("", "wants an object or a list of agents")
	}
	if p.more > 0 {
		p.mistakes = append(p.mistakes, fmt.Errorf("and %d more mistakes", p.more))
	}
	if p.mistakes != nil {
		return nil, errors.Join(p.mistakes...)
	}
	return p.file, nil
}

// syntax returns an error that names the line of the first syntax error in
// data.
func syntax(data []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := data[:min(int(e.Offset), len(data))]
		line := 1 + bytes.Count(before, []byte{'\n'})
		column := len(before) - bytes.LastIndexByte(before, '\n') - 1
		return fmt.Errorf("line %d, column %d: %w", line, max(column, 1), err)
	}
	return err
}

// parser collects a file and the mistakes in it.
type parser struct {
	file     *File
	ids      map[string]string // from platform ids to the place of their agent
	mistakes []error
	more     int
}

func (p *parser) mistake(where, format string, args ...any) {
	if len(p.mistakes) == maxMistakes {
		p.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if where != "" {
		text = where + ": " + text
	}
	p.mistakes = append(p.mistakes, errors.New(text))
}

// section reads an object with its original keys. After a mistake it returns
// nil.
func (p *parser) section(where string, data json.RawMessage) (section map[string]json.RawMessage) {
	if json.Unmarshal(data, &section) != nil || section == nil {
		p.mistake(where, "wants an object")
		return nil
	}
	return section
}

// fold converts a key in snake_case or camelCase to a common form.
func fold(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

// object reads an object with folded keys; if a key has both spellings the one
// in snake_case counts. After a mistake it returns nil.
func (p *parser) object(where string, data json.RawMessage) map[string]json.RawMessage {
	section := p.section(where, data)
	if section == nil {
		return nil
	}
	values := map[string]json.RawMessage{}
	keys := slices.Sorted(maps.Keys(section))
	slices.SortStableFunc(keys, func(a, b string) int { return strings.Count(a, "_") - strings.Count(b, "_") })
	for _, key := range keys {
		values[fold(key)] = section[key]
	}
	return values
}

// read sets the fields of into, a pointer to a struct, to the values of the keys in their tags, and records the keys
// that have no field. Texts lose surrounding blanks, and empty ones in lists are left out.
func (p *parser) read(where string, data json.RawMessage, values map[string]json.RawMessage, into any) {
	v := reflect.ValueOf(into).Elem()
	var keys []string
	for i := range v.NumField() {
		key, field := v.Type().Field(i).Tag.Get("json"), v.Field(i)
		keys = append(keys, key)
		value := values[fold(key)]
		if absent(value) {
			continue
		}
		err := json.Unmarshal(value, field.Addr().Interface())
		if n, ok := field.Interface().(*int); err != nil || ok && *n < 0 {
			p.mistake(join(where, key), "wants %s", wants[field.Type()])
			field.SetZero()
		}
		switch field := field.Addr().Interface().(type) {
		case *string:
			*field = strings.TrimSpace(*field)
			if allowed := words[key]; allowed != nil && *field != "" && !slices.Contains(allowed, *field) {
				p.mistake(join(where, key), "wants one of %s", strings.Join(allowed, ", "))
			}
		case *[]string:
			for i := range *field {
				(*field)[i] = strings.TrimSpace((*field)[i])
			}
			*field = slices.DeleteFunc(*field, func(s string) bool { return s == "" })
		}
	}
	p.unread(where, data, keys...)
}

// unread records the keys of an object that are ignored and look like mistakes: those
// similar to a known one, and in a group all, since a limit without effect is
// dangerous. Other programs may have keys of their own in an agent's entry.
func (p *parser) unread(where string, data json.RawMessage, known ...string) {
	for _, key := range slices.Sorted(maps.Keys(p.section(where, data))) {
		same := func(k string) bool { return fold(k) == fold(key) }
		near := func(k string) bool {
			if fold(key) == fold("open_id") { // open_ids is an object
				return k == "feishu_open_id"
			}
			return spelling.Near(fold(key), fold(k), min((len(k)+1)/4, 2))
		}
		place := fmt.Sprintf("%.100q", join(where, key))
		switch i := slices.IndexFunc(known, near); {
		case slices.ContainsFunc(known, same) || len(p.file.Unread) == maxMistakes:
		case i >= 0:
			p.file.Unread = append(p.file.Unread, fmt.Sprintf("%s is not read; %s is", place, known[i]))
		case strings.HasPrefix(where, "groups."):
			p.file.Unread = append(p.file.Unread,
				fmt.Sprintf("%s is not read; a group has %s", place, strings.Join(known, ", ")))
		}
	}
}

// agents reads the agents section, an object by id or a list.
func (p *parser) agents(data json.RawMessage) {
	switch {
	case absent(data):
		return
	case data[0] == '[':
		p.list("agents", data)
		return
	}
	section := p.section("agents", data)
	for _, id := range slices.Sorted(maps.Keys(section)) {
		if id == "" {
			p.mistake("agents", "wants an id for each agent, not an empty one")
		} else if e, ok := p.agent(join("agents", id), section[id]); ok {
			p.enter(id, e)
		}
	}
}

// list reads agents without keys; data is a list.
func (p *parser) list(where string, data json.RawMessage) {
	var list []json.RawMessage
	_ = json.Unmarshal(data, &list) // it is a list of valid syntax
	places := map[string]string{}
	for i, data := range list {
		where := fmt.Sprintf("%s[%d]", where, i)
		before := len(p.mistakes)
		e, ok := p.agent(where, data)
		if !ok {
			continue
		}
		key, id := "name", e.Name
		switch {
		case e.ID != "":
			key, id = "id", e.ID
		case e.AgentName != "":
			key, id = "agent_name", e.AgentName
		}
		switch {
		case id == "" && len(p.mistakes) == before:
			p.mistake(join(where, key), "is missing")
		case id == "": // it may be of a wrong type, which has been reported
		case places[id] != "":
			p.mistake(join(where, key), "is also that of %s; give each agent an id of its own", places[id])
		default:
			places[id] = where
			p.enter(id, e)
		}
	}
}

func (p *parser) enter(id string, e entry) {
	p.file.Agents[id] = Agent{ID: id, Name: cmp.Or(e.Name, id), Aliases: e.Aliases, FeishuOpenID: e.FeishuOpenID,
		AppID: e.AppID, OpenIDs: e.OpenIDs}
}

// agent reads an agent's entry; false for one that is none, or a person's, which is not checked further.
func (p *parser) agent(where string, data json.RawMessage) (e entry, ok bool) {
	values := p.object(where, data)
	var kind string
	if values == nil || json.Unmarshal([]byte(cmp.Or(string(values["type"]), "null")), &kind) != nil ||
		kind != "" && !strings.EqualFold(strings.TrimSpace(kind), "bot") {
		return e, false
	}
	p.read(where, data, values, &e)
	p.claim(where, "feishu_open_id", e.FeishuOpenID)
	p.claim(where, "app_id", e.AppID)
	for _, app := range slices.Sorted(maps.Keys(e.OpenIDs)) {
		p.claim(join(where, "open_ids"), app, e.OpenIDs[app])
	}
	return e, true
}

// claim records a platform id, which only one agent may have. Its place is that
// of the agent, since an agent may name an id twice.
func (p *parser) claim(where, key, id string) {
	if id == "" {
		return
	}
	agent := strings.TrimSuffix(where, ".open_ids")
	if other := p.ids[id]; other != "" && other != agent {
		p.mistake(join(where, key), "is also an id of %s", other)
		return
	}
	p.ids[id] = agent
}

func (p *parser) groups(data json.RawMessage) {
	if absent(data) {
		return
	}
	p.file.HasGroups = true
	section := p.section("groups", data)
	for _, chat := range slices.Sorted(maps.Keys(section)) {
		where := join("groups", chat)
		if chat == "" {
			p.mistake("groups", "wants a chat id for each group, not an empty one")
		} else if values := p.object(where, section[chat]); values != nil {
			var g Group
			p.read(where, section[chat], values, &g)
			p.file.Groups[chat] = g
		}
	}
}

func absent(data json.RawMessage) bool { return len(data) == 0 || string(data) == "null" }

func join(where, key string) string {
	if where == "" {
		return key
	}
	return where + "." + key
}
