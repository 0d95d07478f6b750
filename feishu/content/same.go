package content

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Sum identifies what a content says: two versions that say the same have the same sum. In a card a clock, a counter,
// a spinner or an elapsed time that changes is no change, nor is one of a thought or a footer.
func (d Doc) Sum() string {
	text := d.Text()
	if d.Type == typeCard {
		text = settled(text)
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
}

// counters matches a line of clocks, times, shares and counts alone.
const counters = `^(?:(?:[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}|[0-9]{1,2}(?::[0-9]{2}){1,2}|` +
	`[0-9]+(?:\.[0-9]+)? ?(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|秒钟?|分钟?|小时|%)|` +
	`[0-9]+ ?(?:/|of) ?[0-9]+)[\s·|,()（）\[\]/-]*)+$`

// number matches a number, or a bar or a spinner of blocks.
const number = `[0-9]+(?:[.:,][0-9]+)*|[\x{2580}-\x{259f}\x{2800}-\x{28ff}]+`

// amounts matches numbers with units, such as "1m 5s", "3/10", "12 of 40 files" up to "files", or a bar of blocks.
const amounts = `(?:(?:` + number + `)` +
	`\s*(?:(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|[kKM])\b|秒钟?|分钟?|小时|%)?[\s/·|~-]*(?:of )?)+`

var (
	numberRE = regexp.MustCompile(number)
	// statusRE matches counters, or a word for what goes on while somebody reads, with the numbers beside it. Another
	// number of the line is part of the answer: "Step 2: open port 80".
	statusRE = regexp.MustCompile(`(?i)` + counters + `|(?:\b(?:updated?|refreshed|as of|elapsed|running|uptime|` +
		`progress|steps?|tokens?|remaining|eta|took|processed|scanned|downloaded)\b|` +
		`更新|刷新|截至|用时|耗时|已运行|运行中|进度|步骤|剩余|计时|已处理|已扫描|已下载)` +
		`(?:\s*(?:used|at|for|in|time|于|时间|至|到))?[\s:：,，()（）·|\[\]*_/-]*` + amounts + `|` +
		amounts + `\s*(?:steps?|tokens?|elapsed|remaining)\b|第 ?[0-9]+ ?步`)
	unfinishedRE = regexp.MustCompile("(?:…|\\.\\.\\.|⋯|⏳|[▌▍▋▊▉█])[\\s*_`]*$")
	breaksOffRE  = regexp.MustCompile(`[\pL\pM,;:，、；：(（–—-][\s*_]*$`)
	wordRE       = regexp.MustCompile(`\p{Han}|\p{So}|(?:[^\P{L}\p{Han}]|[\p{N}@'])+`)
)

// settled is a text without what changes by itself.
func settled(text string) string {
	var said strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimFunc(line, spinner)
		line = statusRE.ReplaceAllStringFunc(line, func(s string) string { return numberRE.ReplaceAllString(s, "0") })
		if line != "" {
			said.WriteString(line + "\n")
		}
	}
	return said.String()
}

// Another reports whether a text is another answer than the one before it: it has other words. Punctuation, and what
// changes by itself, make no other answer.
func Another(before, text string) bool { return !slices.Equal(wordsOf(before), wordsOf(text)) }

// Begins reports whether text begins with the words of part, the last of which may be cut.
func Begins(text, part string) bool {
	first := strings.Join(wordsOf(part), " ")
	return first != "" && strings.HasPrefix(strings.Join(wordsOf(text), " "), first)
}

// Unfinished reports whether the end of a text shows that more is to come: an ellipsis or a cursor.
func Unfinished(text string) bool { return unfinishedRE.MatchString(text) }

// BreaksOff reports whether a text ends within a sentence: with a letter, or a sign that others follow.
func BreaksOff(text string) bool { return breaksOffRE.MatchString(text) }

// wordsOf returns the words of a text, without what changes by itself. Chinese has no spaces: each character is one.
func wordsOf(text string) []string { return wordRE.FindAllString(strings.ToLower(settled(text)), -1) }

// waiting are the texts that bots show until they have an answer, without brackets, dots and spinners. The list is
// closed: a text that only begins like one of them is an answer.
var waiting = strings.Split("|thinking|still thinking|is thinking|bot is thinking|thinking hard|thinking about it|"+
	"deep thinking|generating|generating response|generating a response|generating reply|generating answer|"+
	"generating card|processing|processing your request|processing request|loading|typing|is typing|bot is typing|"+
	"assistant is typing|working on it|reasoning|analyzing|analysing|searching|preparing|preparing response|"+
	"please wait|one moment|just a moment|"+
	"思考中|正在思考|正在思考中|深度思考中|努力思考中|正在努力思考|机器人思考中|ai思考中|ai 思考中|生成中|正在生成|"+
	"正在生成中|正在生成回复|正在生成回答|回复生成中|回答生成中|内容生成中|处理中|正在处理|正在处理中|正在处理您的请求|"+
	"加载中|正在加载|正在输入|正在输入中|输入中|对方正在输入|正在回复|正在回复中|回复中|正在查询|查询中|正在搜索|搜索中|"+
	"正在分析|分析中|正在检索|检索中|请稍候|请稍等|稍等|请稍后|请等待|等待中|思考中，请稍候|正在思考，请稍候|处理中，请稍候|"+
	"生成中，请稍候|正在处理，请稍候", "|")

// elapsedRE matches a running clock behind the words.
var elapsedRE = regexp.MustCompile(`[\s(（\[]*[0-9]+(?:\.[0-9]+)?\s*(?:s|sec|secs|seconds|秒)[)）\]]*$`)

// Placeholder reports whether the content only says that an answer is coming, or nothing. A button beside such words,
// such as "Stop", does not change that.
func (d Doc) Placeholder() bool {
	if text := d.text(Controls); strings.TrimSpace(text) != "" && text != word(d.Type) {
		return Placeholder(text)
	}
	return Placeholder(d.Text())
}

// Placeholder reports whether text only says that an answer is coming, such as "Thinking…", "[Generating...]",
// "思考中" or a spinner, or nothing at all.
func Placeholder(text string) bool {
	if text = strings.ToLower(strings.TrimFunc(text, spinner)); len(text) > 400 { // bytes: it is an answer
		return false
	}
	if cut := strings.TrimFunc(elapsedRE.ReplaceAllString(text, ""), spinner); cut != "" { // "5 s" is an answer
		text = cut
	}
	return slices.Contains(waiting, text)
}

// spinner reports whether r is what surrounds such words: space, dots, brackets, marks of markdown, clocks and cursors.
// Signs that may be an answer of their own (?, !, 👍, ✅) are not.
func spinner(r rune) bool {
	return r <= ' ' || r == 0x7f || r == 0xa0 || r == 0x3000 || 0x2000 <= r && r <= 0x200f || r == 0x2060 ||
		r == 0xfeff || 0xfe00 <= r && r <= 0xfe0f || // space, and what joins or colours an emoji
		0x2800 <= r && r <= 0x28ff || 0x2580 <= r && r <= 0x259f || // braille and block spinners
		strings.ContainsRune(".…⋯‥·•・。｡．()[]{}<>（）【】「」［］〔〕*_`~|/\\-—–", r) ||
		strings.ContainsRune("⏳⌛⏱⏲🕐🔄🔃♻⚙🛠💭🧠🤔🤖✍⌨💬🔍🔎◐◓◑◒◴◷◶◵●○◌◍⚪⚫", r)
}
