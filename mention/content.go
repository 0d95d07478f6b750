package mention

import (
	"encoding/json"
	"html"
	"maps"
	"slices"
	"strings"
)

// blocksOf splits a content into texts that are read separately: a fence left
// open in one element of a card does not extend into the next. Code blocks,
// buttons and grey notes are left out. A content that is not the platform's JSON
// is one text, cut to [MaxContent] bytes.
func blocksOf(content, msgType string) []string {
	var f flattener
	object := decode(content)
	text, isText := object["text"].(string)
	switch {
	case object == nil:
		f.block(content)
	case isText && (msgType == "" || msgType == "text"):
		f.block(text)
	case msgType != "text" && (f.post(object) || f.card(object)):
	case msgType == "" || msgType == "text":
		f.block(content) // a plain text that happens to be JSON
	}
	f.flush()
	return f.blocks
}

// decode returns the JSON object in content, or nil.
func decode(content string) map[string]any {
	if len(content) > MaxContent || !strings.HasPrefix(strings.TrimSpace(content), "{") {
		return nil
	}
	var object map[string]any
	if json.Unmarshal([]byte(content), &object) != nil {
		return nil
	}
	return object
}

// flattener converts a tree of nodes to texts.
type flattener struct {
	blocks []string
	b      strings.Builder
}

// block adds a separate text.
func (f *flattener) block(text string) {
	f.flush()
	f.add(clip(text, MaxContent))
}

func (f *flattener) flush() {
	f.add(f.b.String())
	f.b.Reset()
}

func (f *flattener) add(text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		f.blocks = append(f.blocks, text)
	}
}

// post reads {"title":…,"content":[[node,…],…]}, also below a locale, and
// reports whether v is a post.
func (f *flattener) post(v map[string]any) bool {
	if inner, ok := v["post"].(map[string]any); ok {
		v = inner
	}
	isPost := func(v any) bool {
		m, _ := v.(map[string]any)
		_, ok := m["content"].([]any)
		return ok
	}
	if !isPost(v) {
		v, _ = localized(v, isPost).(map[string]any)
	}
	if v == nil {
		return false
	}
	if title, ok := v["title"].(string); ok {
		f.block(title)
	}
	f.walk(v["content"], 1)
	return true
}

// localized returns one of the translations in v that are of the wanted form:
// they all have the same content.
func localized(v map[string]any, wanted func(any) bool) any {
	for _, locale := range slices.Concat([]string{"zh_cn", "en_us"}, slices.Sorted(maps.Keys(v))) {
		if wanted(v[locale]) {
			return v[locale]
		}
	}
	return nil
}

// card reads a card of either schema, or in the form in which cards arrive. If
// that form includes a copy of the sender's card it prefers the copy. It
// reports whether v is a card.
func (f *flattener) card(v map[string]any) bool {
	if dsl, ok := v["user_dsl"].(string); ok {
		if inner := decode(dsl); inner != nil {
			v = inner
		}
	}
	if elements, ok := v["i18n_elements"].(map[string]any); ok && v["elements"] == nil {
		v["elements"] = localized(elements, func(v any) bool { _, ok := v.([]any); return ok })
	}
	known := false
	for _, key := range []string{"elements", "body", "header"} {
		switch v[key].(type) {
		case []any, map[string]any:
			known = true
		}
	}
	if known {
		f.children(v, 0)
	}
	return known
}

// walk writes a node or a list of them.
func (f *flattener) walk(v any, depth int) {
	if depth > MaxDepth {
		return
	}
	switch v := v.(type) {
	case string:
		f.block(v)
	case []any:
		for _, e := range v {
			f.walk(e, depth+1)
		}
		if f.b.Len() > 0 {
			f.b.WriteByte('\n')
		}
	case map[string]any:
		f.node(v, depth)
	}
}

func (f *flattener) node(v map[string]any, depth int) {
	if v["text_size"] == "notation" {
		return // a grey note
	}
	text, ok := v["text"].(string)
	if !ok {
		text, _ = v["content"].(string)
	}
	switch v["tag"] {
	case "note", "button", "code_block", "code_span", "img":
	case "text", "a":
		if !isCode(v["style"]) {
			f.b.WriteString(text)
		}
	case "md", "markdown", "lark_md", "plain_text":
		f.block(text)
	case "at":
		f.b.WriteString(newAtNode(v).tag())
	default:
		f.children(v, depth)
	}
}

// children writes the elements of a container, in display order.
func (f *flattener) children(v map[string]any, depth int) {
	f.flush()
	for _, key := range []string{"header", "title", "text", "fields", "columns", "elements", "body"} {
		f.walk(v[key], depth+1)
	}
	f.flush()
}

// isCode reports whether a post's list of styles marks the text as code.
func isCode(style any) bool {
	list, _ := style.([]any)
	return slices.ContainsFunc(list, func(v any) bool {
		s, _ := v.(string)
		return strings.HasPrefix(strings.ToLower(s), "code")
	})
}

// atNode is an {"tag":"at"} of a post or card.
type atNode struct{ ids, key, name string }

func newAtNode(v map[string]any) atNode {
	var n atNode
	for _, key := range []string{"user_id", "open_id", "id", "ids"} {
		if n.ids != "" {
			break
		}
		switch id := v[key].(type) {
		case string:
			n.ids = id
		case []any:
			var list []string
			for _, e := range id {
				if s, ok := e.(string); ok {
					list = append(list, s)
				}
			}
			n.ids = strings.Join(list, ",")
		}
	}
	n.key, _ = v["mention_key"].(string)
	n.name, _ = v["user_name"].(string)
	if n.name == "" {
		n.name, _ = v["name"].(string)
	}
	return n
}

// tag returns the node as an at-tag, for the scanner.
func (n atNode) tag() string {
	escape := func(s string) string { return html.EscapeString(strings.Join(strings.Fields(s), " ")) }
	open := `<at ids="` + escape(n.ids) + `" mention_key="` + escape(n.key) + `">`
	name := escape(n.name)
	if len(open) > maxTag {
		return "" // the scanner would read it as text
	}
	if len(name)+len("</at>") > maxTagName {
		name = ""
	}
	return open + name + `</at>`
}
