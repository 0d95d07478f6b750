package feishu

import (
	"html"
	"strings"
	"unicode"
)

// postText writes a post's title and paragraphs, a line each; mentions stay tags
// and keys. content_v2 keeps the markdown that content lost (docs/feishu.md 3.2).
func postText(v map[string]any) string {
	if inner, ok := v["post"].(map[string]any); ok {
		v = inner
	}
	isPost := func(v any) bool {
		m, _ := v.(map[string]any)
		return isList(m["content"]) || isList(m["content_v2"])
	}
	if !isPost(v) {
		if v, _ = localized(v, isPost).(map[string]any); v == nil {
			return words["post"]
		}
	}
	paragraphs, _ := v["content_v2"].([]any)
	if len(paragraphs) == 0 {
		paragraphs, _ = v["content"].([]any)
	}
	lines := make([]string, 0, len(paragraphs)+1)
	if title := field(v, "title"); title != "" {
		lines = append(lines, title)
	}
	for _, p := range paragraphs {
		lines = append(lines, paragraph(p))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// paragraph writes a list of nodes, or a single one, as a line; blocks of code
// and rules stand in lines of their own.
func paragraph(p any) string {
	nodes, ok := p.([]any)
	if !ok {
		nodes = []any{p}
	}
	var b strings.Builder
	block, at := false, false // what the text so far ends in
	for _, n := range nodes {
		node, _ := n.(map[string]any)
		text, isBlock := postNode(node)
		if text == "" {
			continue
		}
		switch {
		case b.Len() > 0 && (block || isBlock):
			b.WriteByte('\n')
		case at && goesOn(text):
			b.WriteByte(' ')
		}
		b.WriteString(text)
		block, at = isBlock, node["tag"] == "at"
	}
	return b.String()
}

// goesOn reports whether text begins with a letter or a digit, which behind a
// mention would read as a part of the name, or of its key.
func goesOn(text string) bool {
	r := firstRune(text)
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'
}

func postNode(v map[string]any) (text string, isBlock bool) {
	text = field(v, "text", "content")
	switch v["tag"] {
	case "text":
		if v["un_escape"] == true {
			text = html.UnescapeString(text)
		}
	case "a":
		text = link(text, field(v, "href"))
	case "at":
		text = atNode(v)
	case "img":
		text = words["image"]
	case "media":
		text = words["media"]
	case "emotion":
		text = "[" + oneLine(field(v, "emoji_type")) + "]"
	case "hr":
		return "---", true
	case "code_block":
		fence := "```"
		for strings.Contains(text, fence) {
			fence += "`"
		}
		return fence + oneLine(field(v, "language")) + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence, true
	}
	return text, false
}

func link(text, href string) string {
	switch {
	case href == "" || href == text:
		return text
	case text == "":
		return href
	}
	return text + " (" + href + ")"
}

// atNode writes an {"tag":"at"} of a post or an older card: its user_id is an id,
// "all", or the key of a mention.
func atNode(v map[string]any) string {
	id, key := field(v, "user_id", "open_id", "id"), field(v, "mention_key")
	if strings.HasPrefix(id, "@") {
		id, key = "", id
	}
	name := field(v, "user_name", "name")
	if id == "" && name == "" {
		return key
	}
	return writeTag(id, key, name)
}
