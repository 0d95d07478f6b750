package demo

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/subprocess"
)

// Widths of the columns, in cells of a terminal.
const (
	nameCells   = 11
	groupCells  = 8
	depthCells  = 9
	tierCells   = 11
	reasonCells = 24
	textIndent  = 10 + nameCells + 3 + groupCells + 1 // of the second and further lines of a text
)

// Colours. Each bot has one, so that the eye can follow it.
const (
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	blue    = "\x1b[34m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	reset   = "\x1b[0m"
)

// printer writes the demo's lines. Its callers see to it that there is one at a
// time. What cannot be written is left out: the check does not depend on it.
type printer struct {
	language
	w      io.Writer
	color  bool
	colors map[string]string // of names
}

// newPrinter returns a printer on which the cast and the user are named.
func newPrinter(o Options, l language, cast []character) *printer {
	p := &printer{language: l, w: o.Output, color: o.Color, colors: map[string]string{l.user(): bold}}
	for i, c := range cast {
		p.colors[c.Name] = [...]string{cyan, magenta, blue}[i]
	}
	return p
}

func (p *printer) paint(color, text string) string {
	if !p.color || color == "" {
		return text
	}
	return color + text + reset
}

func (p *printer) plain(text string) { fmt.Fprintln(p.w, text) }
func (p *printer) title(text string) { p.plain(p.paint(bold, text)) }
func (p *printer) note(text string)  { p.plain(p.paint(dim, strings.Repeat(" ", 10)+"· "+text)) }
func (p *printer) kept(dir string) {
	p.plain(p.say("kept: %s (read it with: feishu-relay transcript list --dir %[1]s/transcripts)",
		"已保留：%s（查看：feishu-relay transcript list --dir %[1]s/transcripts）", dir))
}

// said prints a message; of a card, what it said first.
func (p *printer) said(m *message) {
	lines := strings.Split(m.text, "\n")
	first := clean(lines[0])
	if m.kind != "" {
		first = p.paint(dim, p.word(m.kind)+": ") + first
	}
	if len(m.drafts) > 0 {
		lines, first = nil, p.draft(m.drafts[0])
	}
	fmt.Fprintf(p.w, "%s  %s → %s %s\n", p.paint(dim, m.ts.Time().Local().Format("15:04:05")),
		p.paint(p.colors[m.name], pad(m.name, nameCells)), pad(m.group, groupCells), first)
	for i := 1; i < len(lines); i++ {
		p.below(clean(lines[i]))
	}
}

// wrote prints what the card above says now, on one line.
func (p *printer) wrote(text string) { p.below(p.draft(text)) }

// finished prints what the card above says at last.
func (p *printer) finished(text string) {
	mark := "■ "
	for line := range strings.SplitSeq(text, "\n") {
		p.below(mark + clean(line))
		mark = "  "
	}
}

func (p *printer) draft(text string) string {
	return p.paint(dim, "⋯ "+clean(strings.ReplaceAll(text, "\n", " ")))
}

// below prints a further line of a text.
func (p *printer) below(line string) {
	fmt.Fprintf(p.w, "%s%s\n", strings.Repeat(" ", textIndent), line)
}

// became prints what the sidecar of a bot made of the message above.
func (p *printer) became(name string, f *fate) {
	depth, tier, reason := "", f.kind, cmp.Or(string(f.stopped), p.word(f.where))
	if f.decided {
		depth, tier, reason = p.say("depth %d", "深度 %d", f.depth), f.tier, f.reason
	}
	mark, end, color := "✓", p.say("delivered", "送达"), green
	if f.stopped != "" {
		mark, end, color = "✗", p.say("stopped", "拦下"), yellow
	} else {
		reason = p.passed(reason)
	}
	if f.delivered > 1 || f.received > 1 {
		end, color = p.say("delivered twice", "送了两次"), red
	}
	fmt.Fprintf(p.w, "          %s %s %s%s %s%s%s\n", p.paint(dim, "↳"), p.paint(p.colors[name], pad(name, nameCells)),
		pad(depth, depthCells), p.paint(color, mark), pad(p.word(tier), tierCells), pad(reason, reasonCells),
		p.paint(color, end))
}

// logs prints the ends of the sidecars' logs.
func (p *printer) logs(sidecars []*sidecar) {
	p.plain("")
	for _, s := range sidecars {
		p.plain(p.paint(bold, p.say("the end of the log of %s's sidecar:", "%s 的边车日志末尾：", s.Name)))
		p.plain(subprocess.LogEnd(s.log))
	}
}

// pad fills a text with spaces to n cells; a longer one stands as it is, with
// one space behind it.
func pad(text string, n int) string {
	return text + strings.Repeat(" ", max(1, n-runes.Columns(text)))
}

// clean leaves out control characters, which a terminal would obey: in a chat
// the text is anybody's.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
}

// excerpt is the beginning of a text, on one line.
func excerpt(text string) string {
	return runes.Fit(clean(strings.Join(strings.Fields(text), " ")), 60)
}

// language is what the demo speaks: English, or Chinese.
type language struct{ chinese bool }

// say is a text in it.
func (l language) say(en, zh string, args ...any) string {
	return fmt.Sprintf(map[bool]string{false: en, true: zh}[l.chinese], args...)
}

// user is the name of the person who plays.
func (l language) user() string { return l.say("user", "用户") }

// word is a word of the sidecars' in the language: a tier, a state of a task, a kind of mail.
// Reasons of stops are the same in both, as in logs and metrics.
func (l language) word(w string) string {
	if zh, ok := chineseWords[w]; ok && l.chinese {
		return zh
	}
	return w
}

var chineseWords = map[string]string{
	"threshold": "阈值", "judge": "裁判", "hard_limit": "硬上限", "released": "放行",
	taskKind: "任务", messageKind: "消息", mailbox: "信箱", askedIn: "提问的私聊", betweenAgents: "单独的私聊",
	"pending": "等待接收", "accepted": "已接受", "working": "进行中", "completed": "已完成", "failed": "失败", "rejected": "被拒绝",
}

// passed is the policy's reason to let a message pass, in the language.
func (l language) passed(reason string) string {
	if l.chinese {
		return strings.NewReplacer("depth", "深度", "threshold", "阈值", "judge: ", "裁判：").Replace(reason)
	}
	return reason
}
