package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// plain normalises foreign text: valid UTF-8, compatibility forms folded (full-width
// letters), and no invisible or directional characters, which could hide words from a
// reader or show them in another order. It keeps line breaks and tabs.
func plain(s string) string {
	if isPrintableASCII(s) {
		return s
	}
	s = norm.NFKC.String(strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\u2028', r == '\u2029':
			return '\n'
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector):
			return -1 // category Cf has the bidi and zero-width characters
		}
		return r
	}, s)
}

func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// cutMark replaces the part that clip left out.
const cutMark = " …[cut]… "

// clip shortens s to about n characters, keeping two thirds of them from its beginning
// and the rest from its end, where questions tend to be.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	head, tail := 0, len(s)
	for range n - n/3 {
		_, size := utf8.DecodeRuneInString(s[head:])
		head += size
	}
	for range n / 3 {
		_, size := utf8.DecodeLastRuneInString(s[:tail])
		tail -= size
	}
	return s[:head] + cutMark + s[tail:]
}
