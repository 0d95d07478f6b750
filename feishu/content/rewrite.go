package content

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/jsontree"
	"feishu-relay/relay"
)

// Named is a name in a text, text[From:To] with its '@', and the id it stands for.
type Named struct {
	From, To int
	OpenID   relay.OpenID
	Name     string
}

// Tag is a mention in a text, and in a post's markdown (docs/feishu.md 5.1).
func (n Named) Tag() string {
	name := n.Name
	if strings.ContainsAny(name, "<>&\"") {
		name = ""
	}
	return `<at user_id="` + string(n.OpenID) + `">` + name + `</at>`
}

// linkRE matches links and labels in markdown and tags: a mention inside would break them.
var linkRE = regexp.MustCompile(`\[[^\[\]\n]*\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|` +
	`(?is)<(?:a|link|text_tag|number_tag)\b[^>]*>.*?</(?:a|link|text_tag|number_tag)\s*>`)

// Rewrite returns the content of a text or a post, as its sender writes it, with a mention for each name that find
// finds in its texts, in all its languages: an at-tag, or in a post's text an at-node. Names in links, code and titles
// stay. changed is false if there is nothing to change.
func Rewrite(msgType, raw string, find func(text string) []Named) (out string, changed bool) {
	root, err := jsontree.Object([]byte(raw), MaxBytes)
	names := func(text string) []Named {
		links := linkRE.FindAllStringIndex(text, -1)
		found := slices.DeleteFunc(find(text), func(n Named) bool {
			return slices.ContainsFunc(links, func(l []int) bool { return n.From < l[1] && l[0] < n.To })
		})
		changed = changed || len(found) > 0
		return found
	}
	switch msgType {
	case "text":
		mark(root, names)
	case "post":
		for language := range root {
			paragraphs, _ := jsontree.Member(root, language)["content"].([]any)
			for i, p := range paragraphs {
				if nodes, ok := p.([]any); ok {
					paragraphs[i] = withNodes(nodes, names)
				}
			}
		}
	}
	if err != nil || !changed {
		return raw, false
	}
	data, err := relay.Marshal(root)
	return string(data), err == nil
}

// mark puts an at-tag in the place of each name in the text of a node.
func mark(node map[string]any, names func(string) []Named) {
	text, ok := node["text"].(string)
	if !ok {
		return
	}
	var out strings.Builder
	end := 0
	for _, n := range names(text) {
		out.WriteString(text[end:n.From] + n.Tag())
		end = n.To
	}
	node["text"] = out.String() + text[end:]
}

// withNodes returns a paragraph of a post with at-nodes for the names in its texts.
func withNodes(paragraph []any, names func(string) []Named) []any {
	out := make([]any, 0, len(paragraph)) // an empty paragraph stays one
	for _, n := range paragraph {
		node, _ := n.(map[string]any)
		text, isText := node["text"].(string)
		if node["tag"] == "md" {
			mark(node, names)
		}
		if node["tag"] != "text" || !isText || isCode(node) {
			out = append(out, n)
			continue
		}
		end := 0
		for _, n := range append(names(text), Named{From: len(text)}) { // the last is what is behind all names
			if n.From > end || text == "" {
				part := maps.Clone(node)
				part["text"] = text[end:n.From]
				out = append(out, part)
			}
			if end = n.To; n.OpenID != "" {
				out = append(out, map[string]any{"tag": "at", "user_id": n.OpenID})
			}
		}
	}
	return out
}
