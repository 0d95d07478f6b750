package outcome

import "feishu-relay/relay"

// Text is a sentence or a part of one in both languages.
type Text struct{ EN, ZH string }

// In returns the text in Chinese or in English.
func (t Text) In(chinese bool) string {
	if chinese {
		return t.ZH
	}
	return t.EN
}

// Advice is what a reason of a stop means to an operator, and what to do about it.
type Advice struct {
	Reason    relay.Reason
	Means, Do Text
	More      Text // the page with details, relative to docs/; empty if there is none
}

// Advices has the advice for every reason. The tables of reasons in docs/troubleshooting.md and in its Chinese version
// are generated from it.
var Advices = []Advice{
	{relay.OwnMessage, Text{"the bot's own message", "机器人自己发的消息"}, nothing, Text{}},
	{relay.Duplicate, Text{"already handled: a repeat, or Feishu's own copy of a relayed message",
		"已经处理过：重复的消息，或飞书自己推送的同一条消息"}, nothing, Text{}},
	{relay.NotAMember, Text{"from a group that this bot is not in", "来自机器人未加入的群"},
		Text{"nothing; or add the bot to the group in Feishu, or to `members` in the groups file",
			"不用处理；或在飞书里把机器人加入群，或加到群文件的 `members`"}, Text{}},
	{relay.NotMentioned, Text{"`GROUP_POLICY=mention`, and the message does not mention this bot",
		"`GROUP_POLICY=mention`，而消息没有点名这个机器人"},
		Text{"nothing; or `GROUP_POLICY=auto`; or check why the mention was not recognized",
			"不用处理；或设 `GROUP_POLICY=auto`；或查看点名为什么没有识别出来"}, mentions},
	{relay.MaxDepth, Text{"bots reached the hard limit of messages in a row", "机器人连续发言已达硬上限"},
		Text{"no fault: write something in the group, or reply “continue”; or raise the limit",
			"不是故障：在群里说句话，或回复“继续”；或调高上限"}, loops},
	{relay.JudgeNo, Text{"the judge considers it small talk, or not relevant to this bot", "裁判认为它只是客套话，或与这个机器人无关"},
		Text{"nothing; or raise `BOT_REPLY_LLM_THRESHOLD`, or set `AGENT_ROLE`",
			"不用处理；或调高 `BOT_REPLY_LLM_THRESHOLD`，或设 `AGENT_ROLE`"}, loops},
	{relay.JudgeError, Text{"the judge failed, was too slow, or answered neither YES nor NO", "裁判出错、太慢，或没有回答 YES 或 NO"},
		Text{"run `feishu-relay check`; use a faster model or a longer `BOT_REPLY_LLM_TIMEOUT`; or set `BOT_REPLY_LLM_ON_ERROR=allow`",
			"运行 `feishu-relay check`；换更快的模型，或加长 `BOT_REPLY_LLM_TIMEOUT`；或设 `BOT_REPLY_LLM_ON_ERROR=allow`"}, Text{}},
	{relay.Expired, Text{"older than `RELAY_MAX_AGE` on arrival; or the bot was not connected, or answered only with errors, for that long; " +
		"or older than the sidecar's first start",
		"到达时已超过 `RELAY_MAX_AGE`；或机器人在这段时间内一直没有连接，或只返回错误；或早于边车第一次启动"},
		Text{"was the bot or the sidecar offline? Is a clock wrong (`check`: `clock`)? Does the bot fail on the message? " +
			"Otherwise raise `RELAY_MAX_AGE`", "机器人或边车是否离线过？时钟是否准确（`check` 的 `clock`）？机器人处理这条消息时是否出错？" +
			"都不是就调大 `RELAY_MAX_AGE`"}, Text{}},
	{relay.Recalled, Text{"its sender or another person recalled it before it was delivered",
		"送达之前已被发送者或其他人撤回"}, nothing, Text{}},
	{relay.Muted, Text{"a person muted this bot in the group", "有人在群里把这个机器人静音了"},
		Text{"nothing; or `/relay unmute @Bot`", "不用处理；或 `/中继 取消静音 @机器人`"}, steered},
	{relay.Paused, Text{"a person paused bots' messages in the group", "有人暂停了群里机器人之间的消息"},
		Text{"nothing; or `/relay resume`", "不用处理；或 `/中继 恢复`"}, steered},
	{relay.StoppedByPerson, Text{"a person stopped the bots (`/relay stop`)", "有人叫停了机器人（`/中继 停止`）"},
		Text{"nothing: the bots continue when a person writes; or reply “continue”", "不用处理：有人再发消息就恢复；或回复“继续”"}, steered},
	{relay.NotForMe, Text{"the group's `answer` mode gives the message to another bot",
		"按本群的 `answer` 模式，这条消息由别的机器人回答"},
		Text{"mention the bot that should answer; or `/relay answer all`", "想让谁回答就点名谁；或 `/中继 回答 全部`"}, steered},
	{relay.Budget, Text{"the group's bots have used up this hour's budget", "本群机器人这一小时的消息预算已用完"},
		Text{"nothing: bots' messages pass again as the hour goes by; or `/relay budget N`",
			"不用处理：过一段时间会自动恢复；或 `/中继 预算 N`"}, steered},
	{relay.Undeliverable, Text{"the bot refused it (4xx), or did not answer within `DELIVERY_TIMEOUT`",
		"机器人明确拒收（4xx），或在 `DELIVERY_TIMEOUT` 内没有回答"},
		Text{"see `err` in the sidecar's log line `stopped`; the bot should answer 2xx, or 503 to get the message again; " +
			"if it needs more time, raise `DELIVERY_TIMEOUT`. A late answer still counts",
			"见边车日志 `stopped` 行的 `err`；机器人应回答 2xx，需要重新投递时回答 503；如果处理需要更久，调大 `DELIVERY_TIMEOUT`。" +
				"迟到的回答仍然有效"}, deliveries},
	{relay.BadSignature, Text{"not signed with this `RELAY_SECRET`", "签名与这里的 `RELAY_SECRET` 不符"},
		Text{"use the same secret for all sidecars (`check`: `secrets`); if it is the same, an unknown program writes to your folder or Redis",
			"所有边车使用同一个密钥（`check` 的 `secrets`）；如果已经相同，说明有未知程序在写你的文件夹或 Redis"}, Text{}},
	{relay.Malformed, Text{"not a message, or on the wrong queue", "不是消息，或放错了队列"},
		Text{"it is in `RELAY_DIR/processed/<agent>.malformed.jsonl`; fix the program that wrote it. " +
			"The log has the first 20 equal warnings, then one a second with `suppressed`; the metrics count all",
			"它在 `RELAY_DIR/processed/<agent>.malformed.jsonl` 里；请修正写入它的程序。相同的警告，日志先记 20 条，之后每秒一条并带 `suppressed`；" +
				"指标会全部计数"}, Text{}},
}

var nothing = Text{"nothing", "不用处理"}

// The pages with details.
var (
	mentions   = Text{"troubleshooting.md#mentions-are-plain-text", "troubleshooting.zh.md#提及只是普通文字"}
	loops      = Text{"troubleshooting.md#it-answers-in-a-loop-or-stops-too-soon", "troubleshooting.zh.md#陷入循环或停得太早"}
	steered    = Text{"steering.md", "steering.zh.md"}
	deliveries = Text{"api.md#deliveries", "api.md#deliveries"}
)

// Advise returns the advice for a reason; ok is false for an unknown reason.
func Advise(why relay.Reason) (a Advice, ok bool) {
	for _, a := range Advices {
		if a.Reason == why {
			return a, true
		}
	}
	return Advice{}, false
}
