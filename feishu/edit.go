package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// Named is a name in a text, text[From:To] with its '@', and the id it stands for.
type Named struct {
	From, To int
	OpenID   relay.OpenID
	Name     string
}

// linkRE matches links and labels in markdown and tags: a mention inside would break them.
var linkRE = regexp.MustCompile(`\[[^\[\]\n]*\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|` +
	`(?is)<(?:a|link|text_tag|number_tag)\b[^>]*>.*?</(?:a|link|text_tag|number_tag)\s*>`)

// maxSent is the most bytes of a content that WithMentions reads; Feishu refuses a longer one
// (docs/feishu.md 6.3).
const maxSent = 256 << 10

// WithMentions returns the content of a text, a post or an inline card, as its sender writes it,
// with a mention for each name that find finds in its texts: an at-tag, or in a
// post's text an at-node. Names in links, in code blocks, buttons and notes stay, and so does
// the rest of the JSON. changed is false if there is nothing to change.
func WithMentions(msgType, content string, find func(text string) []Named) (out string, changed bool) {
	if len(content) > maxSent || relay.Deeper([]byte(content), maxDepth) || !json.Valid([]byte(content)) {
		return content, false
	}
	w := mentionWriter{data: []byte(content), find: find}
	all := span{len(content) - len(strings.TrimLeft(content, jsonSpace)), len(content)}
	switch msgType {
	case "text":
		w.text(w.members(all)["text"], Named.Tag)
	case "post":
		w.post(all)
	case "interactive":
		w.card(all)
	}
	if len(w.edits) == 0 || w.ambiguous {
		return content, false
	}
	return w.edited(), true
}

// Tag is a mention in a text, and in a post's markdown (docs/feishu.md 5.1).
func (n Named) Tag() string {
	name := n.Name
	if strings.ContainsAny(name, "<>&\"") {
		name = ""
	}
	return `<at user_id="` + string(n.OpenID) + `">` + name + `</at>`
}

// cardTag is a mention in a card's markdown (docs/feishu.md 5.1).
func cardTag(n Named) string { return "<at id=" + string(n.OpenID) + "></at>" }

// mentionWriter collects what is to be changed in data, which is valid JSON.
type mentionWriter struct {
	data      []byte
	find      func(text string) []Named
	edits     []edit // in order
	ambiguous bool   // a member occurs twice
}

// edit replaces a value.
type edit struct {
	span
	with []byte
}

func (w *mentionWriter) edited() string {
	var out strings.Builder
	end := 0
	for _, e := range w.edits {
		out.Write(w.data[end:e.from])
		out.Write(e.with)
		end = e.to
	}
	out.Write(w.data[end:])
	return out.String()
}

func (w *mentionWriter) members(at span) map[string]span {
	all := map[string]span{}
	for key, value := range values(w.data, at) {
		if _, twice := all[key]; twice {
			w.ambiguous = true
		}
		all[key] = value
	}
	return all
}

// string is the text of the JSON string at a place.
func (w *mentionWriter) string(at span) (text string, ok bool) {
	if at.from == at.to || w.data[at.from] != '"' {
		return "", false
	}
	return text, json.Unmarshal(w.data[at.from:at.to], &text) == nil
}

// names returns the names in text that become mentions.
func (w *mentionWriter) names(text string) []Named {
	found := w.find(text)
	if len(found) == 0 {
		return nil
	}
	links := linkRE.FindAllStringIndex(text, -1)
	return slices.DeleteFunc(found, func(n Named) bool {
		return slices.ContainsFunc(links, func(l []int) bool { return n.From < l[1] && l[0] < n.To })
	})
}

// text changes the JSON string at a place.
func (w *mentionWriter) text(at span, tag func(Named) string) {
	text, _ := w.string(at)
	var b strings.Builder
	end := 0
	for _, n := range w.names(text) {
		b.WriteString(text[end:n.From] + tag(n))
		end = n.To
	}
	if end > 0 {
		w.edits = append(w.edits, edit{at, compact(b.String() + text[end:])})
	}
}

// post changes the paragraphs of a post, in all its languages.
func (w *mentionWriter) post(at span) {
	for key, value := range values(w.data, at) {
		switch {
		case w.data[value.from] == '{':
			w.post(value)
		case key == "content":
			for _, paragraph := range values(w.data, value) {
				for _, node := range values(w.data, paragraph) {
					w.node(node)
				}
			}
		}
	}
}

// node changes a node of a post.
func (w *mentionWriter) node(at span) {
	if w.data[at.from] != '{' {
		return
	}
	members := w.members(at)
	switch tag, _ := w.string(members["tag"]); tag {
	case "md":
		w.text(members["text"], Named.Tag)
	case "text":
		text, ok := w.string(members["text"])
		if ok && !bytes.Contains(w.data[members["style"].from:members["style"].to], []byte(`"code`)) {
			w.split(at, text)
		}
	}
}

// split puts at-nodes into the text node at a place.
func (w *mentionWriter) split(at span, text string) {
	var nodes [][]byte
	part := func(text string) {
		if text != "" {
			node, _ := SetMember(w.data[at.from:at.to], "text", compact(text)) // fails only for what is not an object
			nodes = append(nodes, node)
		}
	}
	end := 0
	for _, n := range w.names(text) {
		part(text[end:n.From])
		nodes = append(nodes, fmt.Appendf(nil, `{"tag":"at","user_id":%s}`, compact(string(n.OpenID))))
		end = n.To
	}
	if end > 0 {
		part(text[end:])
		w.edits = append(w.edits, edit{at, bytes.Join(nodes, []byte(","))})
	}
}

// card changes the markdown in an element of a card or a list of them. Buttons, notes and the header show no mentions.
func (w *mentionWriter) card(at span) {
	if w.data[at.from] == '{' {
		members := w.members(at)
		tag, _ := w.string(members["tag"])
		size, _ := w.string(members["text_size"])
		kind, _ := w.string(members["type"])
		switch {
		case (tag == "markdown" || tag == "lark_md") && size != "notation":
			w.text(members["content"], cardTag)
			return
		case slices.Contains(withoutMentions, tag) || kind == "template" || kind == "card":
			return
		}
	}
	for key, value := range values(w.data, at) {
		if key != "header" {
			w.card(value)
		}
	}
}

// withoutMentions are the elements of a card that show no mentions.
var withoutMentions = []string{"button", "note", "code_block", "code_span", "img", "plain_text", "markdown", "lark_md"}

var errNotTextOrPost = errors.New("is not a text or post")

// WithBefore returns an event with before in front of its message, a text or post; see
// [Passage]. The rest of the JSON stays as it is. An error quotes nothing.
func WithBefore(event []byte, before string) ([]byte, error) {
	out, err := withBefore(event, harmless(before))
	if err != nil {
		return nil, fmt.Errorf("change an event: it %w", err)
	}
	return out, nil
}

func withBefore(event []byte, before string) ([]byte, error) {
	message, at := event, 0
	for _, key := range []string{"event", "message"} {
		from, to, err := Member(message, key)
		if err != nil {
			return nil, err
		}
		message, at = message[from:to], at+from
	}
	var m struct {
		Type    string `json:"message_type"`
		Content string `json:"content"`
	}
	err := json.Unmarshal(message, &m)
	if err != nil {
		return nil, withoutText(err)
	}
	content := []byte(m.Content)
	switch m.Type {
	case "text":
		content, err = textBefore(content, before)
	case "post":
		content, err = paragraphBefore(content, before)
	default:
		err = errNotTextOrPost
	}
	if err != nil {
		return nil, err
	}
	changed, err := SetMember(message, "content", compact(string(content)))
	return slices.Concat(event[:at], changed, event[at+len(message):]), err
}

// textBefore changes the content of a text.
func textBefore(content []byte, before string) ([]byte, error) {
	from, to, err := Member(content, "text")
	if err != nil {
		return nil, err
	}
	var text string
	if json.Unmarshal(content[from:to], &text) != nil {
		return nil, errNotTextOrPost
	}
	return slices.Concat(content[:from], compact(before+text), content[to:]), nil
}

// paragraphBefore changes the content of a post, in both its forms (docs/feishu.md 3.2).
func paragraphBefore(content []byte, before string) ([]byte, error) {
	paragraph := fmt.Appendf(nil, `[{"tag":"text","text":%s}]`, compact(strings.TrimRight(before, "\n")))
	found := false
	for _, key := range []string{"content", "content_v2"} {
		from, to, err := Member(content, key)
		if err != nil {
			return nil, err
		}
		rest, isList := bytes.CutPrefix(content[from:to], []byte("["))
		if !isList {
			continue
		}
		if !bytes.HasPrefix(bytes.TrimLeft(rest, jsonSpace), []byte("]")) {
			rest = slices.Concat([]byte(","), rest)
		}
		content = slices.Concat(content[:from], []byte("["), paragraph, rest, content[to:])
		found = true
	}
	if !found {
		return nil, errNotTextOrPost
	}
	return content, nil
}
