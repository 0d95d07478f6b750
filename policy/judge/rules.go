package judge

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

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
	names := namesIn(q)
	if q.FromUser {
		text := clip(q.Message.Content, maxRead)
		return q.Mentioned || !mentions.MatchString(atAll.ReplaceAllString(fold(text), "")) && asks(clauses(text, nil), requests()), nil
	}
	if len(q.Message.Content) > maxCourtesy {
		return true, nil
	}
	text := clauses(q.Message.Content, names)
	if len(text) == 0 {
		return q.Mentioned, nil // a nudge
	}
	k := courtesy(text, names)
	if k == 0 {
		return !receipts().MatchString(strings.Join(text, " ")), nil
	}
	for _, ours := range answered(q) {
		switch {
		case courtesy(ours, nil) != 0: // nothing in it is open
		case k&answer != 0, k&praise != 0 && k&closing == 0, k&(ok|praise) != 0 && asks(ours, questions()):
			return true, nil
		}
	}
	return false, nil
}

// courtesy returns the kinds of the phrases that a message consists of, 0 if it has
// anything else.
func courtesy(text []string, names []name) kind {
	all := matched
	for i, clause := range text {
		k := courtesies().split(clause, names)
		if k == 0 && (i == 0 || courtesies().kinds[clause]&address == 0) {
			return 0
		}
		all |= k
	}
	if half := all & (condition | invitation); all == matched || half == condition || half == invitation {
		return 0 // nothing but a name, or half an offer
	}
	return all
}

// asks reports whether a message has one of words, besides offers of help.
func asks(text []string, words *regexp.Regexp) bool {
	return slices.ContainsFunc(text, func(clause string) bool {
		return words.MatchString(clause) && courtesies().split(clause, nil) == 0
	})
}

var (
	// questions matches a clause with a question or a request for a decision, requests any request.
	questions = sync.OnceValue(func() *regexp.Regexp { return wordsOf("asks") })
	requests  = sync.OnceValue(func() *regexp.Regexp { return wordsOf("asks", "tasks") })
	// receipts matches an error or receipt of a framework, with or without an emoji before it.
	receipts = sync.OnceValue(func() *regexp.Regexp {
		var all []string
		for _, r := range lines("receipts") {
			all = append(all, strings.ReplaceAll(regexp.QuoteMeta(r), `\*`, `[^?]*`))
		}
		return regexp.MustCompile(`^(?:👍 )?(?:` + strings.Join(all, "|") + `)$`)
	})

	mentions = regexp.MustCompile(`@|<at\b`)
	atAll    = regexp.MustCompile(`@(?:_?all\b|所有人)`)
	atTag    = regexp.MustCompile(`(?s)<at\b[^>]*>(?:[^<]*</at>)?`)
	// After an @ only a name in Latin letters has a visible end: a Chinese one
	// that is not a speaker's could include the beginning of the text.
	atName    = regexp.MustCompile(`@[a-z0-9_.\-]+`)
	bracketed = regexp.MustCompile(`\[[^\[\]]*\]`) // [赞]
)

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

// clauses splits a text at punctuation and emoji, each of which is read as 👍. A question
// mark stays at the end of its clause. Mentions are left out.
func clauses(text string, names []name) (list []string) {
	s := fold(text)
	if strings.ContainsAny(s, "@<") {
		s = atTag.ReplaceAllString(atAll.ReplaceAllString(s, " "), " ")
		for _, n := range names {
			s = strings.ReplaceAll(s, "@"+n.text, " ")
		}
		s = atName.ReplaceAllString(s, " ")
	}
	s = bracketed.ReplaceAllString(s, "\n$0\n")
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

// name is what messages may call a speaker. It may be anywhere in a courtesy if it looks like
// a name; another one may be an ordinary word as well, a task, so it needs thanks before it.
type name struct {
	text string
	kind kind // matched or given
}

// namesIn lists the speakers' names, a longer one before its parts.
func namesIn(q policy.Question) (names []name) {
	add := func(n string) {
		k := given
		if strings.ContainsFunc(n, func(r rune) bool {
			return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '_' || r == '-'
		}) {
			k = matched
		}
		if text := strings.TrimSpace(fold(n)); len(text) > 1 {
			names = append(names, name{text, k})
		}
	}
	add(q.BotName)
	add(q.AgentName)
	for _, e := range append(window(q), q.Message) {
		add(e.SenderName)
		add(e.Sender)
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Compare(len(b.text), len(a.text)) })
	return names
}
