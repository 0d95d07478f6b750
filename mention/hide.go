package mention

import (
	"regexp"
	"strings"
)

// hide marks the bytes of text in which mentions do not count: code, quoted
// lines, URLs and e-mail addresses. Each step is linear in the text.
func hide(text string) []bool {
	hidden := make([]bool, len(text))
	hideBlocks(text, hidden)
	hideAddresses(text, hidden)
	return hidden
}

var (
	fences    = regexp.MustCompile("^(?:`{3,}|~{3,})") // the marks that a line begins with
	backticks = regexp.MustCompile("`+")
)

// hideBlocks hides fenced code and quoted lines, and inline code in the
// paragraphs between them. An unclosed fence extends to the end.
func hideBlocks(text string, hidden []bool) {
	var fence string // the open fence's marks, "" outside
	paragraph := 0   // where the current paragraph begins
	at := 0
	for line := range strings.Lines(text) {
		start, end := at, at+len(line)
		at = end
		bare := strings.TrimSpace(line)
		marks := fences.FindString(bare)
		switch {
		case fence != "":
			if marks == bare && strings.HasPrefix(marks, fence) {
				fence = ""
			}
		case strings.HasPrefix(bare, ">"):
		case marks != "" && (marks[0] == '~' || !strings.Contains(bare[len(marks):], "`")):
			fence = marks
		case bare == "":
		default:
			continue // the paragraph continues
		}
		hideInline(text[paragraph:start], hidden[paragraph:start])
		mark(hidden[start:end])
		paragraph = end
	}
	hideInline(text[paragraph:], hidden[paragraph:])
}

// hideInline hides the text between two runs of equally many backticks. A run
// without a partner is text.
func hideInline(text string, hidden []bool) {
	runs := backticks.FindAllStringIndex(text, -1)
	partner := make([]int, len(runs)) // the next run of that length; 0: none
	next := map[int]int{}             // by the length
	for i := len(runs) - 1; i >= 0; i-- {
		length := runs[i][1] - runs[i][0]
		partner[i] = next[length]
		next[length] = i
	}
	for i := 0; i < len(runs); i++ {
		if p := partner[i]; p > i {
			mark(hidden[runs[i][0]:runs[p][1]])
			i = p
		}
	}
}

// address matches the beginning of a URL, with a scheme or a host name before a path, or an e-mail address, which has a
// group.
var address = regexp.MustCompile(`[A-Za-z0-9.+-]+://|([A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b)|` +
	`[A-Za-z0-9.-]+\.[A-Za-z]{2,}/`)

// hideAddresses hides URLs, with or without a scheme, and e-mail addresses.
func hideAddresses(text string, hidden []bool) {
	for at := 0; ; {
		found := address.FindStringSubmatchIndex(text[at:])
		if found == nil {
			return
		}
		from, to := at+found[0], at+found[1]
		at = to
		if found[2] < 0 && text[to-2] != '/' && from > 0 && text[from-1] == '@' {
			continue // the name of an agent, and a slash
		}
		if found[2] < 0 {
			to = urlEnd(text, to-1)
		}
		mark(hidden[from:to])
		at = to
	}
}

// urlEnd returns the end of the URL that continues at text[at]: before a byte
// that needs escaping, before text of another script, which often follows
// without a space, before a closing bracket that was opened before the URL, and
// before a separator followed by another mention.
func urlEnd(text string, at int) int {
	depth := 0
	for ; at < len(text); at++ {
		c := text[at]
		switch {
		case c <= ' ', c >= 0x7f, strings.IndexByte("<>\"`\\^{|}", c) >= 0:
			return at
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			if depth--; depth < 0 {
				return at
			}
		case strings.IndexByte(",;!", c) >= 0 && at+1 < len(text) && text[at+1] == '@':
			return at
		}
	}
	return at
}

func mark(hidden []bool) {
	for i := range hidden {
		hidden[i] = true
	}
}
