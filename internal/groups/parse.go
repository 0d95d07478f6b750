package groups

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/spelling"
)

// MaxSize is the most bytes a groups file may have; a larger one is an error.
const MaxSize = 1 << 20

// maxMistakes is how many mistakes, and how many ignored keys, are reported.
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

type sections struct {
	Agents json.RawMessage            `json:"agents"` // by id, or a list
	Groups map[string]json.RawMessage `json:"groups"`
}

// Parse reads a groups file of either form. It accepts a UTF-8 byte order mark.
// The error joins one error for each entry with a mistake, with its place, such
// as "agents.agent_b.name: …".
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("the file has %d bytes, at most %d", len(data), MaxSize)
	}
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	var all json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		line := 1
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			line += bytes.Count(data[:min(int(e.Offset), len(data))], []byte{'\n'})
		}
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	p := parser{file: &File{Agents: map[string]Agent{}, Groups: map[string]Group{}}, ids: map[string]string{}}
	s := sections{Agents: all}
	if data[0] != '[' {
		s = sections{}
		p.read("", all, &s)
	}
	p.agents(s.Agents)
	p.file.HasGroups = s.Groups != nil
	for _, chat := range slices.Sorted(maps.Keys(s.Groups)) {
		var g Group
		p.read("groups."+chat, s.Groups[chat], &g)
		p.check("groups."+chat, g)
		p.file.Groups[chat] = g
	}
	if len(p.mistakes) > maxMistakes {
		more := fmt.Errorf("and %d more mistakes", len(p.mistakes)-maxMistakes)
		p.mistakes = append(p.mistakes[:maxMistakes], more)
	}
	if p.mistakes != nil {
		return nil, errors.Join(p.mistakes...)
	}
	return p.file, nil
}

// parser collects a file and the mistakes in it.
type parser struct {
	file     *File
	ids      map[string]string // from platform ids to the place of their agent
	mistakes []error
}

func (p *parser) mistake(format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf(format, args...))
}

// camel matches the places where snake_case has an underscore.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

func snake(key string) string {
	return strings.ToLower(camel.ReplaceAllString(key, "${1}${3}_${2}${4}"))
}

// read sets the fields of into, a pointer to a struct, to the values of their keys in snake_case or camelCase, and
// records the keys that have no field.
func (p *parser) read(place string, data json.RawMessage, into any) {
	var values map[string]json.RawMessage
	if json.Unmarshal(data, &values) != nil || values == nil {
		p.mistake("%s: wants an object", cmp.Or(place, "the file"))
		return
	}
	var known []string
	for field := range reflect.TypeOf(into).Elem().Fields() {
		known = append(known, field.Tag.Get("json"))
	}
	inSnake := map[string]json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(values)) { // what is in snake_case comes last and counts
		inSnake[snake(key)] = values[key]
		if !slices.Contains(known, snake(key)) {
			p.unread(place, key, known)
		}
	}
	data, err := json.Marshal(inSnake)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		p.mistake("%s: wants %s, got %s", strings.TrimPrefix(place+"."+e.Field, "."), e.Type, e.Value)
	} else if err != nil {
		p.mistake("%s: %w", place, err)
	}
}

// unread records a key that is ignored and looks like a mistake: one similar to a known one, and in a group any, since
// a limit without effect is dangerous. Other programs may have keys of their own in an agent's entry.
func (p *parser) unread(place, key string, known []string) {
	near := slices.IndexFunc(known, func(k string) bool { return spelling.Near(snake(key), k, min((len(k)+1)/4, 2)) })
	said := ""
	switch {
	case len(p.file.Unread) == maxMistakes:
		return
	case near >= 0:
		said = known[near] + " is"
	case strings.HasPrefix(place, "groups."):
		said = "a group has " + strings.Join(known, ", ")
	default:
		return
	}
	where := strings.TrimPrefix(place+"."+key, ".")
	p.file.Unread = append(p.file.Unread, fmt.Sprintf("%.100q is not read; %s", where, said))
}

// agents reads the agents, an object by id or a list.
func (p *parser) agents(data json.RawMessage) {
	var byID map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil {
		for i, data := range list {
			p.agent(fmt.Sprintf("agents[%d]", i), "", data)
		}
	} else if data != nil && json.Unmarshal(data, &byID) != nil {
		p.mistake("agents: wants an object or a list")
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		p.agent("agents."+id, id, byID[id])
	}
}

// agent reads an agent's entry. One whose type is not bot is a person's, and is not read further.
func (p *parser) agent(place, id string, data json.RawMessage) {
	kind := struct{ Type any }{"bot"}
	_ = json.Unmarshal(data, &kind) // read reports what is wrong with it
	if of := fmt.Sprint(cmp.Or(kind.Type, "")); of != "" && !strings.EqualFold(of, "bot") {
		return
	}
	var e entry
	before := len(p.mistakes)
	p.read(place, data, &e)
	id = cmp.Or(id, e.ID, e.AgentName, e.Name)
	switch _, taken := p.file.Agents[id]; {
	case len(p.mistakes) > before:
		return
	case id == "":
		p.mistake("%s: the name is missing", place)
		return
	case taken:
		p.mistake("%s: %s is another agent's id; give each agent an id of its own", place, id)
	}
	for _, own := range append(slices.Sorted(maps.Values(e.OpenIDs)), e.FeishuOpenID, e.AppID) {
		if other := p.ids[own]; other != "" && other != place {
			p.mistake("%s: %s is also an id of %s", place, own, other)
		} else if own != "" {
			p.ids[own] = place
		}
	}
	p.file.Agents[id] = Agent{ID: id, Name: cmp.Or(e.Name, id), Aliases: e.Aliases, FeishuOpenID: e.FeishuOpenID,
		AppID: e.AppID, OpenIDs: e.OpenIDs}
}

// check reports values that a group cannot have.
func (p *parser) check(place string, g Group) {
	word := func(key, value string, allowed ...string) {
		if value != "" && !slices.Contains(allowed, value) {
			p.mistake("%s.%s: wants one of %s", place, key, strings.Join(allowed, ", "))
		}
	}
	word("group_policy", g.GroupPolicy, "auto", "mention", "open")
	word("answer_mode", g.AnswerMode, "all", "named", "default", "one")
	word("stop_notice", g.StopNotice, "off", "reaction", "text")
	number := func(key string, n *int) {
		if n != nil && *n < 0 {
			p.mistake("%s.%s: wants 0 or more", place, key)
		}
	}
	number("max_bot_reply_depth", g.MaxBotReplyDepth)
	number("bot_reply_llm_threshold", g.BotReplyLLMThreshold)
	number("group_budget", g.GroupBudget)
	number("steer_max_depth", g.SteerMaxDepth)
	number("inject_context", g.InjectContext)
}
