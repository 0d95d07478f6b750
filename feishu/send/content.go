package send

import (
	"cmp"
	"regexp"
	"strings"
	"unicode/utf8"

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

func asText(text string) body {
	return body{"text", encodeJSON(map[string]string{"text": text})}
}

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

// split cuts text into pieces of at most size runes (100 or more): at the end of
// a paragraph where one ends in the piece's second half, else of a line. A line
// longer than a piece is cut behind a space or a mark of punctuation, or between
// any two characters. A fence that a cut goes through is closed and opened again.
// Blank pieces are left out.
func split(text string, size int) []string {
	s := splitter{size: size}
	for line := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		s.add(line)
	}
	s.cut(len(s.piece), "")
	return s.pieces
}

type splitter struct {
	size   int
	pieces []string

	piece     string // the current one
	runes     int    // of it
	paragraph int    // where in it the last paragraph ends, outside of fences
	head      int    // bytes of the fence's line with which it begins
	again     bool   // that line was written before
	fence     string // the line of the fence that is open, "" outside
	opened    int    // bytes of the piece when it was
}

// add appends a line.
func (s *splitter) add(line string) {
	mark := fenceMark(line)
	opens := s.fence == "" && mark != ""
	closes := s.fence != "" && closesFence(line, fenceMark(s.fence))
	for {
		room := s.size - s.runes - s.reserve(closes, mark)
		if runes(strings.TrimRight(line, "\n")) <= room {
			break
		}
		if len(s.piece) > s.head {
			s.breakBefore()
			continue
		}
		at := cutLine(line, max(1, room))
		if at == len(line) {
			break
		}
		s.piece += line[:at]
		line = line[at:]
		s.cut(len(s.piece), s.fence)
	}
	s.piece += line
	s.runes += runes(line)
	switch {
	case opens:
		s.fence, s.opened = line, len(s.piece)
		if s.piece == line {
			s.head = len(line)
		}
	case closes:
		s.fence, s.paragraph = "", len(s.piece)
	case s.fence == "" && strings.TrimSpace(line) == "":
		s.paragraph = len(s.piece)
	}
}

// reserve is the room for closing the fence behind the next line.
func (s *splitter) reserve(closes bool, mark string) int {
	switch {
	case closes:
		return 0
	case s.fence != "":
		return len("\n") + len(fenceMark(s.fence))
	case mark != "":
		return len("\n") + len(mark)
	}
	return 0
}

// breakBefore ends the piece before the line that comes next.
func (s *splitter) breakBefore() {
	switch {
	case s.fence == "" && s.paragraph > len(s.piece)/2:
		s.cut(s.paragraph, "")
	case s.fence != "" && s.opened == len(s.piece): // the fence's line goes along
		s.cut(len(s.piece)-len(s.fence), "")
		s.head, s.opened = len(s.piece), len(s.piece)
	default:
		s.cut(len(s.piece), s.fence)
	}
}

// cut ends the piece at byte at, closing the fence, and begins the next with
// the fence opened again and what is left.
func (s *splitter) cut(at int, fence string) {
	piece, rest := s.piece[:at], s.piece[at:]
	if repeated := s.again && at <= s.head; !repeated && strings.TrimSpace(piece) != "" {
		piece = strings.Trim(piece, "\n")
		if fence != "" {
			piece += "\n" + fenceMark(fence)
		}
		s.pieces = append(s.pieces, piece)
	}
	s.piece, s.paragraph, s.head, s.opened, s.again = rest, 0, 0, -1, fence != ""
	if fence != "" {
		line := strings.TrimRight(fence, "\n")
		if runes(line) > s.size/4 {
			line = fenceMark(fence) // too long for the name of a language
		}
		s.piece = line + "\n" + rest
		s.head = len(line) + 1
	}
	s.runes = runes(s.piece)
}

// fenceMark returns the three or more backticks or tildes that a line begins
// with, after at most three spaces, or "".
func fenceMark(line string) string {
	spaces := 0
	for spaces < 4 && strings.HasPrefix(line[spaces:], " ") {
		spaces++
	}
	bare := line[spaces:]
	if spaces > 3 || bare == "" || bare[0] != '`' && bare[0] != '~' {
		return ""
	}
	n := 1
	for n <= maxMarks && n < len(bare) && bare[n] == bare[0] {
		n++
	}
	if n < 3 || n > maxMarks || bare[0] == '`' && strings.Contains(bare[n:], "`") {
		return ""
	}
	return bare[:n]
}

// closesFence reports whether line closes a fence that mark opened.
func closesFence(line, mark string) bool {
	return strings.TrimSpace(line) == fenceMark(line) && strings.HasPrefix(fenceMark(line), mark)
}

// cutLine returns where to cut a line of which room runes fit: behind the last
// space or mark in its second half, else between two characters as people see them. What
// follows must not look like a fence.
func cutLine(line string, room int) int {
	best, last, n := 0, 0, 0
	for i := range line {
		if i > 0 && fenceMark(line[i:]) == "" {
			before, _ := utf8.DecodeLastRuneInString(line[:i])
			if last = i; n > room/2 && strings.ContainsRune(" \t,.;!?、，。；！？", before) {
				best = i
			}
		}
		if n++; n > room {
			return len(characters.Cut(line, cmp.Or(best, last, i)))
		}
	}
	return len(line)
}
