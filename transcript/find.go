package transcript

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// finder looks for a text in entries, ignoring case: letters are compared under
// Unicode's simple folding, as by strings.EqualFold.
type finder struct {
	text []byte // folded
	room []byte // reused for every entry
}

func newFinder(text string) finder { return finder{text: appendFolded(nil, text)} }

// in reports whether e contains the text.
func (f *finder) in(e *Entry) bool {
	return len(f.text) == 0 || f.inText(e.Content) || f.inText(e.Sender) || f.inText(e.SenderName)
}

func (f *finder) inText(s string) bool {
	f.room = appendFolded(f.room[:0], s)
	return bytes.Contains(f.room, f.text)
}

// appendFolded appends s with each letter folded.
func appendFolded(to []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			to = append(to, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if caseless(r) {
			to = append(to, s[i:i+size]...)
		} else {
			to = utf8.AppendRune(to, fold(r))
		}
		i += size
	}
	return to
}

// caseless reports whether r is in a range of East Asian letters, which have no
// case; it saves a search in Unicode's tables.
func caseless(r rune) bool { return 0x2E80 <= r && r < 0xA640 || 0xAC00 <= r && r < 0xD800 }

// fold returns the first of the letters that differ from r only in case; for
// ASCII the lower-case one.
func fold(r rune) rune {
	first := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		first = min(first, next)
	}
	if 'A' <= first && first <= 'Z' {
		first += 'a' - 'A'
	}
	return first
}

// Finder returns a function that reports whether an entry contains a text, by the rules
// of [Query].Text, for entries that are not in a Store. The function is not safe for
// concurrent use.
func Finder(text string) func(*Entry) bool {
	f := newFinder(text)
	return f.in
}
