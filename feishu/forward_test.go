package feishu_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"feishu-relay/feishu"
)

func TestForwarded(t *testing.T) {
	child := func(name, raw string) feishu.Message {
		return feishu.Message{Type: "text", Content: raw, Sender: feishu.Sender{Name: name}}
	}
	got := feishu.Forwarded([]feishu.Message{child("Tom", `{"text":"a\nb"}`), child("", `{"text":"c"}`),
		{Sender: feishu.Sender{Name: "Ann"}, Type: "file", Content: `{"file_key":"k","file_name":"x.pdf"}`}})
	if want := "[合并转发]\nTom: a b\nc\nAnn: [文件] x.pdf"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	many := make([]feishu.Message, 150)
	for i := range many {
		many[i] = child("Tom", `{"text":"x"}`)
	}
	if got := feishu.Forwarded(many); strings.Count(got, "\n") != 101 || !strings.HasSuffix(got, "x\n…") {
		t.Errorf("150 messages become %d lines", strings.Count(got, "\n"))
	}
	large := []feishu.Message{child("", `{"text":"`+strings.Repeat("长", 8000)+`"}`)}
	for range 20 {
		large = append(large, large[0])
	}
	if got := feishu.Forwarded(large); len(got) > 17<<10 || !utf8.ValidString(got) || !strings.HasSuffix(got, "长\n…") {
		t.Errorf("%d bytes", len(got))
	}
}
