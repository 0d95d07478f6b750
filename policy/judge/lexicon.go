package judge

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// dictionary holds the words and phrases of the lexicon.
type dictionary struct {
	classes map[string]classes // the classes that a word or phrase can have
	longest map[rune]int       // the length in bytes of the longest one with this first rune
}

// lexicon is built when the rules are first used, which never happens in a sidecar with a
// language model.
var lexicon = sync.OnceValue(func() dictionary {
	d := dictionary{map[string]classes{}, map[rune]int{}}
	for _, words := range [2]*[classCount]string{&zhWords, &enWords} {
		for c, list := range words {
			for pattern := range strings.FieldsSeq(list) {
				for _, text := range expand(pattern) {
					text = strings.TrimSpace(strings.ReplaceAll(text, "_", " "))
					if text == "" {
						continue
					}
					d.classes[text] |= setOf(class(c))
					first, _ := utf8.DecodeRuneInString(text)
					d.longest[first] = max(d.longest[first], len(text))
				}
			}
		}
	}
	return d
})

// expand returns the strings of a pattern: "{a,b,}c" is ac, bc and c. Groups
// may be nested. An underscore means a space.
func expand(pattern string) []string {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}
	}
	var options []string
	depth, from, end := 0, open+1, open
	for i := open; end == open; i++ {
		switch {
		case pattern[i] == '{':
			depth++
		case pattern[i] == ',' && depth == 1:
			options, from = append(options, pattern[from:i]), i+1
		case pattern[i] == '}':
			if depth--; depth == 0 {
				options, end = append(options, pattern[from:i]), i
			}
		}
	}
	var all []string
	tails := expand(pattern[end+1:])
	for _, option := range options {
		for _, middle := range expand(option) {
			for _, tail := range tails {
				all = append(all, pattern[:open]+middle+tail)
			}
		}
	}
	return all
}
