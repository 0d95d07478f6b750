package judge

import (
	"cmp"
	"context"
	"embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"feishu-relay/policy"
)

// Rules is the judge that needs no model. Its zero value is ready to use, safe for
// concurrent use, and never fails. The package comment says what it refuses.
type Rules struct{}

const (
	maxCourtesy = 600  // bytes of a courtesy; a longer message passes
	maxOurs     = 8    // messages of this agent that one message may answer
	maxRead     = 1500 // bytes that are read of each, and of a person's message
)

// Judge implements [policy.Judge]; the error is always nil.
func (Rules) Judge(_ context.Context, q policy.Question) (allow bool, err error) {
	l := known()
	if q.FromUser {
		text := clip(q.Message.Content, maxRead)
		toSomebody := mentions.MatchString(atAll.ReplaceAllString(fold(text), ""))
		return q.Mentioned || !toSomebody && l.asks(clauses(text, nil), l.requests), nil
	}
	if len(q.Message.Content) > maxCourtesy {
		return true, nil
	}
	names := namesIn(q)
	text := clauses(q.Message.Content, names)
	if len(text) == 0 {
		return q.Mentioned, nil // a nudge
	}
	k := l.courtesy(text, names)
	if k == 0 {
		return !l.receipts.MatchString(strings.Join(text, " ")), nil
	}
	for _, ours := range answered(q) {
		switch {
		case l.courtesy(ours, nil) != 0: // nothing in it is open
		case k&answer != 0, k&praise != 0 && k&closing == 0, k&(ok|praise) != 0 && l.asks(ours, l.questions):
			return true, nil
		}
	}
	return false, nil
}

//go:embed phrases/*.txt
var files embed.FS

// kind says what a phrase of a courtesy can be besides a courtesy. A kind is a bit.
type kind uint16

const (
	closing    kind = 1 << iota // thanks, a wish, a farewell: never an answer
	thanks                      // closing, and what one gives thanks for may follow
	given                       // what or whom one thanks: only after thanks
	address                     // everyone, 大家: only after another phrase
	ok                          // OK, 好的, an emoji: a yes to somebody who asked
	praise                      // great, 太好了: also a choice or a report
	answer                      // happy to help, sounds good: also an answer to what this agent wrote
	condition                   // if you need anything: only with an invitation
	invitation                  // let me know: only with a condition
	matched                     // set with any of the above, the highest: the text is a courtesy
)

// lists are the phrases and words of the files.
type lists struct {
	kinds     map[string]kind
	longest   int            // bytes of a phrase
	questions *regexp.Regexp // a question or a request for a decision
	requests  *regexp.Regexp // any request
	receipts  *regexp.Regexp // an error or receipt of a framework, with or without an emoji before it
}

// known reads the files when the rules are first used, which never happens in a sidecar with a language model.
var known = sync.OnceValue(func() lists {
	l := lists{kinds: map[string]kind{}, questions: wordsOf("asks"), requests: wordsOf("asks", "tasks")}
	for name, k := range map[string]kind{
		"closing": closing, "thanks": thanks | closing, "given": given, "address": address, "ok": ok, "praise": praise,
		"answer": answer, "if": answer | condition, "call": answer | invitation,
	} {
		for _, phrase := range lines(name) {
			l.kinds[phrase] |= k
			l.longest = max(l.longest, len(phrase))
		}
	}
	receipts := regexp.QuoteMeta(strings.Join(lines("receipts"), "\n"))
	receipts = strings.NewReplacer(`\*`, `[^?]*`, "\n", "|").Replace(receipts)
	l.receipts = regexp.MustCompile(`^(?:👍 )?(?:` + receipts + `)$`)
	return l
})

// lines returns the phrases of a file, without comments.
func lines(name string) (list []string) {
	text, err := files.ReadFile("phrases/" + name + ".txt")
	if err != nil {
		panic(err) // embedded
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list = append(list, line)
		}
	}
	return list
}

// wordsOf returns an expression for a question mark and the words of files.
func wordsOf(files ...string) *regexp.Regexp {
	words := []string{`\?`}
	for _, file := range files {
		for _, w := range lines(file) {
			if isLatin(w[0]) {
				w = `\b` + w + `\b`
			}
			words = append(words, w)
		}
	}
	return regexp.MustCompile(strings.Join(words, "|"))
}

// courtesy returns the kinds of the phrases that a message consists of, 0 if it has anything else.
func (l lists) courtesy(text []string, names map[string]kind) kind {
	all := matched
	for i, clause := range text {
		k := l.split(clause, names)
		if k == 0 && (i == 0 || l.kinds[clause]&address == 0) {
			return 0
		}
		all |= k
	}
	if half := all & (condition | invitation); all == matched || half == condition || half == invitation {
		return 0 // nothing but a name, or half an offer
	}
	return all
}

// split returns the kinds of the phrases that a clause consists of, the longest that fits at each place, and 0 if it
// consists of anything else.
func (l lists) split(clause string, names map[string]kind) kind {
	all, thanked := matched, false
	for rest := clause; rest != ""; {
		n, k := min(l.longest, len(rest)), kind(0)
		for ; n > 0; n-- {
			k = l.kinds[rest[:n]] | names[rest[:n]]
			if wordEnds(rest, n) && k != 0 && (k&given == 0 || thanked) && (k&address == 0 || len(rest) < len(clause)) {
				break
			}
		}
		if n == 0 {
			return 0
		}
		all |= k
		thanked = k&thanks != 0 || thanked && (k&(given|address) != 0 || k == matched)
		rest = strings.TrimPrefix(rest[n:], " ")
	}
	return all
}

// wordEnds reports whether a word may end before byte i: not inside a character or a word of Latin letters.
func wordEnds(s string, i int) bool {
	return i == len(s) || utf8.RuneStart(s[i]) && !(isLatin(s[i-1]) && isLatin(s[i]))
}

func isLatin(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// asks reports whether a message has one of words, besides offers of help.
func (l lists) asks(text []string, words *regexp.Regexp) bool {
	return slices.ContainsFunc(text, func(clause string) bool {
		return words.MatchString(clause) && l.split(clause, nil) == 0
	})
}

var (
	mentions = regexp.MustCompile(`@|<at\b`)
	atAll    = regexp.MustCompile(`@(?:_?all\b|所有人)`)
	// After an @ only a name in Latin letters has a visible end: a Chinese one
	// that is not a speaker's could include the beginning of the text.
	atOther   = regexp.MustCompile(`(?s)<at\b[^>]*>(?:[^<]*</at>)?|@[a-z0-9_.\-]+`)
	bracketed = regexp.MustCompile(`\[[^\[\]]*\]`) // [赞]
)

// clauses splits a text at punctuation and emoji, each of which is read as 👍. A question
// mark stays at the end of its clause. Mentions are left out.
func clauses(text string, names map[string]kind) (list []string) {
	s := atAll.ReplaceAllString(fold(text), " ")
	longestFirst := func(a, b string) int { return cmp.Compare(len(b), len(a)) }
	for _, name := range slices.SortedFunc(maps.Keys(names), longestFirst) {
		s = strings.ReplaceAll(s, "@"+name, " ")
	}
	s = bracketed.ReplaceAllString(atOther.ReplaceAllString(s, " "), "\n$0\n")
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '?':
			b.WriteString("?\n")
		case strings.ContainsRune(".,!~;:\t。、·|—–", r):
			b.WriteByte('\n')
		case r == '-':
			b.WriteByte(' ')
		case strings.ContainsRune("'’*", r), 0x1f3fb <= r && r <= 0x1f3ff: // the last are colours of emoji
		case unicode.Is(unicode.So, r) && !strings.ContainsRune("👆👇👈👉☝👀", r): // a finger points at something
			b.WriteString("\n👍\n")
		default:
			b.WriteRune(r)
		}
	}
	for line := range strings.Lines(b.String()) {
		if clause := strings.Join(strings.Fields(line), " "); clause != "" {
			list = append(list, clause)
		}
	}
	return list
}

// fold converts a text to the form of the phrases.
func fold(s string) string { return strings.ToLower(plain(s)) }

// answered returns the messages of this agent that q.Message answers: the one it
// replies to, or else those since another sender wrote.
func answered(q policy.Question) (ours [][]string) {
	before := window(q)
	if id := q.Message.ParentID; id != "" {
		before = slices.DeleteFunc(before, func(e policy.Entry) bool { return e.MessageID != id })
	}
	for _, e := range slices.Backward(before) {
		if q.AgentName == "" || e.Sender != q.AgentName || len(ours) == maxOurs {
			break
		}
		ours = append(ours, clauses(clip(e.Content, maxRead), nil))
	}
	return ours
}

// namesIn are the speakers' names. One that looks like a name may be anywhere in a courtesy; another one may be an
// ordinary word as well, a task, so it needs thanks before it.
func namesIn(q policy.Question) map[string]kind {
	names := map[string]kind{}
	for _, e := range append(window(q), q.Message, policy.Entry{Sender: q.AgentName, SenderName: q.BotName}) {
		for _, name := range []string{e.SenderName, e.Sender} {
			k := given
			if strings.ContainsFunc(name, func(r rune) bool {
				return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '_' || r == '-'
			}) {
				k = matched
			}
			if text := strings.TrimSpace(fold(name)); len(text) > 1 {
				names[text] = max(names[text], k)
			}
		}
	}
	return names
}
