package judge

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"feishu-relay/policy"
)

// Rules is the judge that needs no model. Its zero value is ready, safe for
// concurrent use, and never fails.
//
// A bot's message is refused when it is empty, or when each of its clauses is
// wholly made of courtesies: thanks, assent, praise, wishes, farewells, offers of
// further help, the end of a talk. One word that is not known as such, or that
// has nothing polite to depend on, lets it pass. Assent that directly follows a real question of this agent passes as
// well: it is the answer.
//
// A person's message that addresses nobody passes when it holds a question or a
// request. What falls into an agent's role the rules cannot tell; the language model can.
type Rules struct{}

// Judge implements [policy.Judge]; the error is always nil.
func (Rules) Judge(_ context.Context, q policy.Question) (allow bool, err error) {
	t := read(q.Message.Content, namesIn(q))
	switch {
	case q.FromUser && q.Mentioned:
		return true, nil
	case q.FromUser:
		return !t.isCourtesy() && !t.mentions && t.asks(), nil
	case t.isCourtesy():
		return answersOurQuestion(q) && t.assents(), nil
	}
	return true, nil
}

// maxCourtesy is the most bytes of a courtesy; what is longer passes unread.
const maxCourtesy = 1500

// text is a message in the form that the lexicon is matched against.
type text struct {
	clauses  []clause
	bare     string // all of it, lower case, before it was split
	unread   bool   // too long, or with code or links: no courtesy
	loneMark bool   // question marks that end no clause
	mentions bool
	names    []entry
}

type clause struct {
	words string
	asked bool // it ended in a question mark
	soft  bool // only a space stands before it
}

var (
	atTag = regexp.MustCompile(`(?s)<at\b[^>]*>(?:[^<]*</at>)?`)
	atAll = regexp.MustCompile(`@(?:_?all\b|所有人)`)
	// Of the names behind an @ only those in Latin letters end somewhere: a
	// Chinese one that is not a speaker's could hold the beginning of the text.
	atName   = regexp.MustCompile(`@[a-z0-9_.\-]+`)
	faceCode = regexp.MustCompile(`\[(?:` + faceNames + `)\]|:(?:\+1|[a-z][a-z_]{1,30}):`)
)

// read takes a message apart. names are those of the speakers.
func read(content string, names []string) text {
	if len(content) > maxCourtesy {
		return text{unread: true, bare: fold(content[:maxCourtesy])}
	}
	s := fold(content)
	t := text{bare: s, names: entries(names), unread: strings.ContainsAny(s, "`{}") || strings.Contains(s, "://")}
	if strings.ContainsAny(s, "@<") {
		s = atAll.ReplaceAllString(atTag.ReplaceAllString(s, " @x "), " ")
		for _, name := range names {
			s = strings.ReplaceAll(s, "@"+fold(name), " @x ")
		}
		t.mentions = strings.Contains(s, "@")
		s = atName.ReplaceAllString(s, " ")
	}
	if strings.ContainsAny(s, "[:") {
		s = faceCode.ReplaceAllString(s, " ")
	}
	s = squeeze(withoutFaces(s))
	t.split(s)
	return t
}

// split makes clauses: what stands between punctuation marks, emoji or, in Chinese,
// spaces.
func (t *text) split(s string) {
	var b strings.Builder
	soft := false
	end := func(asked bool) {
		words := strings.TrimSpace(b.String())
		b.Reset()
		switch {
		case words != "":
			t.clauses = append(t.clauses, clause{words, asked, soft})
		case asked && len(t.clauses) > 0:
			t.clauses[len(t.clauses)-1].asked = true
		case asked:
			t.loneMark = true
		}
		soft = false
	}
	var last rune // before the space
	space := false
	for i, r := range s {
		switch {
		case r == '?':
			end(true)
		case r == '_' && !inWord(s, i):
			space = true
			continue
		case endsClause(r):
			end(false)
		case r == ' ' || isDecoration(r):
			space = true
			continue
		default:
			if space && b.Len() > 0 {
				if unicode.Is(unicode.Han, r) || unicode.Is(unicode.Han, last) {
					end(false)
					soft = true
				} else {
					b.WriteByte(' ')
				}
			}
			b.WriteRune(r)
		}
		last, space = r, false
	}
	end(false)
}

// inWord tells whether the byte at i stands between parts of a word.
func inWord(s string, i int) bool {
	return i > 0 && i+1 < len(s) && isLatin(rune(s[i-1])) && isLatin(rune(s[i+1]))
}

// isCourtesy tells whether nothing in the message needs an answer.
func (t *text) isCourtesy() bool {
	if t.unread || t.loneMark {
		return false
	}
	said, wished := len(t.clauses) == 0, false
	for i := 0; i < len(t.clauses); i++ {
		c := t.clauses[i]
		wished = wished || strings.Contains(c.words, "祝")
		switch {
		case c.asked && !politeQuestion().MatchString(c.words):
			return false
		case c.asked || polite(c.words, t.names):
			said = true
		case filling(c.words, t.names):
		case i+1 < len(t.clauses) && !t.clauses[i+1].asked && politeOffer(c.words+" "+t.clauses[i+1].words, t.names):
			said = true
			i++ // "if you need anything," "call me"
		case i > 0 && c.continues() && polite(t.clauses[i-1].words+" "+c.words, t.names):
			said = true
		case wished && polite("祝"+c.words, t.names):
			// "祝工作顺利，身体健康".
		case said && strings.HasPrefix(c.words, "for ") && polite("thanks "+c.words, t.names):
			// "Thanks, everyone, for the help."
		default:
			return false
		}
	}
	return said
}

// continues tells whether the space before a clause may stand within one.
func (c clause) continues() bool {
	return c.soft && (strings.HasPrefix(c.words, "的") || nickname(c.words) == len(c.words))
}

// asks tells whether the message holds a question or a request.
func (t *text) asks() bool {
	if t.loneMark || request.MatchString(t.bare) {
		return true
	}
	for _, c := range t.clauses {
		if c.asked {
			return true
		}
	}
	return false
}

// assents tells whether a courtesy can be taken for a yes or a no.
func (t *text) assents() bool {
	return assent.MatchString(t.bare) || slices.ContainsFunc(t.clauses, func(c clause) bool {
		return readings(c.words, t.names, func(s classes) bool { return s&setOf(nod, agree, praise) != 0 })
	})
}

// answersOurQuestion tells whether the message follows directly on a question of
// this agent that was more than an offer of help.
func answersOurQuestion(q policy.Question) bool {
	before := window(q)
	if q.AgentName == "" || len(before) == 0 {
		return false
	}
	last := before[len(before)-1]
	if last.Sender != q.AgentName || q.Message.ParentID != "" && q.Message.ParentID != last.MessageID {
		return false
	}
	t := read(last.Content[max(0, len(last.Content)-maxCourtesy):], nil) // a question stands at the end
	for _, c := range t.clauses {
		isQuestion := c.asked || questionWord.MatchString(c.words)
		if isQuestion && !politeQuestion().MatchString(c.words) {
			return true
		}
	}
	return false
}

// namesIn lists how the speakers may be called, longest first where one is part
// of another.
func namesIn(q policy.Question) []string {
	names := []string{q.BotName, q.AgentName}
	for _, e := range append(window(q), q.Message) {
		names = append(names, e.SenderName, e.Sender)
	}
	return longestFirst(names)
}

// entries makes words of names. A name that is an ordinary word may be meant as one ("OK
// deploy"), so it needs more than an OK beside it.
func entries(names []string) []entry {
	var list []entry
	for _, n := range names {
		c := plainName
		if strings.ContainsFunc(n, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '_' || r == '-' }) {
			c = name
		}
		if low := strings.TrimSpace(fold(n)); len(low) > 1 {
			list = append(list, entry{low, c})
		}
	}
	return list
}
