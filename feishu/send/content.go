package send

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"feishu-relay/relay"
)

// Sizes of a message. Feishu takes 30 KB of a post's request and 150 KB of a
// text's (docs/feishu.md 6.3); what people read well is less.
const (
	maxRunes  = 4000
	minRunes  = 125      // which fit however many mentions there are
	maxBody   = 28 << 10 // of the content, escaped as it is in the request
	maxPieces = 64       // a longer content is refused whole
)

// content is a message as Feishu takes it.
type content struct {
	kind string // text or post
	json string
}

// compose makes the messages that together say text. What has markdown in it
// goes as posts, each of one `md` node; everything else as texts.
func compose(text string, tag func(string) string) ([]content, error) {
	if runes(text) > maxPieces*maxRunes {
		return nil, ErrTooLong
	}
	encode := asText
	if markdown.MatchString(text) {
		encode = asPost
	}
	var out []content
	for size := maxRunes; ; size /= 2 { // tags and escapes can make much of a text
		out = out[:0]
		whole := true
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

// markdown finds what a plain text would show as it was typed: fences, headings,
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

func asText(text string) content {
	return content{"text", encodeJSON(map[string]string{"text": text})}
}

func asPost(text string) content {
	type node struct {
		Tag  string `json:"tag"`
		Text string `json:"text"`
	}
	type post struct {
		Content [][]node `json:"content"`
	}
	return content{"post", encodeJSON(map[string]post{"zh_cn": {[][]node{{{"md", text}}}}})}
}

// encodeJSON leaves '<' as it is: the content is escaped again in the request.
func encodeJSON(v any) string {
	data, err := relay.Marshal(v)
	if err != nil {
		panic(err) // strings and structs always encode
	}
	return string(data)
}

// escaped is the length of s within the request.
func escaped(s string) int {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return len(data)
}

func runes(s string) int { return utf8.RuneCountInString(s) }
