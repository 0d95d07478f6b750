package content_test

import (
	"fmt"
	"strings"
	"testing"

	"feishu-relay/feishu/content"
)

func TestWithNamesKeepsWhatHasNoName(t *testing.T) {
	const text = "<at id=ou_x></at> @_user_1 a@b.c"
	if got := content.WithNames(text, nil); got != text {
		t.Errorf("got %q", got)
	}
	got := content.WithNames(text, []content.Mention{{OpenID: "ou_x", Name: "@A\nB"}, {Key: "@_user_1", Name: "<at id=ou_x></at>"}})
	if want := "@A B @<at id=ou_x></at> a@b.c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is larger, deeper or longer than a content may be.
func TestBounds(t *testing.T) {
	deep := strings.Repeat(`{"post":`, 40) + "1" + strings.Repeat("}", 40)
	for _, tt := range []struct{ msgType, raw, want string }{
		{"post", deep, deep},
		{"text", `{"text":"` + strings.Repeat("x", 1<<20) + `"}`, "[文本]"},
	} {
		if got := content.Parse(tt.msgType, tt.raw, nil).Text(); got != tt.want {
			t.Errorf("%.40s: got %.200q", tt.raw, got)
		}
	}
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, `[{"tag":"img","image_key":"img_%d"}],`, i)
	}
	if got := content.Parse("post", `{"content":[`+many.String()+"0]}", nil).Keys(); len(got) != 100 || got[99] != "img_99" {
		t.Errorf("%d keys of 300", len(got))
	}
	long := content.Parse("file", `{"file_key":"k","file_name":"`+strings.Repeat("字", 400)+`"}`, nil).Files()
	if len(long) != 1 || long[0].Name != strings.Repeat("字", 170) {
		t.Errorf("a long name: %v", long)
	}
}

func TestPlaceholder(t *testing.T) {
	for _, text := range []string{
		"", " \n", ".", "...", "…", "......", "。。。", "· · ·", "⏳", "⏳ …", "⠋", "▌", "◐", "🤔", "💭...", "---", "|", "🔄", "⚙️", "✍️",
		"Thinking…", "Thinking...", "thinking", "[Generating...]", "*Thinking...*", "_thinking_", "**Thinking…**", "> Thinking…", "🤔 Thinking...",
		"⏳ Processing...", "Loading…", "Please wait...", "Working on it…", "Thinking... (3s)", "Thinking… 12 s", "Generating response ▌", "Typing...",
		"思考中", "思考中...", "【思考中】", "正在思考…", "正在输入…", "对方正在输入...", "生成中", "⌛ 生成中，请稍候", "正在生成回复…", "处理中…", "请稍候", "思考中… 12秒", "思考中（3.5s）", "加载中",
		"`思考中`", "「思考中」",
	} {
		if !content.Placeholder(text) {
			t.Errorf("%q is none", text)
		}
	}
	for _, text := range []string{
		"ok", "好", "👍", "✅", "?", "？", "!", "😀", "42", "5s", "30秒", "3", "1.5s", "-1", "Thinking about it, I would say no.", "Thinking: yes", "思考中的人", "我在思考中", "正在处理你的订单：已发货",
		"Loading dock 3", "Done.", "等", "a", "C", "+1", "[图片]", "[卡片]", "@Tom", "@所有人", "处理完成", "working", "no problem…", "Processing finished", "0",
		strings.Repeat("思考中", 50),
	} {
		if content.Placeholder(text) {
			t.Errorf("%q is one", text)
		}
	}
}
