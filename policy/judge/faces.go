package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxFace is the most characters of a face in brackets; a longer one is read as text.
const maxFace = 16

// asciiFaces are the faces without brackets. They are alone or follow a word. Before
// a letter or digit they are not faces.
var asciiFaces = []string{
	"^_^", "^-^", "^^", "^o^", "t_t", "t.t", "tvt", "orz", "otz", "qaq", "qwq", "owo", "uwu", "o_o", "-_-", ">_<", "=w=", "=_=",
	"xd",
	":-)", ":)", ";-)", ";)", "=)", ":d", ":-d", "=d", ":p", ";p", ":3", "<3", "\\o/", "(y)", "m(_ _)m", "_(:з」∠)_",
}

// withoutFaces replaces each face made of characters with a space: (≧▽≦), ^_^.
func withoutFaces(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		size := faceAt(s, i)
		if size == 0 {
			_, size = utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+size])
		} else {
			b.WriteByte(' ')
		}
		i += size
	}
	return b.String()
}

// faceAt returns the length of the face at byte i of s; 0 if there is no face.
func faceAt(s string, i int) int {
	r, _ := utf8.DecodeRuneInString(s[i:])
	if !strings.ContainsRune(faceSigns, r) && !strings.ContainsRune(faceArms, r) {
		return 0
	}
	for _, face := range asciiFaces {
		if strings.HasPrefix(s[i:], face) {
			letter := isLatin(rune(face[0]))
			after := i + len(face)
			if (after == len(s) || !isLatin(rune(s[after]))) &&
				(i == 0 || !isLatin(rune(s[i-1])) || !letter && face[0] != ':') {
				return len(face)
			}
		}
	}
	arm := len(s[i:]) - len(strings.TrimLeft(s[i:], faceArms))
	if i+arm == len(s) || s[i+arm] != '(' {
		return 0
	}
	end, runes, strange := i+arm+1, 0, false
	for end < len(s) && s[end] != ')' {
		r, size := utf8.DecodeRuneInString(s[end:])
		switch {
		case strings.ContainsRune(faceLetters, r):
		case unicode.Is(unicode.Han, r), unicode.IsDigit(r), 'a' <= r && r <= 'z':
			return 0
		case !unicode.IsSpace(r) && !strings.ContainsRune(".,?+/", r):
			strange = true
		}
		if runes++; runes > maxFace {
			return 0
		}
		end += size
	}
	if end == len(s) || !strange {
		return 0
	}
	end++
	end += len(s[end:]) - len(strings.TrimLeft(s[end:], faceArms))
	if end < len(s) && s[end] == 'o' && endsWord(s, end+1) {
		end++ // (≧▽≦)o
	}
	return end - i
}

const (
	faceSigns   = "(^_-:;=<>\\.omqtuwx" // each face without arms begins with one of them
	faceArms    = "ヾノﾉو*づっつ╯シ✧♪♡︵ง๑╰ヽ┗┛┏┓\\/"
	faceLetters = "otuvw๑人皿口益工一丶"
)

// squeeze converts words to the form of the lexicon: "you're" becomes youre, "heads-up"
// two words, and repeated letters are shortened: "thanksss" becomes thanks, "sooo" so.
func squeeze(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		inside := i > 0 && i+n < len(s) && isLetter(s[i-1]) && isLetter(s[i+n])
		switch {
		case inside && (r == '\'' || r == '’'):
		case inside && r == '-':
			b.WriteByte(' ')
		case isLetter(s[i]):
			n = repeats(s[i:])
			b.WriteString(s[i : i+shortened(s[i], n)])
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' }

// repeats counts how often s begins with its first letter.
func repeats(s string) int { return len(s) - len(strings.TrimLeft(s, s[:1])) }

// shortened returns how many of n equal letters are kept: of three or more one, of o and e
// two, which are often meant.
func shortened(letter byte, n int) int {
	switch {
	case n < 3:
		return n
	case letter == 'o' || letter == 'e':
		return 2
	}
	return 1
}
