package feishu

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// maxRows is how many rows of a card's table are written; "…" stands for the
// others.
const maxRows = 100

var (
	greyRE   = regexp.MustCompile(`(?is)^\s*<font\s+color\s*=\s*['"]?gr[ea]y['"]?\s*>(.*)</font>\s*$`)
	creditRE = regexp.MustCompile(`(?i)\b(?:agent|model)\s*[:：]`)
	fontRE   = regexp.MustCompile(`(?i)</?(?:font|text_tag)(?:\s[^<>\n]*)?>`)
)

// Text returns the words of the card in the order in which they are shown, its
// header first; without its footer (docs/feishu.md 5.2): notes, the grey line about
// agent and model, a rule at the end. Mentions stay tags ([WithNames] names
// them). A card without words but with images gives "[图片]" for each. A template
// shows the titles among its variables, else "[卡片]"; a reference by card_id "".
func (c *Card) Text() string {
	return fontRE.ReplaceAllString(c.render(), "")
}

// Mentions returns whom the card names: at-tags in its markdown and nodes for
// people, in order and each once. Names are those that the card says.
func (c *Card) Mentions() []Mention { return tagged(c.render()) }

// render writes the card with its tags and colours.
func (c *Card) render() string {
	switch c.root["type"] {
	case "card":
		return ""
	case "template":
		return templateText(c.root)
	}
	var w writer
	w.card(c.root)
	w.flush()
	w.dropFooter()
	text := make([]string, len(w.blocks))
	for i, b := range w.blocks {
		text[i] = b.text
	}
	if len(text) == 0 {
		return strings.Join(slices.Repeat([]string{words["image"]}, min(w.images, maxKeys)), "\n")
	}
	return strings.Join(text, "\n")
}

func templateText(root map[string]any) string {
	data, _ := root["data"].(map[string]any)
	variables, _ := data["template_variable"].(map[string]any)
	var titles []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if text := field(variables, name); text != "" && strings.Contains(strings.ToLower(name), "title") {
			titles = append(titles, text)
		}
	}
	if len(titles) == 0 {
		return words["interactive"]
	}
	return strings.Join(titles, "\n")
}

// block is a line or more of a card.
type block struct {
	text string
	rule bool
}

// writer turns a card into blocks.
type writer struct {
	blocks []block
	line   strings.Builder // inline nodes of an older card's paragraph
	at     bool            // line ends in a mention
	images int
}

func (w *writer) block(text string) {
	w.flush()
	if strings.TrimSpace(text) != "" {
		w.blocks = append(w.blocks, block{text: strings.Trim(text, "\n")})
	}
}

func (w *writer) inline(text string) {
	if w.at && goesOn(text) {
		w.line.WriteByte(' ')
	}
	w.line.WriteString(text)
	w.at = false
}

func (w *writer) flush() {
	text := w.line.String()
	w.line.Reset()
	w.at = false
	if strings.TrimSpace(text) != "" {
		w.blocks = append(w.blocks, block{text: text})
	}
}

func (w *writer) card(root map[string]any) {
	isTitled := func(v any) bool { m, _ := v.(map[string]any); return isObject(m["title"]) }
	header := root["header"]
	if i18n, ok := root["i18n_header"].(map[string]any); ok && !isTitled(header) {
		header = localized(i18n, isTitled)
	}
	if h, ok := header.(map[string]any); ok {
		w.walk(h["title"], 1)
		w.walk(h["subtitle"], 1)
	}
	w.block(field(root, "title"))
	if i18n, ok := root["i18n_elements"].(map[string]any); ok && !isList(root["elements"]) {
		w.walk(localized(i18n, isList), 1)
	}
	w.walk(root["elements"], 1)
	if body, ok := root["body"].(map[string]any); ok {
		w.walk(body["elements"], 2)
	}
}

// walk writes a node or a list of them; a list in a list is a paragraph.
func (w *writer) walk(v any, depth int) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			w.walk(e, depth+1)
		}
		w.flush()
	case map[string]any:
		w.node(v, depth)
	}
}

func (w *writer) node(v map[string]any, depth int) {
	if v["element_id"] == "note" || v["text_size"] == "notation" {
		return // a footer
	}
	switch v["tag"] {
	case "markdown", "lark_md", "md", "plain_text":
		w.block(translated(v))
	case "text":
		w.inline(field(v, "text", "content"))
	case "a":
		w.inline(link(field(v, "text", "content"), field(v, "href")))
	case "at":
		w.line.WriteString(atNode(v))
		w.at = true
	case "person":
		w.block(atNode(v))
	case "person_list":
		w.people(v)
	case "hr":
		w.flush()
		w.blocks = append(w.blocks, block{text: "---", rule: true})
	case "img", "img_combination":
		w.images++
	case "table":
		w.table(v)
	case "note", "button", "action", "overflow", "input", "select_static", "multi_select_static", "select_person",
		"multi_select_person", "select_img", "date_picker", "picker_time", "picker_datetime", "chart", "audio":
		// what is no part of the text, or is there to be pressed
	default:
		w.flush()
		for _, key := range []string{"header", "title", "text", "fields", "columns", "elements", "body"} {
			w.walk(v[key], depth+1)
		}
	}
}

// translated is a text element's content, or one of its translations.
func translated(v map[string]any) string {
	if text := field(v, "content"); text != "" {
		return text
	}
	for _, key := range []string{"i18n_content", "i18n"} {
		if i18n, ok := v[key].(map[string]any); ok {
			if text, ok := localized(i18n, isText).(string); ok {
				return text
			}
		}
	}
	return ""
}

func (w *writer) people(v map[string]any) {
	list, _ := v["persons"].([]any)
	var names []string
	for _, e := range list {
		if one, ok := e.(map[string]any); ok {
			names = append(names, atNode(one))
		}
	}
	w.block(strings.Join(names, " "))
}

// table writes a line for the columns' names and one for each row.
func (w *writer) table(v map[string]any) {
	columns, _ := v["columns"].([]any)
	rows, _ := v["rows"].([]any)
	var keys, head []string
	for _, e := range columns {
		column, _ := e.(map[string]any)
		keys = append(keys, field(column, "name"))
		head = append(head, oneLine(field(column, "display_name", "name")))
	}
	lines := []string{strings.Join(head, " | ")}
	for i, e := range rows {
		if i == maxRows {
			lines = append(lines, "…")
			break
		}
		row, _ := e.(map[string]any)
		cells := make([]string, len(keys))
		for j, key := range keys {
			cells[j] = cell(row[key])
		}
		lines = append(lines, strings.Join(cells, " | "))
	}
	if len(keys) > 0 {
		w.block(strings.Join(lines, "\n"))
	}
}

// cell writes a value of a table: a text, a number, or a list of labels.
func cell(v any) string {
	switch v := v.(type) {
	case string:
		return oneLine(v)
	case json.Number, bool:
		return fmt.Sprint(v)
	case []any:
		var labels []string
		for _, e := range v {
			if label, ok := e.(map[string]any); ok {
				labels = append(labels, oneLine(field(label, "text", "id")))
			} else if text, ok := e.(string); ok {
				labels = append(labels, oneLine(text))
			}
		}
		return strings.Join(labels, " ")
	}
	return ""
}

// dropFooter takes away what stands below the text: rules, and a grey line
// behind a rule or about agent and model, also inside of the last block.
func (w *writer) dropFooter() {
	for n := len(w.blocks); n > 0; n = len(w.blocks) {
		last := &w.blocks[n-1]
		isGrey := grey(last.text)
		switch {
		case last.rule, isGrey && creditRE.MatchString(last.text), isGrey && n > 1 && w.blocks[n-2].rule:
			w.blocks = w.blocks[:n-1]
			continue
		}
		before, line := lastLine(last.text)
		if before == "" || !grey(line) || !creditRE.MatchString(line) {
			return
		}
		for before != "" {
			rest, line := lastLine(before)
			if line = strings.TrimSpace(line); line != "" && strings.Trim(line, "-*_") != "" {
				break
			}
			before = rest
		}
		last.text = before
		if before == "" {
			w.blocks = w.blocks[:n-1]
		}
		return
	}
}

// grey reports whether the whole text is one grey span.
func grey(text string) bool {
	m := greyRE.FindStringSubmatch(text)
	return m != nil && !strings.Contains(strings.ToLower(m[1]), "</font>")
}

// lastLine cuts the last line off text.
func lastLine(text string) (before, line string) {
	i := strings.LastIndexByte(text, '\n')
	return text[:max(i, 0)], text[i+1:]
}
