package send

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"feishu-relay/feishu"
	characters "feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Sizes of a message. Feishu takes 30 KB of a post's request and 150 KB of a
// text's (docs/feishu.md 6.3); a readable message is shorter.
const (
	maxRunes  = 4000
	minRunes  = 125      // which fit however many mentions there are
	maxBody   = 28 << 10 // of the content, escaped as it is in the request
	maxPieces = 64       // a longer content is refused whole
)

// body is the content of a message in Feishu's form.
type body struct {
	kind string // text or post
	json string
}

// compose returns the messages for text: if it has markdown, posts of one `md` node each,
// else texts.
func compose(text string, tag func(string) string) ([]body, error) {
	if runes(text) > maxPieces*maxRunes {
		return nil, ErrTooLong
	}
	encode := asText
	if markdown.MatchString(text) {
		encode = asPost
	}
	var out []body
	for size := maxRunes; ; size /= 2 { // tags and escapes can make much of a text
		whole := true
		out = nil
		for _, piece := range split(text, size) {
			c := encode(tag(piece))
			out = append(out, c)
			whole = whole && escaped(c.json) <= maxBody
			if len(out) > maxPieces {
				return nil, ErrTooLong
			}
		}
		if whole || size <= minRunes {
			break
		}
	}
	if len(out) == 0 {
		return nil, ErrNoText
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

func asText(text string) body { return body{"text", feishu.TextContent(text)} }

func asPost(text string) body {
	paragraphs := [][]map[string]string{{{"tag": "md", "text": text}}}
	return body{"post", encodeJSON(map[string]any{"zh_cn": map[string]any{"content": paragraphs}})}
}

// encodeJSON does not escape '<', since the content is escaped again in the request.
func encodeJSON(v any) string {
	data, err := relay.Marshal(v)
	if err != nil {
		panic(err) // strings and structs always encode
	}
	return string(data)
}

// escaped is the length of s within the request.
func escaped(s string) int { return len(encodeJSON(s)) }

func runes(s string) int { return utf8.RuneCountInString(s) }

// maxMarks is the most backticks or tildes of a fence; more are text.
const maxMarks = 16

// split cuts text into pieces of at most size runes (100 or more): behind a paragraph, a line, a space or a mark of
// punctuation in the piece's second half, else between any two characters. A fence that a cut goes through is closed
// and opened again. Blank pieces are left out.
func split(text string, size int) (pieces []string) {
	text, fence := strings.ToValidUTF8(text, "\uFFFD"), "" // fence: the line of the one that is open
	for strings.TrimSpace(text) != "" {
		head := ""
		if fence != "" {
			head = fence + "\n"
		}
		at, open := 0, ""
		for _, closing := range []int{0, len("\n```"), len("\n") + maxMarks} { // what closes an open fence needs room
			at = cut(text, size-runes(head)-closing)
			begins := 0
			if open, begins = openFence(fence, text[:at]); begins > 0 && strings.TrimSpace(text[begins:at]) == open {
				at, open = begins, "" // its line goes along with what follows
			}
			if at == len(text) || open == "" || len("\n"+fenceMark(open)) <= closing {
				break
			}
		}
		piece := strings.Trim(text[:at], "\n")
		if strings.TrimSpace(piece) != "" && (fence == "" || !closesFence(piece, fenceMark(fence))) {
			if piece = head + piece; open != "" && at < len(text) {
				piece += "\n" + fenceMark(open)
			}
			pieces = append(pieces, piece)
		}
		if text, fence = text[at:], open; runes(open) > size/4 { // too long for the name of a language
			fence = fenceMark(open)
		}
	}
	return pieces
}

// openFence returns the line of the fence that is open at the end of text, and where it begins; -1 if it is fence,
// which is open at its beginning.
func openFence(fence, text string) (open string, begins int) {
	open, begins = fence, -1
	at := 0
	for line := range strings.Lines(text) {
		switch mark := fenceMark(line); {
		case open == "" && mark != "":
			open, begins = strings.TrimSpace(line), at
		case open != "" && closesFence(line, fenceMark(open)):
			open, begins = "", -1
		}
		at += len(line)
	}
	return open, begins
}

// cut returns how many bytes of text are the next piece, of at most room runes.
func cut(text string, room int) int {
	end, n := 0, 0
	for end = range text {
		if n++; n > max(1, room) {
			break
		}
	}
	if n <= max(1, room) {
		return len(text)
	}
	if whole := len(characters.Cut(text, end)); whole > 0 {
		end = whole // an emoji of several runes stays whole
	}
	for _, behind := range []string{"\n\n", "\n"} {
		if at := strings.LastIndex(text[:end], behind) + len(behind); at > end/2 {
			return at
		}
	}
	for at := end; at > end/2; {
		r, size := utf8.DecodeLastRuneInString(text[:at])
		if strings.ContainsRune(" \t,.;!?、，。；！？", r) && !beginsFence(text[at:]) {
			return at
		}
		at -= size
	}
	for beginsFence(text[end:]) { // what follows must not look like one
		_, size := utf8.DecodeLastRuneInString(text[:end])
		end -= size
	}
	return end
}

// beginsFence reports whether the first line of text looks like one of a fence.
func beginsFence(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	return fenceMark(line) != ""
}

// fenceRE matches a line that begins a fence: three or more backticks or tildes after at most three spaces.
var fenceRE = regexp.MustCompile("^ {0,3}(?:(`{3,16})[^`]*|(~{3,16})(?:[^~].*)?)$")

// fenceMark returns the backticks or tildes that a line begins a fence with, or "".
func fenceMark(line string) string {
	if m := fenceRE.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// closesFence reports whether line closes a fence that mark opened.
func closesFence(line, mark string) bool {
	return strings.TrimSpace(line) == fenceMark(line) && strings.HasPrefix(fenceMark(line), mark)
}
