// Package runes cuts texts between two characters, and measures them on a terminal.
package runes

import (
	"strings"
	"unicode/utf8"
)

// Cut returns the first bytes of text, at most most, without half a character at the
// end. Where the text is not UTF-8, a character ends after [utf8.UTFMax] bytes at the
// latest.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for range utf8.UTFMax - 1 {
		if most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
	}
	return text[:max(most, 0)]
}

// OneLine returns text without line breaks and control characters.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029'
	}), " ")
}
