package judge

import (
	"embed"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

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
	matched                     // set with any of the above: the text is a courtesy
)

// phrases are the courtesies by their text, and the length in bytes of the longest.
type phrases struct {
	kinds   map[string]kind
	longest int
}

// courtesies is read when the rules are first used, which never happens in a
// sidecar with a language model.
var courtesies = sync.OnceValue(func() phrases {
	p := phrases{kinds: map[string]kind{}}
	for name, k := range map[string]kind{"closing": closing, "thanks": thanks | closing, "given": given,
		"address": address, "ok": ok, "praise": praise, "answer": answer, "if": answer | condition, "call": answer | invitation} {
		for _, phrase := range lines(name) {
			p.kinds[phrase] |= k
			p.longest = max(p.longest, len(phrase))
		}
	}
	return p
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

// states of a clause that is being split: what the phrase before was.
const (
	atStart = iota
	afterThanks
	afterOther
	states
)

// split reports the kinds of phrases that a clause consists of, 0 if of anything else.
// From the end of the clause it works out for each byte and each state the kinds of what
// follows, with the longest phrase that fits.
func (p phrases) split(clause string, names []name) kind {
	rest := make([][states]kind, len(clause)+1)
	rest[len(clause)] = [states]kind{matched, matched, matched}
	for i := len(clause) - 1; i >= 0; i-- {
		if clause[i] == ' ' {
			rest[i] = rest[i+1]
			continue
		}
		if !wordEnds(clause, i) {
			continue
		}
		for n := min(p.longest, len(clause)-i); n > 0; n-- {
			if !wordEnds(clause, i+n) {
				continue
			}
			k := p.kinds[clause[i:i+n]]
			if j := slices.IndexFunc(names, func(x name) bool { return x.text == clause[i:i+n] }); j >= 0 {
				k |= names[j].kind
			}
			for before := range states {
				if k == 0 || rest[i][before] != 0 || k&given != 0 && before != afterThanks || k&address != 0 && before == atStart {
					continue
				}
				after := afterOther
				switch {
				case k&thanks != 0:
					after = afterThanks
				case k&(given|address) != 0 || k == matched:
					after = before
				}
				if next := rest[i+n][after]; next != 0 {
					rest[i][before] = k | next
				}
			}
		}
	}
	return rest[0][atStart]
}

// wordEnds reports whether a word may end, and another begin, before byte i: not inside a
// character or a word of Latin letters.
func wordEnds(s string, i int) bool {
	return i == 0 || i == len(s) || utf8.RuneStart(s[i]) && !(isLatin(s[i-1]) && isLatin(s[i]))
}

func isLatin(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
