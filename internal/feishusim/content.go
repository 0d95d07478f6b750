package feishusim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"feishu-relay/relay"
)

// converter converts contents as sent to contents as received (docs/feishu.md 3.2
// and 5.1), and collects the mentions.
type converter struct {
	s        *Server
	sender   string
	chat     *chat
	literal  bool
	mentions []mention
	leading  []string // mentioned entities without an "@Name" in the text
}

// Tags of a mention in texts and posts, and in cards.
var (
	textAt = regexp.MustCompile(`<at\s+user_id\s*=\s*["']?([^"'>\s]*)["']?\s*>(.*?)</at>`)
	cardAt = regexp.MustCompile(`<at\s+(id|ids|user_id|open_id|email)\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)\s*>(.*?)</at>`)
	styles = regexp.MustCompile(`</?(?:b|i|u|s)>`)
)

func (c *converter) lead(entity string) { c.leading = append(c.leading, entity) }

// key returns the placeholder in the text for a mentioned entity.
func (c *converter) key(entity string) string {
	for _, m := range c.mentions {
		if m.entity == entity {
			return m.key
		}
	}
	key := "@_user_" + strconv.Itoa(len(c.mentions)+1)
	c.mentions = append(c.mentions, mention{key, entity})
	return key
}

// at resolves the id that a sender mentions. An open_id of another app's name
// space is unknown.
func (c *converter) at(id, label string) (key, shown string) {
	if id == "all" {
		return "@_all", "@所有人"
	}
	entity, ok := c.resolve(id)
	if !ok {
		return "@" + label, "@" + label
	}
	return c.key(entity), "@" + c.s.name(entity)
}

func (c *converter) resolve(id string) (string, bool) {
	if entity := c.s.seen(c.sender, id); entity != "" {
		return entity, true
	}
	if c.s.users[id] != nil || c.literal && c.s.apps[id] != nil {
		return id, true
	}
	for _, entity := range c.s.order {
		if c.s.unionID(entity) == id {
			return entity, true
		}
	}
	return "", false
}

// convert returns the content as received, and the text that a person reads.
func (c *converter) convert(msgType, content string) (received, text string, err error) {
	if err := object(content); err != nil {
		return "", "", err
	}
	switch msgType {
	case "text":
		var v struct {
			Text string `json:"text"`
		}
		_ = json.Unmarshal([]byte(content), &v) // checked to be an object
		received, text = c.text(v.Text)
		return compact(map[string]string{"text": received}), text, nil
	case "post":
		return c.post(content)
	case "image", "file", "folder", "audio", "media", "sticker", "share_chat", "share_user", "location", "system", "merge_forward":
		return content, mediaText(msgType, content), nil
	}
	return "", "", fmt.Errorf("no msg_type %.40q", msgType)
}

// text converts at-tags, or "@Name" in a text typed by a person.
func (c *converter) text(in string) (received, shown string) {
	if c.literal {
		return c.typed(in)
	}
	return replaceTags(textAt, styles.ReplaceAllString(in, ""), func(tag []string) (key, name string) {
		if strings.HasPrefix(tag[1], "cli_") { // Feishu shows such a tag as it is
			return tag[0], tag[0]
		}
		return c.at(tag[1], tag[2])
	})
}

// replaceTags replaces each match of re: by its key in received, by its name in shown. tag is the match and its groups.
func replaceTags(re *regexp.Regexp, in string, by func(tag []string) (key, name string)) (received, shown string) {
	received = re.ReplaceAllStringFunc(in, func(tag string) string {
		key, _ := by(re.FindStringSubmatch(tag))
		return key
	})
	return received, re.ReplaceAllStringFunc(in, func(tag string) string {
		_, name := by(re.FindStringSubmatch(tag))
		return name
	})
}

// typed converts a text typed by a person: "@Name" of a member is a mention.
func (c *converter) typed(in string) (received, shown string) {
	members := slices.Clone(c.chat.Members)
	slices.SortStableFunc(members, func(a, b string) int { return len(c.s.name(b)) - len(c.s.name(a)) })
	var r strings.Builder
	for rest := in; rest != ""; {
		at := strings.IndexByte(rest, '@')
		if at < 0 {
			r.WriteString(rest)
			break
		}
		r.WriteString(rest[:at])
		rest = rest[at:]
		key, used := c.named(members, rest)
		if used == 0 {
			key, used = "@", 1
		}
		r.WriteString(key)
		rest = rest[used:]
	}
	received, shown = r.String(), in
	for _, entity := range slices.Backward(c.leading) {
		if !slices.ContainsFunc(c.mentions, func(m mention) bool { return m.entity == entity }) {
			received, shown = c.key(entity)+" "+received, "@"+c.s.name(entity)+" "+shown
		}
	}
	return received, shown
}

// named finds the member whose name follows the "@" that in begins with.
func (c *converter) named(members []string, in string) (key string, used int) {
	for _, all := range []string{"@所有人", "@all"} {
		if strings.HasPrefix(in, all) && ends(all, in[len(all):]) {
			return "@_all", len(all)
		}
	}
	for _, entity := range members {
		name := "@" + c.s.name(entity)
		if len(name) > 1 && strings.HasPrefix(in, name) && ends(name, in[len(name):]) {
			return c.key(entity), len(name)
		}
	}
	return "", 0
}

// ends reports whether a name may end before rest: "@Anna" does not mention
// Ann, but Chinese has no word boundaries.
func ends(name, rest string) bool {
	last, _ := utf8.DecodeLastRuneInString(name)
	next, _ := utf8.DecodeRuneInString(rest)
	word := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
	}
	return rest == "" || !word(last) || !word(next)
}

// mediaText returns a short description of a message without text.
func mediaText(msgType, content string) string {
	var v struct {
		Name string `json:"file_name"`
	}
	_ = json.Unmarshal([]byte(content), &v) // the name is optional
	if v.Name != "" {
		return "[" + msgType + " " + v.Name + "]"
	}
	return "[" + msgType + "]"
}

// object returns an error if content is not a JSON object.
func object(content string) error {
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(content), &v); err != nil || v == nil {
		return errContent
	}
	return nil
}

// compact returns v as JSON on one line, without unnecessary escapes.
func compact(v any) string {
	data, err := relay.Marshal(v)
	if err != nil {
		return "{}" // unreachable: these values always encode
	}
	return string(data)
}
