package send

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"feishu-relay/feishu"
	characters "feishu-relay/internal/runes"
)

// Sizes of a message. Feishu takes 30 KB of a post's request and 150 KB of a
// text's (docs/feishu.md 6.3); a readable message is shorter.
const (
	maxRunes  = 4000
	minRunes  = 125      // which fit however many mentions there are
	maxBody   = 28 << 10 // of the content, escaped as it is in the request
	maxPieces = 64       // a longer content is refused whole
)

// compose returns the messages for text, with their types and contents: if it has markdown, posts, else texts.
func compose(text string, tag func(string) string) (out []feishu.Outgoing, err error) {
	msgType, encode := "text", feishu.TextContent
	if markdown.MatchString(text) {
		msgType, encode = "post", feishu.MarkdownContent
	}
	whole := false
	for size := maxRunes; !whole && size >= minRunes; size /= 2 { // tags and escapes can make much of a text
		if runes(text) > maxPieces*size {
			return nil, ErrTooLong
		}
		whole, out = true, nil
		for _, piece := range split(text, size) {
			content := encode(tag(piece))
			out = append(out, feishu.Outgoing{Type: msgType, Content: content})
			whole = whole && escaped(content) <= maxBody
		}
	}
	switch {
	case len(out) == 0:
		return nil, ErrNoText
	case len(out) > maxPieces:
		return nil, ErrTooLong
	}
	return out, nil
}

// markdown matches what a plain text would show as markup: fences, headings,
// lists, quotes, tables, rules, inline code, emphasis, links.
var markdown = regexp.MustCompile("(?m)" + strings.Join([]string{
	"^ {0,3}(?:```|~~~)",
	`^ {0,3}#{1,6} +\S`,
	`^ *(?:[-*+]|\d{1,3}[.)]) +\S`,
	`^ {0,3}> *\S`,
	`^ {0,3}(?:-{3,}|\*{3,}|_{3,}) *$`,
	`^ *\|.*\| *$`,
	"`[^`\n]+`",
	`\*\*[^*\n]+\*\*`,
	`~~[^~\n]+~~`,
	`!?\[[^\]\n]*\]\([^)\s]+\)`,
}, "|"))

// escaped is the length of a content within the request.
func escaped(content string) int { return len(feishu.TextContent(content)) }

func runes(s string) int { return utf8.RuneCountInString(s) }

// fenceRE matches the line of a fence: three or more backticks or tildes after at most three spaces.
var fenceRE = regexp.MustCompile("(?m)^ {0,3}(`{3,16}|~{3,16})[^`\n]*$")

// maxClosing is the room for the line that closes a fence.
const maxClosing = len("\n") + 16

// split cuts text into pieces of at most size runes (100 or more). A fence that a cut goes through is closed and
// opened again. Blank pieces are left out.
func split(text string, size int) (pieces []string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	closing := 0
	if fenceRE.MatchString(text) {
		closing = maxClosing
	}
	head, mark := "", "" // what opens the fence again that the cut before went through, and what closes it
	for strings.TrimSpace(text) != "" {
		at := cut(text, size-runes(head)-closing)
		piece := strings.Trim(text[:at], "\n")
		if text = text[at:]; mark != "" && strings.TrimSpace(piece) == mark { // it was closed before
			head, mark = "", ""
			continue
		}
		piece = head + piece
		var begin int
		begin, mark = openFence(piece)
		head = ""
		if mark != "" && strings.TrimSpace(text) != "" {
			line, code, _ := strings.Cut(piece[begin:], "\n")
			if piece += "\n" + mark; code == "" {
				piece = strings.TrimRight(piece[:begin], "\n") // its line goes along with what follows
			}
			if runes(line) > size/4 { // too long for the name of a language
				line = mark
			}
			head = line + "\n"
		}
		if strings.TrimSpace(piece) != "" {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// openFence returns where the fence begins that is open at the end of text, and what closes it; "" if none is.
func openFence(text string) (begin int, mark string) {
	for _, at := range fenceRE.FindAllStringSubmatchIndex(text, -1) {
		switch found := text[at[2]:at[3]]; {
		case mark == "":
			begin, mark = at[0], found
		case strings.HasPrefix(found, mark) && strings.TrimSpace(text[at[2]:at[1]]) == found:
			mark = ""
		}
	}
	return begin, mark
}

// cutsRE match what a piece ends with, the best first: a paragraph, a line, a space or a mark of punctuation.
var cutsRE = []*regexp.Regexp{regexp.MustCompile(`(?s)^.*\n\n`), regexp.MustCompile(`(?s)^.*\n`),
	regexp.MustCompile(`(?s)^.*[ \t,.;!?、，。；！？]`)}

// cut returns how many bytes of text are the next piece, of at most room runes. It ends in the second half of that, or
// between any two characters.
func cut(text string, room int) int {
	end := len(text)
	for i := range text {
		if room--; room < 0 {
			end = i
			break
		}
	}
	if end == len(text) {
		return end
	}
	for _, re := range cutsRE {
		if at := len(re.FindString(text[:end])); at > end/2 {
			return at
		}
	}
	if whole := len(characters.Cut(text, end)); whole > 0 { // an emoji of several runes stays whole
		return whole
	}
	return end
}
