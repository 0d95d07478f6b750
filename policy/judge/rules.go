package judge

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"feishu-relay/policy"
)

// Rules is the judge that needs no model. Its zero value is ready to use, safe for
// concurrent use, and never fails.
//
// It refuses a bot's message that is empty or consists of courtesies only: thanks, assent, praise,
// wishes, farewells, offers of further help, the end of a conversation. One unknown word lets the
// message pass. A message that looks like a courtesy also passes if it may be an answer: assent to a
// question or an open request of this agent, agreement with or praise of its message, and "all good"
// after it gave a task.
//
// A person's message without an addressee passes if it has a question or a request. Unlike the
// language model, the rules do not consider the agent's role.
type Rules struct{}

// Judge implements [policy.Judge]; the error is always nil.
func (Rules) Judge(_ context.Context, q policy.Question) (allow bool, err error) {
	t := read(q.Message.Content, namesIn(q))
	if q.FromUser {
		return q.Mentioned || !t.isCourtesy(text{}) && !t.mentions && t.asks(), nil
	}
	ours := answered(q)
	var last text
	if len(ours) > 0 {
		last = ours[0]
	}
	return !t.isCourtesy(last) || last.informs() && (agreement.MatchString(t.bare) || t.onlyPraises()) ||
		slices.ContainsFunc(ours, text.wantsAnswer) && t.assents() ||
		slices.ContainsFunc(ours, text.givesTask) && t.reports() || last.goesAhead() && !last.delivers() && t.delivers(), nil
}

// maxCourtesy is the most bytes of a courtesy; a longer message passes unread.
const maxCourtesy = 1500

// text is a message in the form that the lexicon is matched against.
type text struct {
	clauses  []clause
	bare     string // all of it, lower case, before it was split
	unread   bool   // too long, or with code or links: not a courtesy
	loneMark bool   // question marks that end no clause
	mentions bool
	names    []entry
}

type clause struct {
	words string
	asked bool // ends in a question mark
	soft  bool // preceded by a space only
}

var (
	atTag = regexp.MustCompile(`(?s)<at\b[^>]*>(?:[^<]*</at>)?`)
	atAll = regexp.MustCompile(`@(?:_?all\b|所有人)`)
	// After an @ only a name in Latin letters has a visible end: a Chinese one
	// that is not a speaker's could include the beginning of the text.
	atName   = regexp.MustCompile(`@[a-z0-9_.\-]+`)
	faceCode = regexp.MustCompile(`\[(?:` + faceNames + `)\]|:(?:\+1|[a-z][a-z_]{1,30}):`)
)

// read splits a message into clauses. names are those of the speakers.
func read(content string, names []string) text {
	if len(content) > maxCourtesy {
		return text{unread: true, bare: fold(content[:maxCourtesy])}
	}
	return readAll(content, names)
}

// readAll is [read] for text of any length.
func readAll(content string, names []string) text {
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

// split makes clauses of the text between punctuation marks, emoji or, in Chinese, spaces.
// A space between Chinese and Latin script is dropped.
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
				switch han := unicode.Is(unicode.Han, last); {
				case han && unicode.Is(unicode.Han, r):
					end(false)
					soft = true
				case !han && !unicode.Is(unicode.Han, r):
					b.WriteByte(' ')
				}
			}
			b.WriteRune(r)
		}
		last, space = r, false
	}
	end(false)
}

// inWord reports whether the byte at i is between two parts of a word.
func inWord(s string, i int) bool {
	return i > 0 && i+1 < len(s) && isLatin(rune(s[i-1])) && isLatin(rune(s[i+1]))
}

// isCourtesy reports whether nothing in the message needs an answer. ours is this agent's message
// before it: "no" is a courtesy after an offer of help, and "anything else?" unless it asks for more
// of the same.
func (t *text) isCourtesy(ours text) bool {
	if t.unread || t.loneMark {
		return false
	}
	said, wished := len(t.clauses) == 0, false
	for i := 0; i < len(t.clauses); i++ {
		c := t.clauses[i]
		wished = wished || strings.Contains(c.words, "祝")
		if no := declined.FindString(c.words); no != "" && !c.asked && ours.offersHelp() {
			c.words = c.words[len(no):]
		}
		switch {
		case c.words == "":
			said = true
		case c.asked && bareOffer.MatchString(c.words) && !ours.informs():
			said = true
		case c.asked && !politeQuestion().MatchString(c.words):
			return false
		case c.asked || polite(c.words, t.names):
			said = true
		case filling(c.words, t.names):
		case i+1 < len(t.clauses) && !t.clauses[i+1].asked && politeOffer(c.words+" "+t.clauses[i+1].words, t.names):
			said = true
			i++ // "if you need anything," "call me"
		case i > 0 && c.continues() && polite(t.clauses[i-1].words+c.words, t.names):
			said = true
		case wished && readings("祝"+c.words, t.names, classes.polite):
			// "祝工作顺利，身体健康".
		default:
			return false
		}
	}
	return said
}

// continues reports whether the clause may be the rest of the one before the space.
func (c clause) continues() bool {
	return c.soft && (continuing.MatchString(c.words) || nickname(c.words) == len(c.words))
}

// asks reports whether the message holds a question or a request.
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

// assents reports whether a courtesy can be a yes, a no or a choice.
func (t *text) assents() bool {
	return assent.MatchString(welcome.ReplaceAllString(t.bare, "")) || slices.ContainsFunc(t.clauses, func(c clause) bool {
		if welcome.MatchString(c.words) {
			return false
		}
		yes, closing := false, false
		readings(c.words, t.names, func(s classes) bool {
			yes = yes || s&setOf(nod, agree, praise, joy, kind, here) != 0
			closing = closing || s.complete() && s&setOf(wish, bye) != 0
			return closing
		})
		return yes && !closing
	})
}

// reports reports whether a courtesy can report on a task: "all good", 没事了. Assent and thanks cannot.
func (t *text) reports() bool {
	return slices.ContainsFunc(t.clauses, func(c clause) bool {
		return readings(c.words, t.names, func(s classes) bool { return s&setOf(praise, joy, bye, kind) != 0 })
	})
}

// goesAhead reports whether the message begins with a yes and is not a farewell.
func (t *text) goesAhead() bool {
	return goAhead.MatchString(t.bare) && !slices.ContainsFunc(t.clauses, func(c clause) bool {
		return readings(c.words, t.names, func(s classes) bool { return s.complete() && s.has(bye) })
	})
}

// delivers reports whether a courtesy can deliver something: "enjoy the song".
func (t *text) delivers() bool {
	return slices.ContainsFunc(t.clauses, func(c clause) bool {
		return delivery.MatchString(c.words) && !goodDay.MatchString(c.words)
	})
}

// onlyPraises reports whether a courtesy praises or is glad, without thanks, wishes or a farewell.
func (t *text) onlyPraises() bool {
	var all classes
	for _, c := range t.clauses {
		readings(c.words, t.names, func(s classes) bool { all |= s; return false })
	}
	return all&setOf(praise, joy) != 0 && all&setOf(thank, wish, bye, iff, hope) == 0
}

const (
	maxOurs = 8    // the most messages of this agent that one message may answer
	oursTop = 500  // the bytes of each that are read at its beginning
	oursEnd = 1000 // and at its end
)

// answered returns the messages of this agent that q.Message answers, the last one first: the one it
// replies to, or else those since another sender wrote.
func answered(q policy.Question) (ours []text) {
	before := window(q)
	if id := q.Message.ParentID; id != "" {
		before = slices.DeleteFunc(before, func(e policy.Entry) bool { return e.MessageID != id })
	}
	for _, e := range slices.Backward(before) {
		if q.AgentName == "" || e.Sender != q.AgentName || len(ours) == maxOurs {
			break
		}
		s := e.Content
		if len(s) > oursTop+oursEnd {
			s = strings.ToValidUTF8(s[:oursTop], "") + "\n" + strings.ToValidUTF8(s[len(s)-oursEnd:], "")
		}
		ours = append(ours, readAll(s, nil))
	}
	return ours
}

// wantsAnswer reports whether the message asks a question, or for a confirmation, an approval, a
// choice or permission, beyond an offer of help.
func (t text) wantsAnswer() bool {
	if n := len(t.clauses); n > 1 && finalQuestion.MatchString(t.clauses[n-1].words) && t.informs() ||
		strings.Contains(t.bare, "yes/no") || strings.Contains(t.bare, "y/n") {
		return true
	}
	return slices.ContainsFunc(t.clauses, func(c clause) bool {
		return (c.asked || questionWord.MatchString(c.words) || openRequest().MatchString(c.words)) &&
			!offersHelp(c) && (c.asked || !polite(c.words, t.names))
	})
}

// givesTask reports whether the message tells someone to do something.
func (t text) givesTask() bool {
	return slices.ContainsFunc(t.clauses, func(c clause) bool {
		return task.MatchString(c.words) && !strings.ContainsAny(c.words, "了已") && !offersHelp(c) &&
			!polite(c.words, t.names)
	})
}

// offersHelp reports whether the message asks if help is needed.
func (t *text) offersHelp() bool {
	return slices.ContainsFunc(t.clauses, offersHelp)
}

// informs reports whether the message has content; a no is content, but not "no, thanks" after an offer of
// help.
func (t *text) informs() bool {
	return !t.isCourtesy(text{}) && !t.closes()
}

// closes reports whether the message looks like thanks or a farewell after an offer of help.
func (t *text) closes() bool {
	return slices.ContainsFunc(t.clauses, func(c clause) bool {
		words := c.words[len(declined.FindString(c.words)):]
		return readings(words, t.names, func(s classes) bool { return s.complete() && s&setOf(thank, bye) != 0 })
	}) && t.isCourtesy(anOffer())
}

var anOffer = sync.OnceValue(func() text { return read("Anything else?", nil) })

func offersHelp(c clause) bool {
	return politeQuestion().MatchString(c.words) || moreOffer.MatchString(c.words)
}

// namesIn lists the names by which messages may call the speakers, a longer one
// before its parts.
func namesIn(q policy.Question) []string {
	names := []string{q.BotName, q.AgentName}
	for _, e := range append(window(q), q.Message) {
		names = append(names, e.SenderName, e.Sender)
	}
	return longestFirst(names)
}

// entries makes words of names. A name that is an ordinary word may be used as one ("OK
// deploy"), so an OK alone does not make it polite.
func entries(names []string) []entry {
	var list []entry
	for _, n := range names {
		c := plainName
		if strings.ContainsFunc(n, func(r rune) bool {
			return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '_' || r == '-'
		}) {
			c = name
		}
		if low := strings.TrimSpace(fold(n)); len(low) > 1 {
			list = append(list, entry{low, c})
		}
	}
	return list
}
