package content

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// builder makes the blocks of a Doc.
type builder struct {
	doc    *Doc
	line   []Span // of the paragraph that is being read
	within Block  // what is being read: its part, panel and whether it is small print
}

// panel is a part of a card that folds.
type panel struct{ thinks bool }

func (b *builder) isCard() bool { return b.doc.Type == typeCard }

// add appends a block behind the paragraph that is being read.
func (b *builder) add(part Part, own bool, spans ...Span) {
	b.flush()
	block := b.within
	block.Part, block.Own, block.Spans = max(part, block.Part), own, spans
	b.doc.Blocks = append(b.doc.Blocks, block)
}

// own appends a text that is read on its own; finish makes its spans.
func (b *builder) own(text string) {
	if b.doc.Type != "text" {
		text = strings.Trim(text, "\n")
	}
	if strings.TrimSpace(text) != "" {
		b.add(Body, true, Span{Text: text})
	}
}

// inline appends spans to the paragraph.
func (b *builder) inline(spans ...Span) {
	for _, s := range spans {
		if n := len(b.line); n > 0 && b.line[n-1].Kind == SpanMention && s.Kind != SpanMention && goesOnRE.MatchString(s.Text) {
			b.line = append(b.line, Span{Text: " "})
		}
		if s.Text+s.Href+s.File.Key != "" {
			b.line = append(b.line, s)
		}
	}
}

// flush ends the paragraph.
func (b *builder) flush() {
	line := b.line
	b.line = nil
	if slices.ContainsFunc(line, func(s Span) bool { return strings.TrimSpace(s.Text+s.Href+s.File.Key) != "" }) {
		b.add(Body, false, line...)
	}
}

// attachment reads a content that is a file or something else without a text: its name, or what was said in it.
func (b *builder) attachment(root map[string]any) {
	file := fileOf(root)
	file.Text = strings.TrimSpace(word(b.doc.Type) + " " +
		runes.OneLine(jsontree.Field(root, "file_name", "speech_to_text", "recognition")))
	b.inline(file, imageOf(root))
}

func fileOf(v map[string]any) Span {
	return Span{Kind: SpanFile, Text: words["media"],
		File: newFile(jsontree.Field(v, "file_key"), relay.FileOther, jsontree.Field(v, "file_name"))}
}

func imageOf(v map[string]any) Span {
	return Span{Kind: SpanFile, File: newFile(jsontree.Field(v, "image_key", "img_key"), relay.FileImage, "")}
}

// findPost returns the part of a post that has its paragraphs; nil if there is none.
func findPost(root map[string]any) map[string]any {
	if inner := jsontree.Member(root, "post"); inner != nil {
		root = inner
	}
	isPost := func(v any) bool {
		m, _ := v.(map[string]any)
		return jsontree.IsList(m["content"]) || jsontree.IsList(m["content_v2"])
	}
	if isPost(root) {
		return root
	}
	post, _ := jsontree.Localized(root, isPost).(map[string]any)
	return post
}

// post reads a post. content_v2 has the markdown that content lost (docs/feishu.md 3.2).
func (b *builder) post(root map[string]any) {
	post := findPost(root)
	b.doc.shown = post == nil && len(root) > 0
	b.own(jsontree.Field(post, "title"))
	first, _ := post["content_v2"].([]any)
	b.paragraphs(first)
	if len(first) > 0 {
		b.within.Part = Hidden // but its files may be missing in the first form
	}
	other, _ := post["content"].([]any)
	b.paragraphs(other)
}

func (b *builder) paragraphs(list []any) {
	for _, p := range list {
		before := len(b.doc.Blocks)
		for node := range jsontree.Objects(p) {
			b.node(node)
		}
		if b.flush(); len(b.doc.Blocks) == before {
			b.add(Body, false)
		}
	}
}

// card reads a card as it is sent, made or received.
func (b *builder) card(root map[string]any) {
	if inner, err := CardOf(root); err == nil {
		root = inner
	} else {
		b.doc.shown = true
	}
	data := jsontree.Member(root, "data")
	b.doc.Streaming = jsontree.Member(root, "config")["streaming_mode"] == true
	switch root["type"] {
	case "card":
		b.doc.CardID = jsontree.Field(data, "card_id")
		return
	case "template":
		b.doc.shown = true
		b.variables(data["template_variable"])
		return
	}
	header := jsontree.Member(root, "header")
	if !jsontree.IsObject(header["title"]) {
		header, _ = jsontree.Localized(jsontree.Member(root, "i18n_header"), jsontree.IsObject).(map[string]any)
	}
	b.within.Part = Title
	b.walk([]any{header["title"], header["subtitle"]})
	b.own(jsontree.Field(root, "title"))
	b.within.Part = Body
	if b.walk(root["elements"]); !jsontree.IsList(root["elements"]) {
		b.walk(jsontree.Localized(jsontree.Member(root, "i18n_elements"), jsontree.IsList))
	}
	b.walk(jsontree.Member(root, "body")["elements"])
}

// CardOf returns the card in root, which is the card itself, or has its JSON as a text: in the form of CardKit's
// create, or of a received card.
func CardOf(root map[string]any) (map[string]any, error) {
	inner := jsontree.Field(root, "user_dsl")
	if root["type"] == "card_json" {
		inner = cmp.Or(inner, jsontree.Field(root, "data"))
	}
	if inner == "" {
		return root, nil
	}
	return jsontree.Object([]byte(inner), MaxBytes)
}

var idRE = regexp.MustCompile(`^(?:ou|on|oc|om|cli|img|file)_[A-Za-z0-9_-]+$`)

// variables reads the variables of a template, titles first. One that is only an id is not a text.
func (b *builder) variables(v any) {
	switch v := v.(type) {
	case string:
		if !idRE.MatchString(v) {
			b.own(v)
		}
	case []any:
		for _, e := range v {
			b.variables(e)
		}
	case map[string]any:
		for _, titles := range []bool{true, false} {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if strings.Contains(strings.ToLower(name), "title") == titles {
					b.variables(v[name])
				}
			}
		}
	}
}

// walk reads a node or a list of them; a list in a list is a paragraph.
func (b *builder) walk(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			b.walk(e)
		}
		b.flush()
	case map[string]any:
		b.node(v)
	}
}

// node reads a node of a post or an element of a card.
func (b *builder) node(v map[string]any) {
	defer func(outer Block) { b.within = outer }(b.within)
	b.within.note = b.within.note || v["tag"] == "note" || v["element_id"] == "note" || v["text_size"] == "notation"
	text := said(v)
	if v["un_escape"] == true {
		text = html.UnescapeString(text)
	}
	switch v["tag"] {
	case "markdown", "lark_md", "md", "plain_text":
		b.own(text)
	case "text":
		if isCode(v) {
			b.inline(Span{Kind: SpanCode, Text: text})
		} else {
			b.inline(inline(text)...)
		}
	case "a":
		b.inline(Span{Kind: SpanLink, Text: text, Href: jsontree.Field(v, "href")})
	case "at":
		b.inline(atNode(v))
	case "person", "person_list":
		b.flush()
		for i, person := range slices.Collect(jsontree.Objects(cmp.Or[any](v["persons"], v))) {
			b.inline(Span{Text: " "[:min(i, 1)]}, atNode(person))
		}
		b.flush()
	case "img", "img_combination":
		b.pictures(v)
	case "media":
		b.inline(fileOf(v), imageOf(v))
	case "emotion":
		b.inline(Span{Text: "[" + runes.OneLine(jsontree.Field(v, "emoji_type")) + "]"})
	case "hr":
		b.add(Rule, false, Span{Text: "---"})
	case "code_block", "code_span":
		fence := "```"
		for run := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '`' }) {
			fence = strings.Repeat("`", max(len(fence), len(run)+1))
		}
		b.add(Body, false, Span{Kind: SpanCode, Text: fence + runes.OneLine(jsontree.Field(v, "language")) + "\n" +
			strings.TrimSuffix(text, "\n") + "\n" + fence})
	case "table":
		b.table(v)
	case "chart":
		b.chart(jsontree.Member(v, "chart_spec"))
	case "button", "overflow", "input", "select_static", "multi_select_static", "select_person", "multi_select_person",
		"select_img", "date_picker", "picker_time", "picker_datetime", "checker":
		b.control(v)
	default:
		if b.isCard() {
			b.container(v)
		} else {
			b.inline(inline(text)...)
		}
	}
}

// said returns the text of an element, or one of its translations; v may also be a text itself.
func said(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	m, _ := v.(map[string]any)
	text := jsontree.Field(m, "text", "content")
	for _, key := range []string{"i18n_content", "i18n"} {
		translated, _ := jsontree.Localized(jsontree.Member(m, key), jsontree.IsText).(string)
		text = cmp.Or(text, translated)
	}
	return text
}

// isCode reports whether a node's list of styles marks its text as code.
func isCode(node map[string]any) bool {
	return strings.Contains(strings.ToLower(fmt.Sprint(node["style"])), "code")
}

// thinksRE matches the headers of panels with thoughts and calls of tools.
var thinksRE = regexp.MustCompile(`(?i)think|thought|reason|\btools?\b|思考|思维|推理|工具`)

// container reads an element that contains others, or an unknown one.
func (b *builder) container(v map[string]any) {
	b.flush()
	switch v["tag"] {
	case "collapsible_panel":
		b.within.panel = &panel{b.within.panel != nil && b.within.panel.thinks ||
			thinksRE.MatchString(said(jsontree.Member(v, "header")["title"]))}
	case "div", "column_set", "column", "form", "interactive_container", "action", "note", nil:
	default:
		b.doc.shown = true
	}
	for _, key := range []string{"header", "title", "text", "fields", "columns", "elements", "actions", "extra", "body"} {
		b.walk(v[key])
	}
}

// pictures reads images: in a card blocks, in a post a part of the paragraph.
func (b *builder) pictures(v map[string]any) {
	for one := range jsontree.Objects(cmp.Or[any](v["img_list"], v)) {
		s := imageOf(one)
		s.Text = words["image"]
		if b.isCard() {
			b.add(Pictures, false, s)
		} else {
			b.inline(s)
		}
	}
}

// table reads a table: a line for the names of its columns, and one for each row.
func (b *builder) table(v map[string]any) {
	var keys, head []string
	for column := range jsontree.Objects(v["columns"]) {
		keys = append(keys, jsontree.Field(column, "name"))
		head = append(head, runes.OneLine(jsontree.Field(column, "display_name", "name")))
	}
	if len(keys) > 0 {
		b.rows(strings.Join(head, " | "), v["rows"], keys)
	}
}

// chart reads a chart: its title and its values.
func (b *builder) chart(spec map[string]any) {
	b.doc.shown = true
	b.own(runes.OneLine(said(spec["title"])))
	for data := range jsontree.Objects(spec["data"]) {
		b.rows("", data["values"], nil)
	}
}

// rows reads rows with the given keys, or all that a row has.
func (b *builder) rows(head string, list any, keys []string) {
	lines := []string{head}
	rows, _ := list.([]any)
	for _, e := range rows {
		row, _ := e.(map[string]any)
		names := keys
		if names == nil {
			names = slices.Sorted(maps.Keys(row))
		}
		cells := make([]string, len(names))
		for j, name := range names {
			cells[j] = cell(row[name])
		}
		lines = append(lines, strings.Join(cells, " | "))
	}
	b.own(strings.Join(lines, "\n"))
}

// cell returns a value of a row as text: a text, a number, or a list of labels.
func cell(v any) string {
	switch v := v.(type) {
	case json.Number, bool:
		return fmt.Sprint(v)
	case []any:
		labels := make([]string, len(v))
		for i, e := range v {
			labels[i] = cell(e)
		}
		return strings.TrimSpace(strings.Join(labels, " "))
	}
	return runes.OneLine(said(v))
}

// control reads a button or the field of a form: in brackets its label, what it asks for and what can be chosen; then
// where it leads. Those beside each other are one line.
func (b *builder) control(v map[string]any) {
	b.flush()
	b.doc.shown = true
	href := cmp.Or(jsontree.Field(v, "url"), jsontree.Field(jsontree.Member(v, "multi_url"), "url", "pc_url"))
	for does := range jsontree.Objects(v["behaviors"]) {
		href = cmp.Or(href, jsontree.Field(does, "default_url", "pc_url"))
	}
	var options []string
	for option := range jsontree.Objects(v["options"]) {
		options = append(options, said(option["text"]))
	}
	label := []string{said(v["label"]), said(v["text"]), said(v["placeholder"]), strings.Join(options, " / ")}
	label = slices.DeleteFunc(label, func(text string) bool { return text == "" })
	s := Span{Kind: SpanLink, Text: "[" + runes.OneLine(strings.Join(label, ": ")) + "]", Href: href}
	if len(label) == 0 && href == "" {
		return
	}
	last := len(b.doc.Blocks) - 1
	if last >= 0 && b.doc.Blocks[last].Part == Controls && b.doc.Blocks[last].panel == b.within.panel {
		b.doc.Blocks[last].Spans = append(b.doc.Blocks[last].Spans, Span{Text: " "}, s)
		return
	}
	b.add(Controls, false, s)
}

// finish decides what is a footer or a thought, and makes the spans of the texts.
func (b *builder) finish() {
	b.flush()
	if b.isCard() {
		b.footers()
		b.thoughts()
	}
	for i := range b.doc.Blocks {
		if block := &b.doc.Blocks[i]; block.Own {
			text := block.Spans[0].Text
			if b.isCard() {
				text = fontRE.ReplaceAllString(text, "")
			}
			block.Spans = inline(text)
		}
	}
}

const grey = `<font\s+color\s*=\s*['"]?gr[ea]y['"]?\s*>`

var (
	fontRE   = regexp.MustCompile(`(?i)</?(?:font|text_tag)(?:\s[^<>\n]*)?>`)
	greyRE   = regexp.MustCompile(`(?is)^\s*` + grey + `[^<]*</font>\s*$`)
	creditRE = regexp.MustCompile(`(?i)\b(?:agent|model)\s*[:：]`)
	// lastLineRE matches a grey line about agent and model at the end of a text, with the rule before it.
	lastLineRE = regexp.MustCompile(`(?i)[\s*_-]*\n\s*` + grey + `[^<\n]*\b(?:agent|model)\s*[:：][^<\n]*</font>\s*$`)
)

// footers finds the footer below the text (docs/feishu.md 5.2): rules, small print, and a grey line after a rule or
// about agent and model, also within the last text. Buttons and images may be below it.
func (b *builder) footers() {
	var blocks []*Block
	for i := range b.doc.Blocks {
		if one := &b.doc.Blocks[i]; one.panel == nil && one.Part != Controls && one.Part != Pictures {
			blocks = append(blocks, one)
		}
	}
	for i, last := range slices.Backward(blocks) {
		text := last.Spans[0].Text
		if last.Part != Rule && !last.note &&
			(!greyRE.MatchString(text) || !creditRE.MatchString(text) && (i == 0 || blocks[i-1].Part != Rule)) {
			if last.Own {
				last.Spans[0].Text = lastLineRE.ReplaceAllString(text, "")
			}
			return
		}
		last.Part = Footer
	}
}

// thoughts decides what panels are: text only if the card has no other, and they are not about thoughts or tools. A
// card of such thoughts alone says nothing, with its header.
func (b *builder) thoughts() {
	var body, thinks, shows bool
	for _, one := range b.doc.Blocks {
		body = body || one.panel == nil && one.Part == Body
		thinks = thinks || one.panel != nil && one.panel.thinks
		shows = shows || b.doc.shown || one.panel != nil && !one.panel.thinks || one.Part == Pictures
	}
	for i := range b.doc.Blocks {
		switch one := &b.doc.Blocks[i]; {
		case one.panel != nil && !body && !one.panel.thinks:
			one.Quiet = true
		case one.panel != nil, one.Part == Title && thinks && !body && !shows:
			one.Part = Thought
		}
	}
}
