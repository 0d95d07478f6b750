package groups

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/internal/spelling"
	"feishu-relay/mention"
)

// MaxSize is the most bytes a groups file may have; a larger one is an error.
const MaxSize = 1 << 20

// maxMistakes is how many mistakes are reported in full; further ones are
// counted.
const maxMistakes = 50

// The keys that are read.
var (
	agentKeys = []string{"name", "aliases", "feishu_open_id", "app_id", "open_ids", "description", "type", "id",
		"agent_name"}
	groupKeys = []string{"name", "members", "group_policy", "max_bot_reply_depth", "bot_reply_llm_threshold",
		"bot_reply_llm_check", "answer_mode", "default_bot", "group_budget", "stop_notice", "steer_by", "steer_max_depth",
		"inject_context", "locked"}
)

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
	if err := p.err(); err != nil {
		return nil, err
	}
	p.file.directory = mention.NewDirectory(p.file.mentionable())
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
		case slices.ContainsFunc(known, same) || len(p.file.unread) == maxMistakes:
		case i >= 0:
			p.file.unread = append(p.file.unread, fmt.Sprintf("%s is not read; %s is", place, known[i]))
		case strings.HasPrefix(where, "groups."):
			p.file.unread = append(p.file.unread,
				fmt.Sprintf("%s is not read; a group has %s", place, strings.Join(known, ", ")))
		}
	}
}

func (p *parser) err() error {
	if p.more > 0 {
		return errors.Join(append(p.mistakes, fmt.Errorf("and %d more mistakes", p.more))...)
	}
	return errors.Join(p.mistakes...)
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
		where := join("agents", id)
		if id == "" {
			p.mistake("agents", "wants an id for each agent, not an empty one")
			continue
		}
		if f := p.object(where, section[id]); f != nil && isBot(f) {
			p.unread(where, section[id], agentKeys...)
			p.enter(id, p.agent(where, f))
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
		f := p.object(where, data)
		if f == nil || !isBot(f) {
			continue
		}
		p.unread(where, data, agentKeys...)
		key := "name"
		for _, k := range []string{"agent_name", "id"} {
			if !absent(f[fold(k)]) {
				key = k
			}
		}
		a := p.agent(where, f)
		id := a.Name
		if key != "name" {
			id = p.text(where, f, key)
		}
		switch data := f[fold(key)]; {
		case id == "" && (absent(data) || data[0] == '"'):
			p.mistake(join(where, key), "is missing")
		case id == "": // of a wrong type, which has been reported
		case places[id] != "":
			p.mistake(join(where, key), "is also that of %s; give each agent an id of its own", places[id])
		default:
			places[id] = where
			p.enter(id, a)
		}
	}
}

func (p *parser) enter(id string, a Agent) {
	a.ID = id
	if a.Name == "" {
		a.Name = id
	}
	p.file.Agents[id] = a
}

// agent reads an agent's entry.
func (p *parser) agent(where string, f fields) Agent {
	a := Agent{
		Name:         p.text(where, f, "name"),
		Aliases:      p.texts(where, f, "aliases"),
		FeishuOpenID: p.text(where, f, "feishu_open_id"),
		AppID:        p.text(where, f, "app_id"),
		Type:         "bot",
		Description:  p.text(where, f, "description"),
	}
	p.claim(where, "feishu_open_id", a.FeishuOpenID)
	p.claim(where, "app_id", a.AppID)
	if data := f[fold("open_ids")]; !absent(data) {
		place := join(where, "open_ids")
		a.OpenIDs = map[string]string{}
		// Not folded: these keys are app ids.
		section := p.section(place, data)
		for _, app := range slices.Sorted(maps.Keys(section)) {
			if s, ok := p.string(join(place, app), section[app]); ok {
				a.OpenIDs[app] = s
				p.claim(place, app, s)
			}
		}
	}
	return a
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
			continue
		}
		f := p.object(where, section[chat])
		if f == nil {
			continue
		}
		p.unread(where, section[chat], groupKeys...)
		g := Group{
			Name:                 p.text(where, f, "name"),
			Members:              p.texts(where, f, "members"),
			GroupPolicy:          p.word(where, f, "group_policy"),
			MaxBotReplyDepth:     p.count(where, f, "max_bot_reply_depth"),
			BotReplyLLMThreshold: p.count(where, f, "bot_reply_llm_threshold"),
			BotReplyLLMCheck:     p.flag(where, f, "bot_reply_llm_check"),
			AnswerMode:           p.word(where, f, "answer_mode"),
			DefaultBot:           p.text(where, f, "default_bot"),
			GroupBudget:          p.count(where, f, "group_budget"),
			StopNotice:           p.word(where, f, "stop_notice"),
			SteerBy:              p.text(where, f, "steer_by"),
			SteerMaxDepth:        p.count(where, f, "steer_max_depth"),
			InjectContext:        p.count(where, f, "inject_context"),
		}
		if locked := p.flag(where, f, "locked"); locked != nil {
			g.Locked = *locked
		}
		p.file.Groups[chat] = g
	}
}

// word returns the string of key, one of its words; "" if it is absent.
func (p *parser) word(where string, f fields, key string) string {
	text := p.text(where, f, key)
	if text != "" && !slices.Contains(words[key], text) {
		p.mistake(join(where, key), "wants one of %s", strings.Join(words[key], ", "))
		return ""
	}
	return text
}
