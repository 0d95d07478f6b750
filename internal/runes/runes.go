// Package runes cuts texts between two characters, and measures them on a terminal.
package runes

import (
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// maxCharacter is the most bytes of a character as people see it, such as an emoji of several runes, that [Cut] keeps
// whole.
const maxCharacter = 64

// Cut returns the first bytes of text, at most most, without half a character at the
// end: neither half a rune, nor a part of the runes that people see as one character.
// Where the text is not UTF-8, a rune ends after [utf8.UTFMax] bytes at the latest.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for range utf8.UTFMax - 1 {
		if most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
	}
	most = max(most, 0)
	end := max(most-maxCharacter, 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	for from, state := end, -1; ; {
		var character string
		character, _, _, state = uniseg.FirstGraphemeClusterInString(text[end:min(most+maxCharacter, len(text))], state)
		switch {
		case character != "" && end+len(character) <= most:
			end += len(character)
		case end == from:
			return text[:most] // it is longer
		default:
			return text[:end]
		}
	}
}

// Short returns text, or about its first bytes, at most most, and "…".
func Short(text string, most int) string {
	if short := Cut(text, most); short != text {
		return short + "…"
	}
	return text
}

// Columns is how wide a terminal shows text.
func Columns(text string) int { return uniseg.StringWidth(text) }

// Fit returns text if a terminal shows it in at most columns, else its beginning and "…".
func Fit(text string, columns int) string {
	if Columns(text) <= columns {
		return text
	}
	end := 0
	for g := uniseg.NewGraphemes(text); g.Next() && columns > g.Width(); columns -= g.Width() {
		_, end = g.Positions()
	}
	return text[:end] + "…"
}

// OneLine returns text without line breaks and control characters.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029'
	}), " ")
}
