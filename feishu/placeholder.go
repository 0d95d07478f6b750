package feishu

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxPlaceholder is the longest text that is looked at as a placeholder.
const maxPlaceholder = 120

// waiting are the texts that bots show until they have an answer, without
// brackets, dots and spinners. The list is closed: a text that only begins like
// one of them is an answer.
var waiting = func() map[string]bool {
	set := map[string]bool{"": true}
	for word := range strings.SplitSeq(`thinking|still thinking|is thinking|bot is thinking|thinking hard|
thinking about it|deep thinking|generating|generating response|
generating a response|generating reply|generating answer|generating card|
processing|processing your request|processing request|loading|typing|is typing|bot is typing|assistant is typing|
working on it|reasoning|analyzing|analysing|searching|preparing|preparing response|
please wait|one moment|just a moment|
思考中|正在思考|正在思考中|深度思考中|努力思考中|正在努力思考|机器人思考中|ai思考中|ai 思考中|
生成中|正在生成|正在生成中|正在生成回复|正在生成回答|回复生成中|回答生成中|内容生成中|
处理中|正在处理|正在处理中|正在处理您的请求|加载中|正在加载|正在输入|正在输入中|输入中|对方正在输入|
正在回复|正在回复中|回复中|正在查询|查询中|正在搜索|搜索中|正在分析|分析中|正在检索|检索中|
请稍候|请稍等|稍等|请稍后|请等待|等待中|思考中，请稍候|正在思考，请稍候|处理中，请稍候|生成中，请稍候|正在处理，请稍候`, "|") {
		set[strings.TrimSpace(word)] = true
	}
	return set
}()

// elapsed is a running clock behind the words.
var elapsed = regexp.MustCompile(`[\s(（\[]*[0-9]+(?:\.[0-9]+)?\s*(?:s|sec|secs|seconds|秒)[)）\]]*$`)

// Placeholder reports whether text only says that an answer is coming, such as
// "Thinking…", "[Generating...]", "思考中" or a spinner, or nothing at all.
func Placeholder(text string) bool {
	text = strings.TrimFunc(text, spinner)
	if utf8.RuneCountInString(text) > maxPlaceholder {
		return false
	}
	text = strings.ToLower(text)
	if !strings.ContainsAny(text, "0123456789") {
		return waiting[text] // no clock
	}
	if cut := strings.TrimFunc(elapsed.ReplaceAllString(text, ""), spinner); cut != "" { // "5 s" is an answer
		text = cut
	}
	return waiting[text]
}

// spinner reports whether r is what stands around such words: space, dots,
// brackets, marks of markdown, clocks and cursors. Signs that may be an answer
// of their own (?, !, 👍, ✅) are not.
func spinner(r rune) bool {
	switch {
	case r <= ' ' || r == 0x7f || r == 0xa0 || r == 0x3000 || 0x2000 <= r && r <= 0x200f || r == 0x2060 || r == 0xfeff ||
		0xfe00 <= r && r <= 0xfe0f:
		return true // space, and what joins or colours an emoji
	case 0x2800 <= r && r <= 0x28ff, 0x2580 <= r && r <= 0x259f: // braille and block spinners
		return true
	}
	return strings.ContainsRune(".…⋯‥·•・。｡．()[]{}<>（）【】「」［］〔〕*_`~|/\\-—–", r) ||
		strings.ContainsRune("⏳⌛⏱⏲🕐🔄🔃♻⚙🛠💭🧠🤔🤖✍⌨💬🔍🔎◐◓◑◒◴◷◶◵●○◌◍⚪⚫", r)
}
