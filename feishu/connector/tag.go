package connector

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"feishu-relay/relay"
)

// maxName is the most runes a name may have to be found.
const maxName = 128

// who is behind a name; id is empty where several are.
type who struct {
	name, id string
}

// tagger returns what turns the "@Name"s of a text into at-tags: names of the
// mentions first, then of the bots in the Book. A name that several have, or
// that is the bot's own, stays plain text.
func (c *Connector) tagger(mentions []relay.Mention) func(string) string {
	self := c.opts.Book.Self().OpenID
	named := names{}
	for _, m := range mentions {
		id := m.OpenID
		if id == "" && m.AgentName != "" {
			bot, _ := c.opts.Book.Agent(m.AgentName, "", m.Name)
			id = bot.OpenID
		}
		if id != self {
			named.add(id, m.Name, string(m.AgentName), m.Key)
		}
	}
	others := names{}
	for _, b := range c.opts.Book.Bots() {
		if b.OpenID != self {
			others.add(b.OpenID, b.Name, string(b.Agent))
		}
	}
	for first, list := range others {
		for _, w := range list {
			if !slices.ContainsFunc(named[first], func(o who) bool { return strings.EqualFold(o.name, w.name) }) {
				named[first] = append(named[first], w)
			}
		}
	}
	named.longestFirst()
	return named.tag
}

// names are found by their first letter.
type names map[rune][]who

func (n names) add(id relay.OpenID, all ...string) {
	if id == "" {
		return
	}
	for _, name := range all {
		name = strings.TrimLeft(strings.TrimSpace(name), "@")
		if name == "" || runes(name) > maxName || strings.EqualFold(name, "all") {
			continue
		}
		first := initial(name)
		i := slices.IndexFunc(n[first], func(w who) bool { return strings.EqualFold(w.name, name) })
		switch {
		case i < 0:
			n[first] = append(n[first], who{name, string(id)})
		case n[first][i].id != string(id):
			n[first][i].id = ""
		}
	}
}

func (n names) longestFirst() {
	for _, list := range n {
		slices.SortFunc(list, func(a, b who) int { return runes(b.name) - runes(a.name) })
	}
}

func initial(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.ToLower(r)
}

// tag writes at-tags for the names behind an '@' in text: not in code, quotes,
// URLs, e-mail addresses and tags.
func (n names) tag(text string) string {
	if len(n) == 0 || !strings.Contains(text, "@") {
		return text
	}
	var out strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		mark := fenceMark(line)
		switch {
		case fence != "":
			if closesFence(line, fence) {
				fence = ""
			}
		case mark != "":
			fence = mark
		case !strings.HasPrefix(strings.TrimLeft(line, " "), ">"):
			n.tagLine(&out, line)
			continue
		}
		out.WriteString(line)
	}
	return out.String()
}

func (n names) tagLine(out *strings.Builder, line string) {
	end := 0 // of the last tag: the next may follow at once
	for i := 0; i < len(line); {
		skip := 1
		switch line[i] {
		case '`':
			skip = codeSpan(line[i:])
		case '<':
			skip = atTag(line[i:])
		case '@':
			if end != i && !startsWell(line[:i]) {
				break
			}
			if w, length := n.match(line[i+1:]); w.id != "" {
				out.WriteString(`<at user_id="` + w.id + `">` + strings.Map(plain, w.name) + `</at>`)
				i += 1 + length
				end = i
				continue
			} else if length > 0 {
				skip += length
			}
		}
		out.WriteString(line[i : i+skip])
		i += skip
	}
}

// match finds the longest name that s begins with.
func (n names) match(s string) (w who, length int) {
	for _, w := range n[initial(s)] {
		if length := foldedPrefix(s, w.name); length > 0 && endsWell(w.name, s[length:]) {
			return w, length
		}
	}
	return who{}, 0
}

// foldedPrefix returns how many bytes of s the name takes at its beginning,
// letter case aside; 0 if it does not stand there.
func foldedPrefix(s, name string) int {
	at := 0
	for range runes(name) {
		_, size := utf8.DecodeRuneInString(s[at:])
		if size == 0 {
			return 0
		}
		at += size
	}
	if !strings.EqualFold(s[:at], name) {
		return 0
	}
	return at
}

// codeSpan returns the length of the inline code that s begins with, or of its
// backticks where they are text.
func codeSpan(s string) int {
	marks := len(s) - len(strings.TrimLeft(s, "`"))
	for at := marks; at < len(s); {
		next := strings.IndexByte(s[at:], '`')
		if next < 0 {
			break
		}
		at += next
		length := len(s[at:]) - len(strings.TrimLeft(s[at:], "`"))
		if at += length; length == marks {
			return at
		}
	}
	return marks
}

// atTag returns the length of the at-tag that s begins with, or 1.
func atTag(s string) int {
	if !strings.HasPrefix(s, "<at ") {
		return 1
	}
	if end := strings.Index(s, "</at>"); end >= 0 {
		return end + len("</at>")
	}
	return 1
}

// startsWell reports whether an '@' behind before may begin a mention: a word
// before it makes an e-mail address, and what holds a "://" or ends in '/' a URL.
func startsWell(before string) bool {
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || unicode.IsSpace(r) {
		return true
	}
	if wordRune(r) || strings.ContainsRune("./+-%", r) {
		return false
	}
	token := before[strings.LastIndexFunc(before, func(r rune) bool { return r <= ' ' || r >= utf8.RuneSelf })+1:]
	return !strings.Contains(token, "://")
}

// endsWell reports whether a name may end before rest: "@Ann" is not "@Anna",
// "@Ann-Marie" or "@ann.example".
func endsWell(name, rest string) bool {
	if last, _ := utf8.DecodeLastRuneInString(name); !wordRune(last) {
		return true
	}
	r, size := utf8.DecodeRuneInString(rest)
	if r == '-' || r == '.' {
		r, _ = utf8.DecodeRuneInString(rest[size:])
	}
	return !wordRune(r)
}

// wordRune reports whether r belongs to words that are told apart by what stands
// between them, as those of Chinese are not.
func wordRune(r rune) bool {
	return r == '_' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) &&
		!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
			unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// plain leaves out of a name what would end its tag.
func plain(r rune) rune {
	if strings.ContainsRune("<>&\"\n", r) {
		return -1
	}
	return r
}
