package runes

import (
	"unicode"

	"golang.org/x/text/width"
)

// Columns is how wide a terminal shows text: Chinese takes two columns a
// character, what joins or marks the one before takes none.
func Columns(text string) (n int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
