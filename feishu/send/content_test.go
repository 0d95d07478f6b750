package send

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func untagged(s string) string { return s }

func TestCompose(t *testing.T) {
	for _, tt := range []struct{ name, text, kind string }{
		{"plain", "好的，明天 10:00 见。\nSee you - Ann * 2 < 3 # 1", "text"},
		{"snake_case and 2*3*4", "snake_case, 2*3*4, a|b, [x], ~5", "text"},
		{"a URL", "https://example.com/a_b-c#d", "text"},
		{"an at-tag", `<at user_id="ou_x">X</at> hi`, "text"},
		{"heading", "# Plan\ntext", "post"},
		{"list", "do:\n- a\n- b", "post"},
		{"numbers", "1. a\n2. b", "post"},
		{"quote", "> he said", "post"},
		{"fence", "```\nx\n```", "post"},
		{"inline code", "run `ls` now", "post"},
		{"bold", "this is **it**", "post"},
		{"link", "see [the docs](https://example.com)", "post"},
		{"table", "| a | b |\n|---|---|\n| 1 | 2 |", "post"},
		{"rule", "a\n---\nb", "post"},
		{"struck out", "~~no~~ yes", "post"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := compose(tt.text, untagged)
			if err != nil || len(got) != 1 {
				t.Fatalf("got %v, %v", got, err)
			}
			if got[0].Type != tt.kind {
				t.Errorf("%s, want %s", got[0].Type, tt.kind)
			}
			var v any
			if err := json.Unmarshal([]byte(got[0].Content), &v); err != nil {
				t.Error(err)
			}
			quoted, _ := json.Marshal(tt.text)
			if plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(quoted)); !strings.Contains(got[0].Content, plain) {
				t.Errorf("%s does not hold %s", got[0].Content, plain)
			}
		})
	}
}

func TestComposeIsBounded(t *testing.T) {
	if _, err := compose(" \n\t", untagged); !errors.Is(err, ErrNoText) {
		t.Errorf("blank: %v", err)
	}
	if _, err := compose(strings.Repeat("x", maxPieces*maxRunes+1), untagged); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	long := func(s string) string {
		return strings.ReplaceAll(s, "@a", `<at user_id="ou_`+strings.Repeat("0", 32)+`">a</at>`)
	}
	for name, text := range map[string]string{
		"mentions": strings.Repeat("@a ", 4000),
		"escapes":  strings.Repeat("\x01\"\\<", 3000),
		"emoji":    strings.Repeat("🙂", 12_000),
		"post":     "# x\n" + strings.Repeat("**\"好\"**", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compose(text, long)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range got {
				if n := escaped(c.Content); n > maxBody {
					t.Errorf("piece %d has %d bytes, at most %d", i, n, maxBody)
				}
			}
		})
	}
}
