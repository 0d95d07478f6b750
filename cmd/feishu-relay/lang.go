package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// inChinese reports whether texts are to be in Chinese: by --lang, else by the locale.
func inChinese(given string) bool {
	return strings.HasPrefix(cmp.Or(given, os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG")), "zh")
}

// inline prints texts in one of two languages.
type inline struct{ chinese bool }

func (w inline) say(en, zh string, args ...any) string { return say(en, zh, args...).in(w.chinese) }

// text is for people, in both languages.
type text struct{ en, zh string }

// say formats a text. Arguments that are texts are put into each format in its language. An empty zh is the same as en:
// for formats without a word.
func say(en, zh string, args ...any) text {
	english, chinese := slices.Clone(args), slices.Clone(args)
	for i, arg := range args {
		if t, ok := arg.(text); ok {
			english[i], chinese[i] = t.en, t.zh
		}
	}
	return text{fmt.Sprintf(en, english...), fmt.Sprintf(cmp.Or(zh, en), chinese...)}
}

// alike is a text that is the same in both languages: a name, a command, or an error of the system.
func alike(name string) text { return text{name, name} }

func (t text) in(chinese bool) string {
	if chinese {
		return t.zh
	}
	return t.en
}
