package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"feishu-relay/internal/runes"
)

// plain normalises foreign text: valid UTF-8, compatibility forms folded (full-width
// letters), and no invisible or directional characters, which could hide words from a
// reader or show them in another order. It keeps line breaks and tabs.
func plain(s string) string {
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

// cutMark replaces the part that clip left out.
const cutMark = " …[cut]… "

// clip shortens s to about n bytes, keeping two thirds of them from its beginning
// and the rest from its end, where questions tend to be.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	tail := s[len(s)-n/3:]
	for tail != "" && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return runes.Cut(s, n-n/3) + cutMark + tail
}
