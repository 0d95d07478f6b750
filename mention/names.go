package mention

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// names are sorted by their folded texts, so that those that begin with a text are neighbours
// and that text itself is the first of them.
type names []entry

// entry is a name and the agent that has it.
type entry struct {
	folded string
	agent  int    // an index, or nobody, several, everyone
	name   string // as given, without an '@'
}

// unknown is the result for a name that no agent has.
var unknown = entry{agent: nobody}

// add enters name for the agent i.
func (n *names) add(given string, i int) {
	folded := normal(given)
	if folded == "" || utf8.RuneCountInString(folded) > MaxName {
		return
	}
	at, known := n.search(folded)
	if known {
		(*n)[at].agent = join((*n)[at].agent, i)
		return
	}
	*n = slices.Insert(*n, at, entry{folded, i, strings.TrimLeft(strings.TrimSpace(given), "@")})
}

func (n names) search(folded string) (at int, found bool) {
	return slices.BinarySearchFunc(n, folded, func(e entry, s string) int { return strings.Compare(e.folded, s) })
}

// find returns the entry of exactly name.
func (n names) find(name string) entry {
	if len(name) > MaxName*utf8.UTFMax {
		return unknown
	}
	if at, found := n.search(normal(name)); found {
		return n[at]
	}
	return unknown
}

// match returns the longest name at the beginning of s[at:] that may end where
// it ends, and its end. A hidden byte ends a name too; hidden may be nil.
func (n names) match(s string, hidden []bool, at int) (longest entry, end int) {
	longest, end = unknown, at
	var folded strings.Builder
	for i := at; i < len(s) && (hidden == nil || !hidden[i]); {
		r, size := utf8.DecodeRuneInString(s[i:])
		last := fold(r)
		folded.WriteString(string(last))
		first, found := n.search(folded.String())
		n = n[first:]
		if len(n) == 0 || !strings.HasPrefix(n[0].folded, folded.String()) {
			break
		}
		i += size
		for last == ' ' && i < len(s) { // a space of a name matches any number in a text
			r, size := utf8.DecodeRuneInString(s[i:])
			if fold(r) != ' ' {
				break
			}
			i += size
		}
		if found && endsWell(s, i, last) {
			longest, end = n[0], i
		}
	}
	return longest, end
}

// normal returns the form in which names are compared: without an '@' before
// it, folded, and with single spaces.
func normal(name string) string {
	name = strings.Map(fold, strings.Join(strings.Fields(name), " "))
	return strings.TrimSpace(strings.TrimLeft(name, "@"))
}

// fold maps letters that differ only in case, full-width forms, and blanks to
// one rune each. Line breaks are kept: no name contains one.
func fold(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return r - 'a' + 'A'
	case r < utf8.RuneSelf:
		if r == '\t' {
			return ' '
		}
		return r
	case r >= '！' && r <= '～': // full-width forms of '!' to '~'
		return fold(r - '！' + '!')
	case unicode.Is(unicode.Zs, r):
		return ' '
	}
	least := r
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		least = min(least, o)
	}
	return least
}

// endsWell reports whether a name whose last rune is last may end at s[end:].
func endsWell(s string, end int, last rune) bool {
	if !wordRune(last) {
		return true
	}
	r, size := utf8.DecodeRuneInString(s[end:])
	if wordRune(r) {
		return false
	}
	if r == '-' || r == '.' {
		after, _ := utf8.DecodeRuneInString(s[end+size:])
		return !wordRune(after)
	}
	return true
}

// startsWell reports whether an '@' at s[at:] may begin a mention: in an e-mail
// address a word precedes it.
func startsWell(s string, at int) bool {
	r, _ := utf8.DecodeLastRuneInString(s[:at])
	return !wordRune(r) && r != '.' && r != '-'
}

// wordRune reports whether r is a letter, digit, mark or underscore of a script that
// separates words. Letters of scripts written without spaces are not, nor is
// invalid UTF-8.
func wordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) &&
		!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
			unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
