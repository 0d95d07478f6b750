// Package words is the catalogue of what the commands say to people, in English and in Chinese. Each text has a key, by
// which the commands ask for it; words.txt has the texts.
package words

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"time"
)

//go:embed words.txt
var file string

// text is a text of the catalogue as a format of package fmt.
type text struct{ en, zh string }

// catalogue reads words.txt: a key at the beginning of a line, then its English and its Chinese, each behind a tab. A
// text without Chinese is the same in both.
var catalogue = sync.OnceValue(func() map[string]text {
	all, key := map[string]text{}, ""
	for line := range strings.Lines(file) {
		line = strings.TrimSuffix(line, "\n")
		said, indented := strings.CutPrefix(line, "\t")
		switch t := all[key]; {
		case line == "", line[0] == '#':
		case !indented:
			key = line
		case t.en == "":
			all[key] = text{said, said}
		default:
			all[key] = text{t.en, said}
		}
	}
	return all
})

// Words says things in one language. The zero value speaks English.
type Words struct{ Chinese bool }

// In returns the Words of a language such as zh or zh_CN.UTF-8; of one that is not Chinese those in English.
func In(language string) Words { return Words{strings.HasPrefix(language, "zh")} }

// Has reports whether the catalogue has a text.
func Has(key string) bool {
	_, has := catalogue()[key]
	return has
}

// Say is the text with the key, formatted with args, of which it may leave out some. A key that is missing is returned
// itself.
func (w Words) Say(key string, args ...any) string {
	t, has := catalogue()[key]
	format := t.en
	if w.Chinese {
		format = t.zh
	}
	if !has || len(args) == 0 || !strings.Contains(format, "%") {
		return cmp.Or(format, key)
	}
	return fmt.Sprintf(format, args...)
}

// Count is the text of a number of things. Its English has two forms, "%d message|%d messages".
func (w Words) Count(key string, n int) string {
	one, many, two := strings.Cut(w.Say(key), "|")
	if two && n != 1 {
		one = many
	}
	return fmt.Sprintf(one, n)
}

// Age is a span of time as people say it.
func (w Words) Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return w.Count("seconds", int(d/time.Second))
	case d < time.Hour:
		return w.Count("minutes", int(d/time.Minute))
	case d < 48*time.Hour:
		return w.Count("hours", int(d/time.Hour))
	}
	return w.Count("days", int(d/(24*time.Hour)))
}

// maxListed is the most names of a list.
const maxListed = 20

// List names things, at most 20 of them.
func (w Words) List(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return w.Say("and more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}
