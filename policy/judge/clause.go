package judge

import (
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// class is a kind of word that courtesies are made of. See wants for the classes that each
// depends on.
type class uint8

const (
	filler    class = iota // oh, haha: has no meaning anywhere
	title                  // everyone, 大家: a form of address
	name                   // a speaker's name
	plainName              // a name that is, or may be, an ordinary word as well

	// Heads: one of them makes a clause polite.
	nod    // ok, 收到
	agree  // I agree, 同意
	thank  // thanks, 感谢
	praise // great, 厉害
	joy    // glad, 荣幸
	hope   // looking forward, 期待
	wish   // good luck, 祝
	bye    // see you, 晚安
	kind   // you're welcome, 不客气
	here   // always here for you, 随叫随到

	// Parts of an offer: "if you need anything", "feel free to", "ask".
	iff
	need
	offer
	call
	report

	// Words that carry content of their own, unless they depend on a head.
	degree  // very, 非常
	quality // detailed, 及时: praise with a degree only, since it may describe how to do a task
	adverb  // also, 都
	person  // you
	self    // I, we: "we're good" is news, "we're glad" is not
	thing   // this, 这次
	given   // what one gives thanks for: feedback, 配合
	noun    // the same for words that could begin a task: "thanks, help me"
	shared  // what is done together: work, 合作
	view    // your point, 看法
	when    // weekend, 下次
	deed    // help, be part of, 帮到
	outcome // it worked: news, but for "glad it worked"
	boon    // have, stay, 健康: what is wished
	copula  // is, are
	done    // 了: makes news of most words, but not of thanks
	glue    // of, the, 的

	classCount
)

// classes is a set of class.
type classes uint64

func setOf(list ...class) (s classes) {
	for _, c := range list {
		s |= 1 << c
	}
	return s
}

func (s classes) has(c class) bool { return s&(1<<c) != 0 }

var (
	warm  = setOf(thank, praise, joy, hope, wish, bye, kind, here)
	heads = warm | setOf(nod, agree)
	// What may make up a clause between two courtesies.
	addresses = setOf(filler, title, name)
	// The classes that may precede 了 without making the clause a report.
	aroundDone = setOf(filler, title, name, plainName, thank, joy, kind, degree, adverb, person, self, thing, glue,
		done)
	offering = setOf(iff, offer, here)

	// wants lists for each class the classes of which at least one must be in the
	// same clause. Few classes may depend on words of assent: "ok" before a word of
	// content is the beginning of a task, and "all agreed" is news.
	wants = [classCount]classes{
		title:     warm | offering, // or an assent before it: "ok all"
		name:      warm | offering | setOf(nod, agree),
		plainName: setOf(thank, bye, kind),
		iff:       setOf(offer, call, report, here, joy),
		need:      setOf(iff, offer),
		offer:     setOf(iff, call),
		call:      setOf(iff, offer),
		report:    setOf(iff),
		degree:    warm | setOf(agree),
		quality:   setOf(thank, praise),
		adverb:    warm | offering | setOf(agree),
		person:    warm | offering | setOf(agree),
		self:      setOf(thank, joy, hope, wish, bye, kind, here, iff, offer, agree),
		thing:     setOf(thank, praise, joy, hope, kind),
		given:     setOf(thank, praise),
		noun:      setOf(thank, praise),
		shared:    setOf(thank, praise, joy, hope, wish),
		view:      setOf(thank, praise, agree),
		when:      setOf(thank, praise, joy, hope, wish, bye, iff, offer),
		deed:      setOf(thank, joy),
		outcome:   setOf(joy),
		boon:      setOf(hope, wish),
		copula:    warm | offering | setOf(agree),
		glue:      warm | offering | setOf(agree),
	}
)

// polite reports whether a clause of these words is a courtesy.
func (s classes) polite() bool {
	return s&(heads|offering) != 0 && s.complete()
}

// complete reports whether each word has a class that it wants.
func (s classes) complete() bool {
	for c, want := range wants {
		if want != 0 && s.has(class(c)) && s&want == 0 {
			return false
		}
	}
	// "Great, the meeting is tomorrow" is news, with or without its comma.
	return !s.has(copula) || !s.has(when) || s&setOf(thank, joy, hope, wish) != 0
}

// with returns the classes with one more word; ok is false if the word cannot follow those before it.
func (s classes) with(c class) (_ classes, ok bool) {
	switch {
	case c == filler:
		return s, true
	case c == person:
		c = glue // same conditions
	}
	switch {
	case c == title && s.has(nod) && s&^setOf(filler, nod, title) == 0:
		return s, true // "ok all"; but "all ok" is news
	case c == done && (s&setOf(thank, joy, kind) == 0 || s&^aroundDone != 0):
		return 0, false
	case c == noun && s&setOf(glue, person, thing, praise, degree, quality, given, noun) == 0:
		return 0, false
	case c == quality && s.has(degree), c == degree && s.has(quality):
		s |= setOf(praise)
	}
	return (s | setOf(c)).settled(), true
}

// settled drops differences between classes that no longer matter once their wants are met, so that
// fewer readings have to be followed.
func (s classes) settled() classes {
	for _, c := range [...]class{view, when, deed, outcome, boon} {
		if s.has(c) && s&wants[c]&wants[shared] != 0 && (c != when || s&setOf(thank, joy, hope, wish) != 0) {
			s = s&^setOf(c) | setOf(shared)
		}
	}
	if s&wants[adverb] != 0 {
		s &^= setOf(adverb)
	}
	return s
}

// entry is a name.
type entry struct {
	text  string
	class class
}

// maxReadings is the most ways of splitting the beginning of a clause that are followed. With more of them a
// courtesy may pass. A decision takes 0.1 to 0.2 ms for a message of usual length and a few ms for the
// longest (maxCourtesy bytes in one clause).
const maxReadings = 16

// classify splits a clause into words of the lexicon and names. For each byte it returns the
// classes of the words before it, once for every way to split the clause up to there.
func classify(words string, names []entry) [][]classes {
	lex := lexicon()
	at := make([][]classes, len(words)+1)
	at[0] = []classes{0}
	for i, r := range words {
		if len(at[i]) == 0 {
			continue
		}
		take := func(size int, step func(classes) (classes, bool)) {
			next := at[i+size]
			for _, s := range at[i] {
				if s, ok := step(s); ok && len(next) < maxReadings && !slices.Contains(next, s) {
					next = append(next, s)
				}
			}
			at[i+size] = next
		}
		if r == ' ' {
			take(1, func(s classes) (classes, bool) { return s, true })
			continue
		}
		if isLatin(r) && i > 0 && isLatin(rune(words[i-1])) {
			continue // inside a word
		}
		for end := i + utf8.RuneLen(r); end <= min(i+lex.longest[r], len(words)); end++ {
			if end < len(words) && !utf8.RuneStart(words[end]) || !endsWord(words, end) {
				continue
			}
			for set := lex.classes[words[i:end]]; set != 0; set &= set - 1 {
				c := class(bits.TrailingZeros64(uint64(set)))
				take(end-i, func(s classes) (classes, bool) { return s.with(c) })
			}
		}
		for _, e := range names {
			if strings.HasPrefix(words[i:], e.text) && endsWord(words, i+len(e.text)) {
				take(len(e.text), func(s classes) (classes, bool) { return s.with(e.class) })
			}
		}
		formsAt(words, i, func(c class, size int) {
			take(size, func(s classes) (classes, bool) { return s.with(c) })
		})
		if size := sixes(words[i:]); size > 0 {
			take(size, func(s classes) (classes, bool) { return s.with(praise) })
		}
		if size := nickname(words[i:]); size > 0 {
			take(size, func(s classes) (classes, bool) { return s.with(plainName) })
		}
	}
	return at
}

// readings reports whether yield returns true for the classes of at least one way to split the
// whole clause.
func readings(words string, names []entry, yield func(classes) bool) bool {
	return slices.ContainsFunc(classify(words, names)[len(words)], yield)
}

// polite reports whether a clause consists of a courtesy and nothing else.
func polite(words string, names []entry) bool {
	return readings(words, names, classes.polite) && !asksWithoutMark(words)
}

// asksWithoutMark reports whether a clause without a question mark is a question, a polite task or an
// acceptance: "thanks is it ready", 明白了吧, 辛苦确认一下, "happy to join".
func asksWithoutMark(words string) bool {
	if strings.HasPrefix(words, "请问") || strings.HasSuffix(words, "吧") && zhQuestion.MatchString(words) ||
		politeTask.MatchString(words) || statement.MatchString(words) && !strings.Contains(words, "hope") {
		return true
	}
	if m := gladTo.FindStringSubmatch(words); m != nil && !courtesyTo.MatchString(m[1]) {
		return true
	}
	words = " " + strings.ReplaceAll(words, "that is it", "thats it") + " "
	for _, verb := range [...]string{" is ", " are ", " was ", " were ", " am ", " have "} {
		for rest := words; ; {
			_, after, found := strings.Cut(rest, verb)
			if !found {
				break
			}
			rest = " " + after
			subject, _, _ := strings.Cut(after, " ")
			if slices.Contains(subjects[:], subject) {
				return true
			}
		}
	}
	return false
}

var subjects = [...]string{"i", "you", "we", "they", "it", "this", "that", "everyone", "everybody", "anyone"}

// politeOffer reports whether two clauses together make an offer: "if you need anything," "ask".
func politeOffer(words string, names []entry) bool {
	return readings(words, names, func(s classes) bool { return s.has(iff) && s.polite() })
}

// filling reports whether a clause has no meaning: "oh", "everyone".
func filling(words string, names []entry) bool {
	return readings(words, names, func(s classes) bool { return s&^addresses == 0 })
}

// isLatin reports whether r is a letter or digit of a Latin word, after folding.
func isLatin(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// endsWord reports whether a word may end before byte i: not inside a Latin one.
func endsWord(s string, i int) bool {
	return i == len(s) || !isLatin(rune(s[i])) || !isLatin(rune(s[i-1]))
}

// sixes returns the length of "666" at the beginning of s, which is praise; a
// longer number is not.
func sixes(s string) int {
	n := len(s) - len(strings.TrimLeft(s, "6"))
	if n < 3 || !endsWord(s, n) {
		return 0
	}
	return n
}

// nickname returns the length of a name like 小王, recognised by its form, at the end of
// a clause.
func nickname(s string) int {
	first, a := utf8.DecodeRuneInString(s)
	second, b := utf8.DecodeRuneInString(s[a:])
	if !strings.ContainsRune("小老阿", first) || a+b != len(s) || second < 0x4e00 || second > 0x9fff {
		return 0
	}
	return a + b
}
