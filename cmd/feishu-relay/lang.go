package main

import (
	"cmp"
	"os"
	"strings"
)

// inChinese reports whether texts are to be in Chinese: by --lang, else by the locale.
func inChinese(given string) bool {
	return strings.HasPrefix(cmp.Or(given, os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG")), "zh")
}

// text is for people, in both languages.
type text struct{ en, zh string }

// alike is a text that is the same in both languages: a name, a command, or an error of the system.
func alike(name string) text { return text{name, name} }
