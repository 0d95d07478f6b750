package feishusim

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// post converts a rich text: the locale is removed, mentions become keys, and a md
// paragraph is flattened, with its markdown kept in content_v2 (docs/feishu.md 3.2).
func (c *converter) post(content string) (received, text string, err error) {
	title, paragraphs, err := parsePost(content)
	if err != nil {
		return "", "", err
	}
	var lines []string
	if title != "" {
		lines = append(lines, title)
	}
	var flat, rich [][]map[string]any
	markdown := false
	for _, paragraph := range paragraphs {
		if len(paragraph) == 1 && paragraph[0]["tag"] == "md" {
			markdown = true
			md, shown := c.text(str(paragraph[0]["text"]))
			rich = append(rich, []map[string]any{{"tag": "md", "text": md}})
			for line := range strings.Lines(md) {
				flat = append(flat, c.flatten(strings.TrimSuffix(line, "\n")))
			}
			lines = append(lines, shown)
			continue
		}
		nodes, shown := c.nodes(paragraph)
		flat, rich = append(flat, nodes), append(rich, nodes)
		lines = append(lines, shown)
	}
	out := map[string]any{"title": title, "content": flat}
	if flat == nil {
		out["content"] = []any{}
	}
	if markdown {
		out["content_v2"] = rich
	}
	return compact(out), strings.Join(lines, "\n"), nil
}

// parsePost reads the Chinese version, else the first by name, or a post
// without a locale, as the SDKs' helpers make it.
func parsePost(content string) (title string, paragraphs [][]map[string]any, err error) {
	type version struct {
		Title   string             `json:"title"`
		Content [][]map[string]any `json:"content"`
	}
	var bare version
	if json.Unmarshal([]byte(content), &bare) == nil && bare.Content != nil {
		return bare.Title, bare.Content, nil
	}
	var locales map[string]json.RawMessage
	if json.Unmarshal([]byte(content), &locales) != nil {
		return "", nil, errContent
	}
	names := slices.Sorted(maps.Keys(locales))
	if locales["zh_cn"] != nil {
		names = []string{"zh_cn"}
	}
	for _, name := range names {
		var v version
		if json.Unmarshal(locales[name], &v) == nil && v.Content != nil {
			return v.Title, v.Content, nil
		}
	}
	return "", nil, errContent
}

// nodes converts one paragraph.
func (c *converter) nodes(paragraph []map[string]any) (out []map[string]any, text string) {
	out = []map[string]any{}
	var t strings.Builder
	for _, node := range paragraph {
		n := maps.Clone(node)
		switch n["tag"] {
		case "at":
			id := str(n["user_id"])
			key, shown := c.at(id, str(n["user_name"]))
			n = map[string]any{"tag": "at", "user_id": key, "user_name": strings.TrimPrefix(shown, "@")}
			t.WriteString(shown)
		case "text", "code_block":
			t.WriteString(str(n["text"]))
		case "md":
			received, shown := c.text(str(n["text"]))
			n = map[string]any{"tag": "text", "text": received}
			t.WriteString(shown)
		case "a":
			t.WriteString(str(n["text"]))
		case "img":
			t.WriteString("[image]")
		case "media":
			t.WriteString("[media]")
		case "emotion":
			t.WriteString("[" + str(n["emoji_type"]) + "]")
		case "hr":
			t.WriteString("---")
		}
		out = append(out, n)
	}
	return out, t.String()
}

var (
	mdMarks = regexp.MustCompile("^\\s*(?:#{1,6}\\s+|>\\s?)|\\*\\*|__|~~|`")
	mdKey   = regexp.MustCompile(`@_user_\d+`)
)

// flatten converts one line of markdown to the nodes of a plain paragraph.
func (c *converter) flatten(line string) []map[string]any {
	if strings.TrimSpace(line) == "---" {
		return []map[string]any{{"tag": "hr"}}
	}
	line = mdMarks.ReplaceAllString(line, "")
	nodes := []map[string]any{}
	add := func(text string) {
		if text != "" {
			nodes = append(nodes, map[string]any{"tag": "text", "text": text, "style": []string{}})
		}
	}
	at := 0
	for _, where := range mdKey.FindAllStringIndex(line, -1) {
		key := line[where[0]:where[1]]
		i := slices.IndexFunc(c.mentions, func(m mention) bool { return m.key == key })
		if i < 0 {
			continue // text that only looks like a key
		}
		add(line[at:where[0]])
		nodes = append(nodes, map[string]any{"tag": "at", "user_id": key, "user_name": c.s.name(c.mentions[i].entity), "style": []string{}})
		at = where[1]
	}
	add(line[at:])
	return nodes
}

// str returns v if it is a string, else "".
func str(v any) string {
	s, _ := v.(string)
	return s
}
