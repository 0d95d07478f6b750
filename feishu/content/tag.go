package content

import (
	"cmp"
	"html"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Mention is one entry of a message's mentions.
type Mention struct {
	Key     string       `json:"Key"` // "@_user_1", as it is in the text
	OpenID  relay.OpenID `json:"OpenID"`
	UnionID string       `json:"UnionID"`
	UserID  string       `json:"UserID"`
	AppID   string       `json:"AppID"` // where the REST API names a bot by it
	Name    string       `json:"Name"`
	Type    string       `json:"Type"` // user, bot; "" on older tenants
}

// IDs returns the ids of m's bot or person.
func (m *Mention) IDs() []string {
	return slices.DeleteFunc([]string{string(m.OpenID), m.UnionID, m.UserID, m.AppID},
		func(id string) bool { return id == "" })
}

// SetID sets the id of the kind that id is: by its prefix if it has one, since REST answers name a bot by its app_id
// even if open_ids were requested (docs/feishu.md 4.1), else by the id_type that comes with it.
func (m *Mention) SetID(id, idType string) {
	switch prefix, _, _ := strings.Cut(id, "_"); {
	case prefix == "cli", idType == "app_id":
		m.AppID, m.Type = id, "bot"
	case prefix == "ou", idType == "open_id" && prefix != "on":
		m.OpenID = relay.OpenID(id)
	case prefix == "on", idType == "union_id":
		m.UnionID = id
	default:
		m.UserID = id
	}
}

// Same reports whether m and other share an id.
func (m *Mention) Same(other *Mention) bool {
	return slices.ContainsFunc(m.IDs(), func(id string) bool { return slices.Contains(other.IDs(), id) })
}

// nameTable returns the names by key and id, and that of everybody.
func nameTable(mentions []Mention) map[string]string {
	names := map[string]string{"all": "所有人", "@_all": "所有人", "all_members": "所有人"}
	for _, m := range mentions {
		name := strings.TrimPrefix(runes.OneLine(m.Name), "@")
		if name == "" {
			continue
		}
		for _, id := range append(m.IDs(), m.Key) {
			names[id] = name
		}
	}
	return names
}

// Tag is what an at-tag, an at-node or a key says of whom it mentions.
type Tag struct {
	IDs   []string
	Key   string // mention_key, or the key itself
	Email string
	Name  string
}

// maxTag is the most bytes of an at-tag with its name: a longer one is not a tag.
const maxTag = 1024

// tagPattern matches an at-tag in any of the spellings of texts, posts and cards (docs/feishu.md 3.2, 5.1) and of
// models. The closing tag may be missing. A tag is on one line: a "<at" in a text must not include the text up to the
// next '>'.
const tagPattern = `<at((?:[ \t]+[a-z_-]+(?:[ \t]*=[ \t]*(?:\\?"[^"<\n]*"|\\?'[^'<\n]*'|[^\s"'<>]+))?)*)[ \t]*/?>` +
	`(?:([^<\n]*)</at>)?`

var (
	tagRE       = regexp.MustCompile(`(?i)^` + tagPattern)
	inlineRE    = regexp.MustCompile(`(?i)` + tagPattern + `|@_user_[0-9]+|@_all\b|!\[[^\]\n]*\]\((img_[a-z0-9_-]+)\)`)
	attributeRE = regexp.MustCompile(`(?i)([a-z_-]+)\s*=\s*(?:\\?"([^"]*)"|\\?'([^']*)'|(\S+))`)
	codeRE      = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")
)

// ParseTag reads the at-tag that s begins with, and returns its length; 0 if s does not begin with one.
func ParseTag(s string) (t Tag, length int) {
	if m := tagRE.FindStringSubmatch(s[:min(len(s), maxTag)]); m != nil {
		return newTag(m[1], m[2]), len(m[0])
	}
	return t, 0
}

// newTag reads the attributes and the name of an at-tag.
func newTag(attributes, name string) (t Tag) {
	for _, a := range attributeRE.FindAllStringSubmatch(attributes, -1) {
		value := html.UnescapeString(strings.Trim(a[2]+a[3]+a[4], `\/“”‘’`))
		switch strings.ToLower(a[1]) {
		case "user_id", "open_id", "id", "ids":
			t.addIDs(value)
		case "mention_key":
			t.Key = value
		case "email":
			t.Email = value
		}
	}
	t.Name = strings.TrimSpace(runes.OneLine(html.UnescapeString(name)))
	return t
}

func (t *Tag) addIDs(list string) {
	for id := range strings.SplitSeq(list, ",") {
		if id = strings.TrimSpace(id); id != "" {
			t.IDs = append(t.IDs, id)
		}
	}
}

// atNode reads an {"tag":"at"} of a post or an older card, or a person in a card: its id is an id, "all", or the key
// of a mention.
func atNode(v map[string]any) Span {
	t := Tag{Key: jsontree.Field(v, "mention_key")}
	t.addIDs(jsontree.Field(v, "user_id", "open_id", "id"))
	list, _ := v["ids"].([]any)
	for _, id := range list {
		id, _ := id.(string)
		t.addIDs(id)
	}
	if len(t.IDs) == 1 && strings.HasPrefix(t.IDs[0], "@") {
		t.IDs, t.Key = nil, t.IDs[0]
	}
	t.Name = strings.Join(strings.Fields(jsontree.Field(v, "user_name", "name")), " ")
	raw := t.Key
	if len(t.IDs) > 0 || t.Name != "" {
		raw = `<at id="` + html.EscapeString(strings.Join(t.IDs, ",")) + `" mention_key="` + html.EscapeString(t.Key) +
			`">` + html.EscapeString(t.Name) + `</at>`
	}
	return Span{Kind: SpanMention, Text: raw, Tag: t}
}

// text returns the readable text of the tag; whole if it has no name.
func (t *Tag) text(whole string, names map[string]string) string {
	if name, ok := names[t.Key]; ok && t.Key != "" {
		return "@" + name // the id is of another app's name space (docs/feishu.md 3.2)
	}
	var found []string
	for _, id := range t.IDs {
		if name, ok := names[id]; ok {
			found = append(found, "@"+name)
		}
	}
	if len(found) > 0 && len(found) == len(t.IDs) {
		return strings.Join(found, " ")
	}
	if name := cmp.Or(strings.TrimPrefix(t.Name, "@"), t.Email); name != "" {
		return "@" + name
	}
	return whole
}

// mentions adds those that the tag mentions by an id to list, each once.
func (t *Tag) mentions(list []Mention) []Mention {
	for _, id := range t.IDs {
		if id == "all" || id == "all_members" || relay.CheckID(id) != nil {
			continue
		}
		one := Mention{Key: t.Key}
		one.SetID(id, "")
		if len(t.IDs) == 1 {
			one.Name = strings.TrimPrefix(t.Name, "@")
		}
		if !slices.ContainsFunc(list, func(m Mention) bool { return m.Same(&one) }) {
			list = append(list, one)
		}
	}
	return list
}

// inline splits a text at its at-tags and keys, and at the images of markdown.
func inline(text string) (spans []Span) {
	code := codeRE.FindAllStringIndex(text, -1)
	end := 0 // of what is in spans
	for _, at := range inlineRE.FindAllStringSubmatchIndex(text, -1) {
		for len(code) > 0 && code[0][1] <= at[0] {
			code = code[1:]
		}
		group := func(i int) string { return text[max(at[2*i], 0):max(at[2*i+1], 0)] }
		s := Span{Kind: SpanMention, Text: group(0), InCode: len(code) > 0 && code[0][0] <= at[0]}
		switch {
		case len(s.Text) > maxTag:
			continue
		case s.Text[0] == '<':
			s.Tag = newTag(group(1), group(2))
		case s.Text[0] == '@':
			s.Tag.Key = s.Text
		default:
			s.Kind, s.File = SpanFile, newFile(group(3), relay.FileImage, "")
		}
		spans = append(spans, Span{Text: text[end:at[0]]}, s)
		end = at[1]
	}
	return append(spans, Span{Text: text[end:]})
}
