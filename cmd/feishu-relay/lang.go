package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"feishu-relay/outcome"
)

const langHelp = "`language` of the texts: en or zh (default: by LC_ALL, LC_MESSAGES or LANG)"

// inChinese reports whether texts are to be in Chinese: by --lang, else by the locale.
func inChinese(given string) (bool, error) {
	if given != "" && given != "en" && given != "zh" {
		return false, fmt.Errorf("--lang: want en or zh, got %.20q", given)
	}
	return strings.HasPrefix(cmp.Or(given, os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG")), "zh"), nil
}

// words prints texts in one of two languages.
type words struct{ chinese bool }

func (w words) say(en, zh string, args ...any) string {
	return fmt.Sprintf(outcome.Text{EN: en, ZH: zh}.In(w.chinese), args...)
}
