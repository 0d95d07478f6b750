package send

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", nil},
		{"blank", " \n\n", nil},
		{"short", "a\nb", []string{"a\nb"}},
		{"as long as a piece", x(100), []string{x(100)}},
		{"a long line", x(250), []string{x(100), x(100), x(50)}},
		{"a long line with spaces", x(90) + " " + x(50), []string{x(90) + " ", x(50)}},
		{"a long Chinese line", strings.Repeat("好", 90) + "。" + strings.Repeat("好", 20), []string{strings.Repeat("好", 90) + "。", strings.Repeat("好", 20)}},
		{"lines", x(60) + "\n" + x(60), []string{x(60), x(60)}},
		{"paragraphs", x(60) + "\n\n" + x(20) + "\n" + x(30), []string{x(60), x(20) + "\n" + x(30)}},
		{"an early paragraph", x(10) + "\n\n" + x(80) + "\n" + x(30), []string{x(10) + "\n\n" + x(80), x(30)}},
		{"code", "```go\n" + x(60) + "\n" + x(60) + "\n```\nend", []string{"```go\n" + x(60) + "\n```", "```go\n" + x(60) + "\n```\nend"}},
		{"code behind text", x(80) + "\n```go\n" + x(60) + "\n```", []string{x(80), "```go\n" + x(60) + "\n```"}},
		{"a long line in code", "```\n" + x(150) + "\n```", []string{"```\n" + x(79) + "\n```", "```\n" + x(71) + "\n```"}},
		{"tildes", "~~~c++\n" + x(60) + "\n```\n" + x(60) + "\n~~~", []string{"~~~c++\n" + x(60) + "\n```\n~~~", "~~~c++\n" + x(60) + "\n~~~"}},
		{"code that nobody closes", "```\n" + x(70) + "\n" + x(70), []string{"```\n" + x(70) + "\n```", "```\n" + x(70)}},
		{"only a fence", "```", []string{"```"}},
		{"a language without end", "```" + x(40) + "\n" + x(40) + "\n" + x(40) + "\n```", []string{"```\n" + x(40) + "\n```", "```\n" + x(40) + "\n```"}},
		{"an emoji of several runes", x(98) + "👨‍👩‍👧👍🏽", []string{x(98), "👨‍👩‍👧👍🏽"}},
		{"no UTF-8", "a\xffb", []string{"a\uFFFDb"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, split(tt.text, 100)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// words are what a text says, without fences, which a cut repeats or goes through.
func words(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", "~", "", "g", "", "o", "").Replace(text)), "")
}

func checkSplit(t *testing.T, text string, size int) {
	t.Helper()
	pieces := split(text, size)
	for i, p := range pieces {
		if n := utf8.RuneCountInString(p); n > size {
			t.Errorf("piece %d has %d runes, at most %d: %q", i, n, size, p)
		}
		if strings.TrimSpace(p) == "" {
			t.Errorf("piece %d is blank", i)
		}
	}
	if got, want := words(strings.Join(pieces, "\n")), words(strings.ToValidUTF8(text, "\uFFFD")); got != want {
		t.Errorf("split(%q, %d) = %q", text, size, pieces)
	}
}

func TestSplitLosesNothing(t *testing.T) {
	parts := []string{"word ", "好的，", "\n", "\n\n", "```go\n", "```\n", "~~~\n", "line of text\n", strings.Repeat("y", 130), "🙂", "# head\n", "`code` "}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var b strings.Builder
		for range rnd.IntN(60) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		checkSplit(t, b.String(), 100+rnd.IntN(100))
		if t.Failed() {
			return
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("```go\nx\n```\n"+strings.Repeat("好", 200), 100)
	f.Add(strings.Repeat("`", 40)+"\nx", 120)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 100 || size > 4000 || strings.ContainsFunc(text, func(r rune) bool { return r == '\r' }) {
			t.Skip()
		}
		pieces := split(text, size)
		if slices.ContainsFunc(pieces, func(p string) bool { return utf8.RuneCountInString(p) > size }) {
			t.Errorf("too long: %q", pieces)
		}
	})
}
