// Package content reads what a message of Feishu says: [Parse] reads a text, a post, a card or any other content once,
// and returns a [Doc]. Readable text, mentions, files and the comparison of two versions are loops over it.
//
// # What counts
//
// A Doc shows what a reader of Feishu sees. Panels that fold (collapsible_panel) are thoughts: no text, and nobody is
// mentioned in them. If a card has nothing else, they are text, unless their header names a thought or a tool. Small
// print at the end of a card is a footer and no text. Buttons and fields of forms are text, by their labels and
// links. A card that shows something has a text, "[卡片]" if nothing better.
//
// # Bounds
//
// A content has at most [MaxBytes] and [jsontree.MaxDepth] levels of JSON. One that is larger, deeper or not JSON is
// shown as it is if it is a text or post, else by the word of its type. No content is an error.
package content

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// MaxBytes is the most bytes of a content that are read. Feishu takes 150 KB of text and 30 KB of card (docs/feishu.md
// 6.3).
const MaxBytes = 1 << 20

// typeCard is the message type of cards.
const typeCard = "interactive"

// TypeForward is the message type of a merged forward. Its event has no content; Parse reads {"text":"…"}, the lines
// that were read from Feishu. They mention nobody.
const TypeForward = "merge_forward"

// Doc is a content that was read. The zero Doc is an empty one.
type Doc struct {
	Type      string // the message type
	Blocks    []Block
	Streaming bool   // a card in streaming mode: its text is still being written
	CardID    string // of a card of CardKit, whose text is in CardKit's calls

	names map[string]string // by key and id
	shown bool              // it has something without a text
}

// Block is one or more lines.
type Block struct {
	Part  Part
	Spans []Span
	Own   bool // read on its own: what is open in it, such as a fence, does not extend into the next block
	Quiet bool // nobody is mentioned in it

	note  bool   // small print
	panel *panel // that it is in
}

// Part is what a block is to its reader.
type Part int

// The parts of a content.
const (
	Body     Part = iota
	Title         // of a card
	Rule          // a horizontal line
	Controls      // buttons and the fields of forms
	Pictures      // of a card; they are text only if the card has no other
	Footer        // small print at the end; no text, nor are those that follow
	Thought
	Hidden // another form of the same content
)

// Span is a piece of a block.
type Span struct {
	Kind   Kind
	Text   string // as written; of a link its words
	Tag    Tag    // of a mention
	Href   string // of a link
	File   relay.File
	InCode bool // a mention in code: it mentions nobody
}

// Kind is what a span is.
type Kind int

// The kinds of spans.
const (
	SpanText Kind = iota
	SpanCode
	SpanMention
	SpanLink
	SpanFile // an image or a file; its key is "" if it cannot be downloaded
)

// words replace contents without a text.
var words = map[string]string{"": "[消息]", "text": "[文本]", "post": "[富文本]", "interactive": "[卡片]", "image": "[图片]",
	"file": "[文件]", "folder": "[文件夹]", "audio": "[语音]", "media": "[视频]", "video": "[视频]", "sticker": "[表情]",
	"share_chat": "[群名片]", "share_user": "[个人名片]", "merge_forward": "[合并转发]", "location": "[位置]",
	"system": "[系统消息]", "todo": "[任务]", "vote": "[投票]", "hongbao": "[红包]", "video_chat": "[视频会议]",
	"calendar": "[日程]", "general_calendar": "[日程]", "share_calendar_event": "[日程]"}

func word(msgType string) string { return cmp.Or(words[msgType], "["+runes.OneLine(msgType)+"]") }

// IsText reports whether messages of a type are what somebody wrote, which can be edited (docs/feishu.md 5).
func IsText(msgType string) bool { return msgType == "text" || msgType == "post" }

// Parse reads a content (docs/feishu.md 3.2, 5.1) of any message type. mentions name those that it mentions by key or
// id.
func Parse(msgType, raw string, mentions []Mention) Doc {
	root, err := jsontree.Object([]byte(raw), MaxBytes)
	return read(msgType, mentions, func(b *builder) {
		switch {
		case err == nil:
			b.content(root)
		case IsText(msgType) && len(raw) <= MaxBytes:
			b.own(raw) // "This message was recalled" is not JSON
		default:
			b.doc.shown = strings.TrimSpace(raw) != ""
		}
	})
}

func (b *builder) content(root map[string]any) {
	switch {
	case b.doc.Type == "text":
		b.own(jsontree.Field(root, "text"))
	case b.doc.Type == "post":
		b.post(root)
	case b.isCard():
		b.card(root)
	case b.doc.Type == TypeForward:
		b.within.Quiet = true
		b.own(strings.TrimSpace(word(TypeForward) + "\n" + jsontree.Field(root, "text")))
	case len(root) > 0:
		b.attachment(root)
	}
}

// OfCard reads a card that was decoded.
func OfCard(root map[string]any) Doc {
	return read(typeCard, nil, func(b *builder) { b.card(root) })
}

func read(msgType string, mentions []Mention, all func(*builder)) Doc {
	b := builder{doc: &Doc{Type: msgType, names: nameTable(mentions)}}
	all(&b)
	b.finish()
	return *b.doc
}

// Text returns the readable text, with "@Name" for mentions; a tag or key without a name stays as it is. It is "" for a
// card of CardKit, and for a content of thoughts and footers alone.
func (d Doc) Text() string { return d.text(Footer) }

// text returns the text without the blocks of a part.
func (d Doc) text(without Part) string {
	var lines, pictures []string
	for i := range d.Blocks {
		switch b := &d.Blocks[i]; {
		case b.Part >= Footer || b.Part == without:
		case b.Part == Pictures:
			pictures = append(pictures, words["image"])
		default:
			lines = append(lines, b.text(d.names))
		}
	}
	if len(lines) == 0 {
		lines = pictures[:min(len(pictures), relay.MaxFiles)]
	}
	switch text := strings.Join(lines, "\n"); {
	case d.Type == "post" && !d.shown:
		return strings.Trim(text, "\n")
	case len(lines) > 0 || !d.shown && (IsText(d.Type) || d.Type == typeCard):
		return text
	}
	return word(d.Type)
}

var (
	startsWordRE = regexp.MustCompile(`^[0-9A-Za-z_]`)
	endsWordRE   = regexp.MustCompile(`[0-9A-Za-z_]$`)
	// goesOnRE matches a text that looks like a part of the name, or of its key, if it follows a mention.
	goesOnRE = regexp.MustCompile(`^[\pL\p{Nd}_]`)
)

var quiet = strings.NewReplacer("@", "@\u2060", "＠", "＠\u2060")

// text returns the readable text of a block. Where no mention counts, an invisible character follows each '@', so
// that no name behind it is found.
func (b *Block) text(names map[string]string) string {
	var out strings.Builder
	named := "" // the name that was written last
	for i := range b.Spans {
		s := &b.Spans[i]
		text := s.Text
		switch {
		case s.Kind == SpanMention:
			text = s.Tag.text(s.Text, names)
		case s.Href != "" && s.Href != s.Text && s.Text != "":
			text += " (" + s.Href + ")"
		case s.Href != "":
			text = s.Href
		}
		if endsWordRE.MatchString(named) && startsWordRE.MatchString(text) {
			out.WriteByte(' ') // "@Bertlooks" would be another name
		}
		if named = ""; s.Kind == SpanMention && text != s.Text {
			named = text
		}
		out.WriteString(text)
	}
	if !b.counts() {
		return quiet.Replace(out.String())
	}
	return out.String()
}

// counts reports whether a mention in the block counts.
func (b *Block) counts() bool { return !b.Quiet && b.Part < Rule }

// Mentions returns those that are mentioned by an id, in order and each once, with the names that the content has for
// them; at most about [relay.MaxMentions]. A mention of everybody is not one.
func (d Doc) Mentions() (list []Mention) {
	for _, b := range d.Blocks {
		for _, s := range b.Spans {
			if b.counts() && s.Kind == SpanMention && !s.InCode && len(list) < relay.MaxMentions {
				list = s.Tag.mentions(list)
			}
		}
	}
	return list
}

// Parts returns the texts in which names count, each read on its own, with tags and keys as they are written.
func (d Doc) Parts() (parts []string) {
	joins := false // whether the next paragraph continues the last part
	for _, b := range d.Blocks {
		if !b.counts() {
			continue
		}
		var part strings.Builder
		for _, s := range b.Spans {
			if s.Kind != SpanCode {
				part.WriteString(s.Text)
			}
		}
		if joins && !b.Own {
			parts[len(parts)-1] += "\n" + part.String()
		} else {
			parts = append(parts, part.String())
		}
		joins = !b.Own
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}

// Files returns the images and files, in order and each once. A sticker cannot be downloaded, so it is not a file
// (docs/feishu.md 5.4).
func (d Doc) Files() []relay.File {
	if d.Type == "sticker" {
		return nil
	}
	return d.files()
}

// Keys returns the keys of [Doc.Files], and of a sticker.
func (d Doc) Keys() (keys []string) {
	for _, f := range d.files() {
		keys = append(keys, f.Key)
	}
	return keys
}

func (d Doc) files() (list []relay.File) {
	for _, b := range d.Blocks {
		for _, s := range b.Spans {
			known := slices.ContainsFunc(list, func(f relay.File) bool { return f.Key == s.File.Key })
			if s.File.Key != "" && !known && len(list) < relay.MaxFiles && d.Type != "text" {
				list = append(list, s.File)
			}
		}
	}
	return list
}

// WithNames is [Doc.Text] of a plain text: it replaces the at-tags and keys that mentions name.
func WithNames(text string, mentions []Mention) string {
	b := Block{Spans: inline(text)}
	return b.text(nameTable(mentions))
}

// newFile returns a file; its key is "" if it is not valid.
func newFile(key, kind, name string) relay.File {
	if key == "" || relay.CheckID(key) != nil {
		return relay.File{}
	}
	return relay.File{Key: key, Type: kind, Name: FileName(name)}
}

// FileName returns the name of a file in one line of bounded length.
func FileName(name string) string {
	return strings.ToValidUTF8(runes.Cut(runes.OneLine(name), relay.MaxName), "")
}
