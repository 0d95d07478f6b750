package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNeutral(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "请 @BotB 看一下 ok", "请 @BotB 看一下 ok"},
		{"emoji with joiner and variation", "👩‍💻 ❤️", "👩‍💻 ❤️"},
		{"wide space", "a\u3000b", "a\u3000b"},
		{"colour", "\x1b[31mred\x1b[0m", "␛[31mred␛[0m"},
		{"title and bell", "\x1b]0;owned\a", "␛]0;owned␇"},
		{"eight-bit escape", "\u009b2J", `\u009b2J`},
		{"eight-bit escape, no UTF-8", "\x9b2J", "\ufffd2J"},
		{"overwriting the line", "good\rbad\b\b", "good␍bad␈␈"},
		{"new line in a name", "a\nb", "a␊b"},
		{"reversed order", "\u202egpj.exe", `\u202egpj.exe`},
		{"line separators", "a\u2028b\u2029c", `a\u2028b\u2029c`},
		{"unseen letters", "a\U000e0041\ufeff", `a\U000e0041\ufeff`},
		{"delete", "\x7f", "␡"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := neutral(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzNeutral(f *testing.F) {
	for _, seed := range []string{"", "a", "\x1b[2J", "\x9b", "\u202e", "\U000e0041", "👩‍💻"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := neutral(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, obeyed) {
			t.Errorf("%q leaves %q", text, got)
		}
		if again := neutral(got); again != got {
			t.Errorf("%q changes again to %q", got, again)
		}
		line, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		safe := neutralJSON(line)
		if strings.ContainsFunc(string(safe), obeyed) {
			t.Errorf("JSON of %q leaves %q", text, safe)
		}
		var was, is string
		if err := json.Unmarshal(line, &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(safe, &is); err != nil || is != was {
			t.Errorf("JSON got %q (%v), want %q", is, err, was)
		}
	})
}

func TestColoursOfBots(t *testing.T) {
	if got, want := (&paint{on: true}).bot("a"), (&paint{}).bot("a"); got != want || !slices.Contains(botColours[:], got) {
		t.Errorf("colour of a bot: got %s, want %s as in any run", got, want)
	}
	if got := (&paint{}).text(red, "x"); got != "x" {
		t.Errorf("without colours: got %q", got)
	}
}
