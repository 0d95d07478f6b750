package feishu

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"feishu-relay/relay"
)

// everyone is how a mention of the whole chat is shown to people.
const everyone = "所有人"

// An at-tag in the spellings of text, post and card (docs/feishu.md 3.2, 5.1), with
// its name and closing tag where they follow, or a key of the mentions list.
const atTagPattern = `<at((?:\s+[a-z_-]+\s*=\s*(?:\\?"[^"<>\n]*"|\\?'[^'<>\n]*'|[^\s"'<>]+))*)\s*/?>(?:([^<\n]*)</at>)?`

var (
	mentionRE   = regexp.MustCompile(`(?i)` + atTagPattern + `|@_user_[0-9]+|@_all\b`)
	attributeRE = regexp.MustCompile(`(?i)([a-z_-]+)\s*=\s*(?:\\?"([^"]*)"|\\?'([^']*)'|(\S+))`)
	codeRE      = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")
)

// tag is what an at-tag says.
type tag struct {
	ids   []string
	key   string // mention_key
	email string
	name  string
}

// newTag reads the attributes and the name of an at-tag.
func newTag(attributes, name string) tag {
	t := tag{name: strings.TrimSpace(oneLine(html.UnescapeString(name)))}
	for _, a := range attributeRE.FindAllStringSubmatch(attributes, -1) {
		value := html.UnescapeString(strings.TrimRight(a[2]+a[3]+a[4], `\/`))
		switch strings.ToLower(a[1]) {
		case "id", "ids", "user_id", "open_id":
			for id := range strings.SplitSeq(value, ",") {
				if id = strings.TrimSpace(id); id != "" {
					t.ids = append(t.ids, id)
				}
			}
		case "mention_key":
			t.key = value
		case "email":
			t.email = value
		}
	}
	return t
}

// writeTag is the tag for a node of a post or card that mentions id.
func writeTag(id, key, name string) string {
	return `<at id="` + html.EscapeString(id) + `" mention_key="` + html.EscapeString(key) + `">` +
		html.EscapeString(oneLine(name)) + `</at>`
}

// WithNames writes the at-tags and keys in text as "@Name". The name comes from
// mentions, by key or by any id, else from the tag itself; what has no name
// stays as it is.
func WithNames(text string, mentions []Mention) string {
	if !strings.ContainsAny(text, "<@") {
		return text
	}
	names := nameTable(mentions)
	return replaceAll(mentionRE, text, func(m []string, rest string) string {
		named := m[0]
		if named[0] != '@' {
			named = newTag(m[1], m[2]).text(m[0], names)
		} else if name, ok := names[named]; ok {
			named = "@" + name
		}
		if named != m[0] && named != "" && rest != "" && wordRune(lastRune(named)) && wordRune(firstRune(rest)) {
			named += " " // "@Bertlooks" would be another name
		}
		return named
	})
}

// nameTable finds names by key and id.
func nameTable(mentions []Mention) map[string]string {
	names := map[string]string{"all": everyone, "@_all": everyone, "all_members": everyone}
	for _, m := range mentions {
		name := strings.TrimPrefix(oneLine(m.Name), "@")
		if name == "" {
			continue
		}
		for _, id := range m.IDs() {
			names[id] = name
		}
		if m.Key != "" {
			names[m.Key] = name
		}
	}
	return names
}

// text is how a person reads the tag; whole where nothing names it.
func (t tag) text(whole string, names map[string]string) string {
	if name, ok := names[t.key]; ok && t.key != "" {
		return "@" + name // the id is none that the reader's app knows (docs/feishu.md 3.2)
	}
	var found []string
	for _, id := range t.ids {
		if name, ok := names[id]; ok {
			found = append(found, "@"+name)
		}
	}
	switch {
	case len(found) > 0 && len(found) == len(t.ids):
		return strings.Join(found, " ")
	case t.name != "":
		return "@" + strings.TrimPrefix(t.name, "@")
	case t.email != "":
		return "@" + t.email
	}
	return whole
}

// tagged returns whom the at-tags in text mention, in order and each once. Tags
// in code mention nobody, and neither does the one for everyone.
func tagged(text string) []Mention {
	var list []Mention
	for _, m := range mentionRE.FindAllStringSubmatch(codeRE.ReplaceAllString(text, " "), -1) {
		if m[0][0] == '@' {
			continue
		}
		t := newTag(m[1], m[2])
		for _, id := range t.ids {
			if id == "all" || id == "all_members" || relay.CheckID(id) != nil {
				continue
			}
			var ids wireIDs
			ids.set(id, "")
			one := Mention{Key: t.key, OpenID: ids.open(), UnionID: ids.UnionID, UserID: ids.UserID, AppID: ids.AppID}
			if len(t.ids) == 1 {
				one.Name = strings.TrimPrefix(t.name, "@")
			}
			if one.AppID != "" {
				one.Type = SenderBot
			}
			if !slices.ContainsFunc(list, func(m Mention) bool { return m.Same(&one) }) {
				list = append(list, one)
			}
		}
	}
	return list
}

// replaceAll is re.ReplaceAllStringFunc with the groups of each match and the text behind it.
func replaceAll(re *regexp.Regexp, text string, with func(match []string, rest string) string) string {
	var b strings.Builder
	end := 0
	for _, at := range re.FindAllStringSubmatchIndex(text, -1) {
		match := make([]string, len(at)/2)
		for i := range match {
			if at[2*i] >= 0 {
				match[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		b.WriteString(text[end:at[0]])
		end = at[1]
		b.WriteString(with(match, text[end:]))
	}
	b.WriteString(text[end:])
	return b.String()
}

func firstRune(s string) rune { r, _ := utf8.DecodeRuneInString(s); return r }
func lastRune(s string) rune  { r, _ := utf8.DecodeLastRuneInString(s); return r }

// wordRune reports whether r is one of the signs that make words with borders.
func wordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
