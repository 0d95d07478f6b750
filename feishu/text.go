package feishu

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"feishu-relay/relay"
)

// Text returns the readable text of m; see [Text].
func (m *Message) Text() string { return Text(m.Type, m.Content, m.Mentions) }

// IsText reports whether messages of a type are what somebody wrote, which can be edited (docs/feishu.md 5).
func IsText(msgType string) bool { return msgType == "text" || msgType == "post" }

// Text returns the readable text of a content (docs/feishu.md 3.2, 5.1): the text of
// texts, posts and cards with "@Name" for mentions, and a word in brackets, such
// as "[图片]", for other types. For a card that is sent by its card_id it is "":
// its text is in CardKit's calls. For a content of more than 1 MiB it is the
// word of its type, and for a text or post that is not JSON the content itself.
func Text(msgType, content string, mentions []Mention) string {
	word := words[msgType]
	if word == "" {
		word = "[" + oneLine(msgType) + "]"
	}
	if len(content) > maxContent {
		return word
	}
	v, err := object([]byte(content), maxContent)
	if err != nil && IsText(msgType) {
		return WithNames(content, mentions) // "This message was recalled" is not JSON
	}
	if err != nil {
		return word
	}
	switch msgType {
	case "text":
		return WithNames(field(v, "text"), mentions)
	case "post":
		return WithNames(postText(v), mentions)
	case "interactive":
		card, err := newCard(v)
		if err != nil {
			return word
		}
		return WithNames(card.Text(), mentions)
	case "file", "folder":
		return strings.TrimRight(word+" "+oneLine(field(v, "file_name")), " ")
	}
	return word
}

// Mentioned returns whom the at-tags and at-nodes of a content mention by their ids,
// in order and each once: those of a text, a post or a card as its sender writes it.
func Mentioned(msgType, content string) []Mention {
	v, err := object([]byte(content), maxContent)
	if err != nil {
		return nil
	}
	switch msgType {
	case "text":
		return tagged(field(v, "text"))
	case "post":
		return tagged(postText(v))
	case "interactive":
		if card, err := newCard(v); err == nil {
			return card.Mentions()
		}
	}
	return nil
}

// words replace contents without a text.
var words = map[string]string{
	"text":                 "[文本]",
	"post":                 "[富文本]",
	"interactive":          "[卡片]",
	"image":                "[图片]",
	"file":                 "[文件]",
	"folder":               "[文件夹]",
	"audio":                "[语音]",
	"media":                "[视频]",
	"video":                "[视频]",
	"sticker":              "[表情]",
	"share_chat":           "[群名片]",
	"share_user":           "[个人名片]",
	"merge_forward":        "[合并转发]",
	"location":             "[位置]",
	"system":               "[系统消息]",
	"todo":                 "[任务]",
	"vote":                 "[投票]",
	"hongbao":              "[红包]",
	"video_chat":           "[视频会议]",
	"calendar":             "[日程]",
	"general_calendar":     "[日程]",
	"share_calendar_event": "[日程]",
	"":                     "[消息]",
}

// everyone is how a mention of the whole chat is shown to people.
const everyone = "所有人"

// atTagPattern matches an at-tag in the spellings of text, post and card (docs/feishu.md 3.2, 5.1), with
// its name and closing tag if they follow.
const atTagPattern = `<at((?:\s+[a-z_-]+\s*=\s*(?:\\?"[^"<>\n]*"|\\?'[^'<>\n]*'|[^\s"'<>]+))*)\s*/?>(?:([^<\n]*)</at>)?`

var (
	mentionRE   = regexp.MustCompile(`(?i)` + atTagPattern + `|@_user_[0-9]+|@_all\b`)
	attributeRE = regexp.MustCompile(`(?i)([a-z_-]+)\s*=\s*(?:\\?"([^"]*)"|\\?'([^']*)'|(\S+))`)
	codeRE      = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")
)

// tag is the content of an at-tag.
type tag struct {
	ids   []string
	key   string // mention_key
	email string
	name  string
}

// newTag reads the attributes and the name of an at-tag.
func newTag(attributes, name string) tag {
	t := tag{name: strings.TrimSpace(oneLine(html.UnescapeString(name)))}
	for _, a := range attributeRE.FindAllStringSubmatch(attributes, -1) {
		value := html.UnescapeString(strings.TrimRight(a[2]+a[3]+a[4], `\/`))
		switch strings.ToLower(a[1]) {
		case "id", "ids", "user_id", "open_id":
			for id := range strings.SplitSeq(value, ",") {
				if id = strings.TrimSpace(id); id != "" {
					t.ids = append(t.ids, id)
				}
			}
		case "mention_key":
			t.key = value
		case "email":
			t.email = value
		}
	}
	return t
}

// writeTag returns the at-tag for a node of a post or card that mentions id.
func writeTag(id, key, name string) string {
	return `<at id="` + html.EscapeString(id) + `" mention_key="` + html.EscapeString(key) + `">` +
		html.EscapeString(oneLine(name)) + `</at>`
}

// WithNames replaces the at-tags and keys in text by "@Name". The name is that in
// mentions, by key or by any id, else that in the tag; without a name the tag or key stays.
func WithNames(text string, mentions []Mention) string {
	if !strings.ContainsAny(text, "<@") {
		return text
	}
	names := nameTable(mentions)
	return replaceAll(mentionRE, text, func(m []string, rest string) string {
		named := m[0]
		if named[0] != '@' {
			named = newTag(m[1], m[2]).text(m[0], names)
		} else if name, ok := names[named]; ok {
			named = "@" + name
		}
		if named != m[0] && named != "" && rest != "" && wordRune(lastRune(named)) && wordRune(firstRune(rest)) {
			named += " " // "@Bertlooks" would be another name
		}
		return named
	})
}

// nameTable returns the names by key and id.
func nameTable(mentions []Mention) map[string]string {
	names := map[string]string{"all": everyone, "@_all": everyone, "all_members": everyone}
	for _, m := range mentions {
		name := strings.TrimPrefix(oneLine(m.Name), "@")
		if name == "" {
			continue
		}
		for _, id := range m.IDs() {
			names[id] = name
		}
		if m.Key != "" {
			names[m.Key] = name
		}
	}
	return names
}

// text returns the readable text of the tag; whole if it has no name.
func (t tag) text(whole string, names map[string]string) string {
	if name, ok := names[t.key]; ok && t.key != "" {
		return "@" + name // the id is of another app's name space (docs/feishu.md 3.2)
	}
	var found []string
	for _, id := range t.ids {
		if name, ok := names[id]; ok {
			found = append(found, "@"+name)
		}
	}
	switch {
	case len(found) > 0 && len(found) == len(t.ids):
		return strings.Join(found, " ")
	case t.name != "":
		return "@" + strings.TrimPrefix(t.name, "@")
	case t.email != "":
		return "@" + t.email
	}
	return whole
}

// tagged returns those that the at-tags in text mention, in order and each once, without tags
// in code and those for everyone.
func tagged(text string) []Mention {
	var list []Mention
	for _, m := range mentionRE.FindAllStringSubmatch(codeRE.ReplaceAllString(text, " "), -1) {
		if m[0][0] == '@' {
			continue
		}
		t := newTag(m[1], m[2])
		for _, id := range t.ids {
			if id == "all" || id == "all_members" || relay.CheckID(id) != nil {
				continue
			}
			var ids wireIDs
			ids.set(id, "")
			one := Mention{Key: t.key, OpenID: ids.open(), UnionID: ids.UnionID, UserID: ids.UserID, AppID: ids.AppID}
			if len(t.ids) == 1 {
				one.Name = strings.TrimPrefix(t.name, "@")
			}
			if one.AppID != "" {
				one.Type = SenderBot
			}
			if !slices.ContainsFunc(list, func(m Mention) bool { return m.Same(&one) }) {
				list = append(list, one)
			}
		}
	}
	return list
}

// replaceAll is re.ReplaceAllStringFunc with the groups of each match and the text behind it.
func replaceAll(re *regexp.Regexp, text string, with func(match []string, rest string) string) string {
	var b strings.Builder
	end := 0
	for _, at := range re.FindAllStringSubmatchIndex(text, -1) {
		match := make([]string, len(at)/2)
		for i := range match {
			if at[2*i] >= 0 {
				match[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		b.WriteString(text[end:at[0]])
		end = at[1]
		b.WriteString(with(match, text[end:]))
	}
	b.WriteString(text[end:])
	return b.String()
}

func firstRune(s string) rune { r, _ := utf8.DecodeRuneInString(s); return r }
func lastRune(s string) rune  { r, _ := utf8.DecodeLastRuneInString(s); return r }

// wordRune reports whether r is a letter or digit of a word that ends at a space.
func wordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// postText returns a post's title and paragraphs, a line each; mentions stay tags
// and keys. content_v2 has the markdown that content lost (docs/feishu.md 3.2).
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

// paragraph returns a list of nodes, or a single one, as a line; blocks of code
// and rules get lines of their own.
func paragraph(p any) string {
	nodes, ok := p.([]any)
	if !ok {
		nodes = []any{p}
	}
	var b strings.Builder
	block, at := false, false // whether the text so far ends in a block, or in a mention
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

// goesOn reports whether text begins with a letter or a digit, which after a
// mention would look like a part of the name, or of its key.
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

// atNode returns the at-tag for an {"tag":"at"} of a post or an older card: its user_id is an id,
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

// maxRows is how many rows of a card's table are written; "…" replaces the
// others.
const maxRows = 100

var (
	greyRE   = regexp.MustCompile(`(?is)^\s*<font\s+color\s*=\s*['"]?gr[ea]y['"]?\s*>(.*)</font>\s*$`)
	creditRE = regexp.MustCompile(`(?i)\b(?:agent|model)\s*[:：]`)
	fontRE   = regexp.MustCompile(`(?i)</?(?:font|text_tag)(?:\s[^<>\n]*)?>`)
)

// Text returns the text of the card in display order, its
// header first; without its footer (docs/feishu.md 5.2): notes, the grey line about
// agent and model, a rule at the end. Mentions stay tags ([WithNames] names
// them). For a card without text but with images it is "[图片]" for each, for a template
// the titles among its variables, else "[卡片]", and for a reference by card_id "".
func (c *Card) Text() string {
	return fontRE.ReplaceAllString(c.render(), "")
}

// Mentions returns those that the card mentions: at-tags in its markdown and nodes for
// people, in order and each once, with the names in the card.
func (c *Card) Mentions() []Mention { return tagged(c.render()) }

// render returns the text of the card with its tags and colours.
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

// block is one or more lines of a card.
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
		// not a part of the text, or a control
	default:
		w.flush()
		for _, key := range []string{"header", "title", "text", "fields", "columns", "elements", "body"} {
			w.walk(v[key], depth+1)
		}
	}
}

// translated returns a text element's content, or one of its translations.
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

// cell returns a value of a table as text: a text, a number, or a list of labels.
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

// dropFooter removes the footer below the text: rules, and a grey line
// after a rule or about agent and model, also within the last block.
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

// lastLine splits off the last line of text.
func lastLine(text string) (before, line string) {
	i := strings.LastIndexByte(text, '\n')
	return text[:max(i, 0)], text[i+1:]
}

// maxPlaceholder is the longest text that is looked at as a placeholder.
const maxPlaceholder = 120

// waiting are the texts that bots show until they have an answer, without
// brackets, dots and spinners. The list is closed: a text that only begins like
// one of them is an answer.
var waiting = func() map[string]bool {
	set := map[string]bool{"": true}
	for word := range strings.SplitSeq(`thinking|still thinking|is thinking|bot is thinking|thinking hard|
thinking about it|deep thinking|generating|generating response|
generating a response|generating reply|generating answer|generating card|
processing|processing your request|processing request|loading|typing|is typing|bot is typing|assistant is typing|
working on it|reasoning|analyzing|analysing|searching|preparing|preparing response|
please wait|one moment|just a moment|
思考中|正在思考|正在思考中|深度思考中|努力思考中|正在努力思考|机器人思考中|ai思考中|ai 思考中|
生成中|正在生成|正在生成中|正在生成回复|正在生成回答|回复生成中|回答生成中|内容生成中|
处理中|正在处理|正在处理中|正在处理您的请求|加载中|正在加载|正在输入|正在输入中|输入中|对方正在输入|
正在回复|正在回复中|回复中|正在查询|查询中|正在搜索|搜索中|正在分析|分析中|正在检索|检索中|
请稍候|请稍等|稍等|请稍后|请等待|等待中|思考中，请稍候|正在思考，请稍候|处理中，请稍候|生成中，请稍候|正在处理，请稍候`, "|") {
		set[strings.TrimSpace(word)] = true
	}
	return set
}()

// elapsed is a running clock behind the words.
var elapsed = regexp.MustCompile(`[\s(（\[]*[0-9]+(?:\.[0-9]+)?\s*(?:s|sec|secs|seconds|秒)[)）\]]*$`)

// Placeholder reports whether text only says that an answer is coming, such as
// "Thinking…", "[Generating...]", "思考中" or a spinner, or nothing at all.
func Placeholder(text string) bool {
	text = strings.TrimFunc(text, spinner)
	if utf8.RuneCountInString(text) > maxPlaceholder {
		return false
	}
	text = strings.ToLower(text)
	if !strings.ContainsAny(text, "0123456789") {
		return waiting[text] // no clock
	}
	if cut := strings.TrimFunc(elapsed.ReplaceAllString(text, ""), spinner); cut != "" { // "5 s" is an answer
		text = cut
	}
	return waiting[text]
}

// spinner reports whether r is what stands around such words: space, dots,
// brackets, marks of markdown, clocks and cursors. Signs that may be an answer
// of their own (?, !, 👍, ✅) are not.
func spinner(r rune) bool {
	switch {
	case r <= ' ' || r == 0x7f || r == 0xa0 || r == 0x3000 || 0x2000 <= r && r <= 0x200f || r == 0x2060 || r == 0xfeff ||
		0xfe00 <= r && r <= 0xfe0f:
		return true // space, and what joins or colours an emoji
	case 0x2800 <= r && r <= 0x28ff, 0x2580 <= r && r <= 0x259f: // braille and block spinners
		return true
	}
	return strings.ContainsRune(".…⋯‥·•・。｡．()[]{}<>（）【】「」［］〔〕*_`~|/\\-—–", r) ||
		strings.ContainsRune("⏳⌛⏱⏲🕐🔄🔃♻⚙🛠💭🧠🤔🤖✍⌨💬🔍🔎◐◓◑◒◴◷◶◵●○◌◍⚪⚫", r)
}

// maxKeys is the most files that [Files] returns.
const maxKeys = relay.MaxFiles

var markdownImage = regexp.MustCompile(`!\[[^\]\n]*\]\((img_[A-Za-z0-9_-]+)\)`)

// Keys returns the keys of [Files], and of a sticker.
func Keys(msgType, content string) []string {
	if msgType == "sticker" {
		msgType = ""
	}
	var keys []string
	for _, f := range Files(msgType, content) {
		keys = append(keys, f.Key)
	}
	return keys
}

// Files returns the images and files in a content, in order and each once: image_key,
// file_key with the file_name beside it, a card's img_key and the images in markdown. A
// sticker cannot be downloaded, so it is not a file (docs/feishu.md 5.4).
func Files(msgType, content string) []relay.File {
	if msgType == "text" || msgType == "sticker" || len(content) > maxContent || relay.Deeper([]byte(content), maxDepth) {
		return nil
	}
	if msgType == "interactive" {
		var received struct {
			UserDSL string `json:"user_dsl"`
		}
		if json.Unmarshal([]byte(content), &received) == nil && received.UserDSL != "" {
			return Files("", received.UserDSL)
		}
	}
	f := fileFinder{in: json.NewDecoder(strings.NewReader(content))}
	for f.value("", &relay.File{}) {
	}
	return f.files
}

// fileFinder collects the files in a JSON text. In an invalid one it finds those before the error.
type fileFinder struct {
	in    *json.Decoder
	files []relay.File
}

// value reads a value, which is the member name of an object that may describe a file. It is false at the end of the
// text, and at an error.
func (f *fileFinder) value(name string, described *relay.File) bool {
	t, err := f.in.Token()
	if err != nil {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		return f.inside(t == '{')
	case string:
		switch name {
		case "image_key", "img_key":
			f.add(t, relay.FileImage)
		case "file_key":
			f.add(t, relay.FileOther)
			described.Key = t
		case "file_name":
			described.Name = fileName(t)
		case "content", "text":
			for _, m := range markdownImage.FindAllStringSubmatch(t, maxKeys) {
				f.add(m[1], relay.FileImage)
			}
		}
	}
	return true
}

// inside reads the rest of an object or a list.
func (f *fileFinder) inside(object bool) bool {
	var described relay.File
	for f.in.More() {
		name := ""
		if object {
			t, _ := f.in.Token() // the next call returns the same error
			name, _ = t.(string)
		}
		if !f.value(name, &described) {
			return false
		}
	}
	_, err := f.in.Token()
	if i := f.index(described.Key); i >= 0 && described.Name != "" {
		f.files[i].Name = described.Name
	}
	return err == nil
}

func (f *fileFinder) index(key string) int {
	return slices.IndexFunc(f.files, func(file relay.File) bool { return file.Key == key })
}

func (f *fileFinder) add(key, kind string) {
	if key != "" && checkIDs("", key) == nil && len(f.files) < maxKeys && f.index(key) < 0 {
		f.files = append(f.files, relay.File{Key: key, Type: kind})
	}
}

// fileName returns the name of a file in one line of bounded length.
func fileName(name string) string {
	return strings.ToValidUTF8(oneLine(name[:min(len(name), relay.MaxName)]), "")
}
