package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// Named is a name in a text, text[From:To] with its '@', and whom it means.
type Named struct {
	From, To int
	OpenID   relay.OpenID
	Name     string
}

// linkRE finds links and labels in markdown and tags: a mention in one breaks it.
var linkRE = regexp.MustCompile(`\[[^\[\]\n]*\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|` +
	`(?is)<(?:a|link|text_tag|number_tag)\b[^>]*>.*?</(?:a|link|text_tag|number_tag)\s*>`)

// maxSent is the most bytes of a content that WithMentions reads; Feishu takes no longer one
// (docs/feishu.md 6.3).
const maxSent = 256 << 10

// WithMentions returns a content as its sender writes it, of a text, a post or an inline card,
// with a mention in the place of each name that find finds in its texts: an at-tag, or in a
// post's text an at-node. Names in links, in code blocks, buttons and notes stay, and so does
// the rest of the JSON. changed is false where nothing is to be changed.
func WithMentions(msgType, content string, find func(text string) []Named) (out string, changed bool) {
	if len(content) > maxSent || tooDeep([]byte(content)) || !json.Valid([]byte(content)) {
		return content, false
	}
	w := mentionWriter{data: []byte(content), find: find}
	all := span{0, len(content)}
	switch msgType {
	case "text":
		w.text(w.members(all)["text"], Named.Tag)
	case "post":
		w.post(all)
	case "interactive":
		w.card(all)
	}
	if len(w.edits) == 0 || w.err != nil {
		return content, false
	}
	return string(w.edited()), true
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

// span is where a JSON value is.
type span struct{ from, to int }

// mentionWriter collects what is to be changed in data.
type mentionWriter struct {
	data  []byte
	find  func(text string) []Named
	edits []edit // in order
	err   error
}

// edit is what is in the place of a value.
type edit struct {
	span
	with []byte
}

func (w *mentionWriter) edited() []byte {
	var out []byte
	end := 0
	for _, e := range w.edits {
		out = append(append(out, w.data[end:e.from]...), e.with...)
		end = e.to
	}
	return append(out, w.data[end:]...)
}

func (w *mentionWriter) put(at span, with []byte) { w.edits = append(w.edits, edit{at, with}) }

// values yields the values of the JSON object or list at a place, with their keys.
func (w *mentionWriter) values(at span) iter.Seq2[string, span] {
	return func(yield func(string, span) bool) {
		d := json.NewDecoder(bytes.NewReader(w.data[at.from:at.to]))
		open, err := d.Token()
		if err != nil || open != json.Delim('{') && open != json.Delim('[') {
			return
		}
		for d.More() {
			key := ""
			if open == json.Delim('{') {
				t, err := d.Token()
				if err != nil {
					w.err = err
					return
				}
				key, _ = t.(string)
			}
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				w.err = err
				return
			}
			to := at.from + int(d.InputOffset())
			if !yield(key, span{to - len(value), to}) {
				return
			}
		}
	}
}

func (w *mentionWriter) members(at span) map[string]span {
	all := map[string]span{}
	for key, value := range w.values(at) {
		if _, twice := all[key]; twice {
			w.err = errTwice
		}
		all[key] = value
	}
	return all
}

var errTwice = errors.New("a member is there twice")

// string is the text of the JSON string at a place.
func (w *mentionWriter) string(at span) (text string, ok bool) {
	if at.from == at.to || w.data[at.from] != '"' {
		return "", false
	}
	return text, json.Unmarshal(w.data[at.from:at.to], &text) == nil
}

// names are those in text that become mentions.
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
	text, ok := w.string(at)
	if !ok {
		return
	}
	var b strings.Builder
	end := 0
	for _, n := range w.names(text) {
		b.WriteString(text[end:n.From] + tag(n))
		end = n.To
	}
	if end > 0 {
		w.putText(at, b.String()+text[end:])
	}
}

func (w *mentionWriter) putText(at span, text string) {
	value, err := compact(text)
	if err != nil {
		w.err = err
		return
	}
	w.put(at, value)
}

// post changes the paragraphs of a post, in all its languages.
func (w *mentionWriter) post(at span) {
	for key, value := range w.values(at) {
		switch {
		case w.data[value.from] == '{':
			w.post(value)
		case key == "content":
			for _, paragraph := range w.values(value) {
				for _, node := range w.values(paragraph) {
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
		value, err := compact(text)
		if err == nil {
			value, err = SetMember(w.data[at.from:at.to], "text", value)
		}
		if err != nil {
			w.err = err
		}
		if text != "" {
			nodes = append(nodes, value)
		}
	}
	end := 0
	for _, n := range w.names(text) {
		part(text[end:n.From])
		node, err := compact(struct {
			Tag    string       `json:"tag"`
			UserID relay.OpenID `json:"user_id"`
		}{"at", n.OpenID})
		if err != nil {
			w.err = err
		}
		nodes = append(nodes, node)
		end = n.To
	}
	if end > 0 {
		part(text[end:])
		w.put(at, bytes.Join(nodes, []byte(",")))
	}
}

// card changes the markdown of a card. Buttons, notes and the header show no mentions.
func (w *mentionWriter) card(at span) {
	if w.data[at.from] != '{' {
		for _, value := range w.values(at) {
			w.inner(value)
		}
		return
	}
	members := w.members(at)
	switch tag, _ := w.string(members["tag"]); tag {
	case "button", "note", "code_block", "code_span", "img", "plain_text":
		return
	case "markdown", "lark_md":
		if size, _ := w.string(members["text_size"]); size != "notation" {
			w.text(members["content"], cardTag)
		}
		return
	}
	if kind, _ := w.string(members["type"]); kind == "template" || kind == "card" {
		return
	}
	for key, value := range w.values(at) {
		if key != "header" {
			w.inner(value)
		}
	}
}

func (w *mentionWriter) inner(at span) {
	if c := w.data[at.from]; c == '{' || c == '[' {
		w.card(at)
	}
}
