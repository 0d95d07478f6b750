package mention

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// node is a trie of folded names: the cost of a look-up after an '@' depends on
// the longest name, not on the number of names.
type node struct {
	next  map[rune]*node
	agent int    // the agent whose name ends here: an index, or nobody, several, everyone
	name  string // as given, without an '@'
}

// unknown is the result for a name that no agent has.
var unknown = newNode()

func newNode() *node { return &node{next: map[rune]*node{}, agent: nobody} }

// add enters name for the agent i.
func (n *node) add(given string, i int) {
	name := normal(given)
	if name == "" || utf8.RuneCountInString(name) > MaxName {
		return
	}
	for _, r := range name {
		child := n.next[r]
		if child == nil {
			child = newNode()
			n.next[r] = child
		}
		n = child
	}
	if n.agent == nobody {
		n.name = strings.TrimLeft(strings.TrimSpace(given), "@")
	}
	n.agent = join(n.agent, i)
}

// find returns the node of exactly name.
func (n *node) find(name string) *node {
	if len(name) > MaxName*utf8.UTFMax {
		return unknown
	}
	for _, r := range normal(name) {
		if n = n.next[r]; n == nil {
			return unknown
		}
	}
	return n
}

// match returns the longest name at the beginning of s[at:] that may end where
// it ends, and its end. A hidden byte ends a name too; hidden may be nil.
func (n *node) match(s string, hidden []bool, at int) (name *node, end int) {
	name, end = unknown, at
	for i := at; i < len(s) && (hidden == nil || !hidden[i]); {
		r, size := utf8.DecodeRuneInString(s[i:])
		last := fold(r)
		if n = n.next[last]; n == nil {
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
		if n.agent != nobody && endsWell(s, i, last) {
			name, end = n, i
		}
	}
	return name, end
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
