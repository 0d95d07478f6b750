package runes

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"hello", 9, "hello"}, {"hello", 5, "hello"}, {"hello", 2, "he"}, {"hello", 0, ""}, {"hello", -1, ""}, {"", 3, ""},
		{"说了什么", 12, "说了什么"}, {"说了什么", 11, "说了什"}, {"说了什么", 10, "说了什"}, {"说了什么", 9, "说了什"}, {"说了", 2, ""},
		{"a😀", 4, "a"}, {"a👨‍👩‍👧", 10, "a"}, {"👨‍👩‍👧", 10, "👨‍"}, {"e\u0301e\u0301", 4, "e\u0301"}, {strings.Repeat("x", 100) + "👨‍👩‍👧", 110, strings.Repeat("x", 100)}, {"a😀", 5, "a😀"}, {"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80"},
	} {
		if got := Cut(tt.text, tt.most); got != tt.want {
			t.Errorf("Cut(%q, %d): got %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("说了什么", 5)
	f.Fuzz(func(t *testing.T, text string, most int) {
		got := Cut(text, most)
		if !strings.HasPrefix(text, got) || len(got) > max(most, 0) || len(text) > most && len(got) < most-maxCharacter-utf8.UTFMax {
			t.Errorf("Cut(%q, %d): got %q", text, most, got)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("Cut(%q, %d): half a character in %q", text, most, got)
		}
	})
}

func TestColumns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "abc": 3, "（a）": 5, "é": 1, "한글": 4, "ｶﾅ": 2, "🙂": 2, "a\u200db": 2, "…": 1,
		"BotB":    4,
		"小策":      4,
		"小B，好":    7,
		"ａ":       2, // full width
		"ｱ":       1, // half width
		"e\u0301": 1, // a letter and its accent
		"\u200b":  0,
		"✓ → ↳":   5, // of no fixed width: one, outside of old Chinese terminals
	} {
		if got := Columns(text); got != want {
			t.Errorf("Columns(%q): got %d, want %d", text, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text    string
		columns int
		want    string
	}{
		{"hello", 5, "hello"}, {"hello", 4, "hel…"}, {"说了什么", 8, "说了什么"}, {"说了什么", 7, "说了什…"}, {"说了什么", 6, "说了…"}, {"a👨‍👩‍👧b", 3, "a…"}, {"e\u0301e\u0301e", 2, "e\u0301…"}, {"ab", 0, "…"},
	} {
		if got := Fit(tt.text, tt.columns); got != tt.want {
			t.Errorf("Fit(%q, %d): got %q, want %q", tt.text, tt.columns, got, tt.want)
		}
	}
	if got := Short("a👨‍👩‍👧b", 10); got != "a…" || Short("abc", 3) != "abc" {
		t.Errorf("Short: %q", got)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a\nb\u2028c\x00": "a b c", "\n": "", "a  b": "a  b"} {
		if got := OneLine(text); got != want {
			t.Errorf("OneLine(%q): got %q, want %q", text, got, want)
		}
	}
}
