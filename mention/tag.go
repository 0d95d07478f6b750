package mention

import (
	"html"
	"strings"
)

// Limits of an at-tag in bytes: a longer one is not a tag.
const (
	maxTag     = 1024 // from '<' to '>'
	maxTagName = 512  // after the '>', with the closing tag
)

// atTag is a parsed <at …>Name</at>.
type atTag struct {
	ids  []string
	key  string // mention_key
	name string
}

// parseTag reads the at-tag that s begins with, in any of the spellings that
// the platform and models use, and returns its length; 0 if s does not begin
// with one. The closing tag may be missing. A tag must be on one line: a "<at"
// in a text must not include the text up to the next '>'.
func parseTag(s string) (t atTag, length int) {
	if len(s) < 4 || !strings.EqualFold(s[:3], "<at") || !strings.Contains(" \t>/", s[3:4]) {
		return t, 0
	}
	rest := firstLine(s, maxTag)[3:]
	whole := len(rest) + 3
	for {
		rest = strings.TrimLeft(rest, " \t/")
		if rest == "" {
			return t, 0
		}
		if rest[0] == '>' {
			break
		}
		name := rest[:len(rest)-len(strings.TrimLeftFunc(rest, attributeRune))]
		if rest = rest[len(name):]; name == "" || rest == "" {
			return t, 0
		}
		if rest[0] != '=' {
			continue
		}
		value, after, ok := attribute(rest[1:])
		if !ok {
			return t, 0
		}
		t.set(strings.ToLower(name), value)
		rest = after
	}
	length = whole - len(rest) + 1
	if s[length-2] == '/' {
		return t, length
	}
	name, rest, _ := strings.Cut(firstLine(s[length:], maxTagName), "<")
	if len(rest) >= 4 && strings.EqualFold(rest[:4], "/at>") {
		t.name = html.UnescapeString(name)
		length += len(name) + len("</at>")
	}
	return t, length
}

func firstLine(s string, limit int) string {
	line, _, _ := strings.Cut(s[:min(len(s), limit)], "\n")
	return line
}

func attributeRune(r rune) bool {
	return r == '_' || r == '-' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// attribute splits s after the value that it begins with, quoted or not.
func attribute(s string) (value, rest string, ok bool) {
	s = strings.TrimPrefix(s, `\`) // quotes that were escaped once too often
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		value, rest, ok = strings.Cut(s[1:], s[:1])
		return html.UnescapeString(strings.TrimSuffix(value, `\`)), rest, ok && !strings.Contains(value, "<")
	}
	n := strings.IndexAny(s, " \t>")
	if n < 0 {
		return "", "", false
	}
	return html.UnescapeString(strings.Trim(s[:n], "/“”‘’")), s[n:], true
}

func (t *atTag) set(name, value string) {
	switch name {
	case "user_id", "open_id", "id", "ids":
		for id := range strings.SplitSeq(value, ",") {
			if id = strings.TrimSpace(id); id != "" {
				t.ids = append(t.ids, id)
			}
		}
	case "mention_key":
		t.key = value
	}
}
