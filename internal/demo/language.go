package demo

import (
	"fmt"
	"strings"

	"feishu-relay/outcome"
)

// language is what the demo speaks: English, or Chinese.
type language struct{ chinese bool }

// say is a text in it.
func (l language) say(en, zh string, args ...any) string {
	return fmt.Sprintf(outcome.Text{EN: en, ZH: zh}.In(l.chinese), args...)
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
