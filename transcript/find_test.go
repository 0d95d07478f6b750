package transcript

import (
	"regexp"
	"strings"
	"testing"
)

// looksLike is what the finder shall do, as the regexp package does it.
func looksLike(text, in string) bool {
	return regexp.MustCompile("(?i)" + regexp.QuoteMeta(text)).MatchString(in)
}

func TestFinder(t *testing.T) {
	for _, tt := range []struct {
		text, in string
		want     bool
	}{
		{"agenda", "The AGENDA.", true}, {"agenda", "agend", false}, {"", "anything", true},
		{"ÜBER", "darüber", true}, {"ß", "SS", false}, {"σ", "ΟΔΟΣ ς", true},
		{"k", "300 \u212A", true}, {"\u212A", "OK", true}, {"S", "\u017F", true},
		{"项目", "本周项目的进展", true}, {"İ", "i", false}, {"ｆ", "Ｆ", true}, {"Ꭰ", "ꭰ", true},
		{"a.c", "abc", false}, {"é", "\u0065\u0301", false},
	} {
		f := newFinder(tt.text)
		if got := f.in(&Entry{Content: tt.in}); got != tt.want || looksLike(tt.text, tt.in) != tt.want {
			t.Errorf("%q in %q: got %t, want %t", tt.text, tt.in, got, tt.want)
		}
	}
}

func FuzzFinder(f *testing.F) {
	f.Add("ÜB", "darüber")
	f.Add("K", "\u212A")
	f.Fuzz(func(t *testing.T, text, in string) {
		text, in = strings.ToValidUTF8(text, "\uFFFD"), strings.ToValidUTF8(in, "\uFFFD")
		find := newFinder(text)
		if got, want := find.in(&Entry{Content: in}), looksLike(text, in); got != want {
			t.Errorf("%q in %q: got %t, want %t", text, in, got, want)
		}
	})
}
