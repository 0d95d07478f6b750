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

// Rewrite returns the content of a text, a post or an inline card, as its sender writes it, with a mention for each
// name that find finds in its texts, in all its languages: an at-tag, or in a post's text an at-node. Names in links,
// code, titles, buttons, notes and panels stay. changed is false if there is nothing to change.
func Rewrite(msgType, raw string, find func(text string) []Named) (out string, changed bool) {
	root, err := jsontree.Object([]byte(raw), MaxBytes)
	if err != nil || jsontree.Field(root, "user_dsl") != "" || root["type"] == "card_json" {
		return raw, false // or a card in a string, which is left as it is
	}
	locales := slices.Concat([]string{""}, slices.Sorted(maps.Keys(root)),
		slices.Sorted(maps.Keys(jsontree.Member(root, "i18n_elements"))))
	for _, locale := range locales {
		b := builder{doc: &Doc{Type: msgType}, locale: locale, find: find}
		b.content(root)
		changed = changed || b.found
	}
	data, err := relay.Marshal(root)
	if err != nil || !changed {
		return raw, false
	}
	return string(data), true
}

// marked returns a text with a mention for each name in it.
func (b *builder) marked(text string, tag func(Named) string) string {
	links := linkRE.FindAllStringIndex(text, -1)
	var out strings.Builder
	end := 0
	for _, n := range b.find(text) {
		if !slices.ContainsFunc(links, func(l []int) bool { return n.From < l[1] && l[0] < n.To }) {
			out.WriteString(text[end:n.From] + tag(n))
			end, b.found = n.To, true
		}
	}
	return out.String() + text[end:]
}

// rewrite changes the text of an element. Small print, titles and panels show no mentions, or mention nobody.
func (b *builder) rewrite(v map[string]any) {
	if b.find == nil || v["tag"] == "plain_text" || b.within.note || b.within.panel != nil ||
		b.within.Part != Body {
		return
	}
	tag := Named.Tag
	if b.isCard() {
		tag = func(n Named) string { return "<at id=" + string(n.OpenID) + "></at>" }
	}
	for _, key := range []string{"text", "content"} {
		if text, ok := v[key].(string); ok {
			v[key] = b.marked(text, tag)
		}
	}
}

// withNodes returns a paragraph of a post with at-nodes for the names in its texts.
func (b *builder) withNodes(paragraph []any) []any {
	out := make([]any, 0, len(paragraph)) // an empty paragraph stays one
	for _, n := range paragraph {
		node, _ := n.(map[string]any)
		text, isText := node["text"].(string)
		if node["tag"] != "text" || !isText || isCode(node) || strings.Contains(text, "\x00") {
			out = append(out, n)
			continue
		}
		marked := b.marked(text, func(n Named) string { return "\x00" + string(n.OpenID) + "\x00" })
		for i, part := range strings.Split(marked, "\x00") {
			one := maps.Clone(node)
			if one["text"] = part; i%2 == 1 {
				one = map[string]any{"tag": "at", "user_id": part}
			}
			if part != "" || text == "" {
				out = append(out, one)
			}
		}
	}
	return out
}
