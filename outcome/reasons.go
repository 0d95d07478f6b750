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
	More      string // the page of the docs that says more, from docs/ on; "" where none does
}

// Advices are of all reasons, in the order of docs/troubleshooting.md, whose table is made of them.
var Advices = []Advice{
	{relay.OwnMessage, Text{"the bot's own message came back", "机器人自己的消息绕了回来"}, nothing, ""},
	{relay.Duplicate, Text{"handled already: a repeat, or the native copy of a relayed message",
		"已经处理过：重复的一条，或中继消息的飞书原生副本"}, nothing, ""},
	{relay.NotAMember, Text{"said in a group that this bot is not in", "说在这个机器人不在的群里"},
		Text{"nothing; or add the bot to the group in Feishu, or to `members` in the groups file",
			"不用处理；或在飞书里把机器人加进群，或写进群文件的 `members`"}, ""},
	{relay.NotMentioned, Text{"`GROUP_POLICY=mention`, and it does not address this bot",
		"`GROUP_POLICY=mention`，而它没有点名这个机器人"},
		Text{"nothing; or `GROUP_POLICY=auto`; or see why the mention was not seen",
			"不用处理；或设 `GROUP_POLICY=auto`；或看看点名为什么没有认出来"}, "troubleshooting.md#mentions-are-plain-text"},
	{relay.MaxDepth, Text{"as many bots' messages in a row as the hard limit allows", "机器人连续发言到了硬上限"},
		Text{"nothing: say something in the group, or reply “continue”; or raise the limit",
			"不用处理：在群里说句话，或回复“继续”；或调高上限"}, "troubleshooting.md#it-answers-in-a-loop-or-stops-too-soon"},
	{relay.JudgeNo, Text{"the judge considers it a courtesy, or no concern of this bot", "裁判认为它只是客套，或与这个机器人无关"},
		Text{"nothing; or raise `BOT_REPLY_LLM_THRESHOLD`, or set `AGENT_ROLE`",
			"不用处理；或调高 `BOT_REPLY_LLM_THRESHOLD`，或设 `AGENT_ROLE`"},
		"troubleshooting.md#it-answers-in-a-loop-or-stops-too-soon"},
	{relay.JudgeError, Text{"the judge failed, was too slow, or said neither YES nor NO", "裁判出错、太慢，或没有回答 YES 或 NO"},
		Text{"`feishu-relay check`; a faster model or a longer `BOT_REPLY_LLM_TIMEOUT`; `BOT_REPLY_LLM_ON_ERROR=allow`",
			"运行 `feishu-relay check`；换更快的模型，或加长 `BOT_REPLY_LLM_TIMEOUT`；或设 `BOT_REPLY_LLM_ON_ERROR=allow`"}, ""},
	{relay.Expired, Text{"older than `RELAY_MAX_AGE` when it came; no channel to the bot was open for that long; " +
		"the bot answered only with errors for that long; or from before the first start",
		"到达时已超过 `RELAY_MAX_AGE`；这么久没有通道能送到机器人；机器人这么久只回错误；或在边车第一次启动之前"},
		Text{"was the bot or the sidecar away? Is a clock wrong (`check`: `clock`)? Does the bot fail on the message? " +
			"Else raise `RELAY_MAX_AGE`", "机器人或边车是否离线过？时钟对吗（`check` 的 `clock`）？机器人处理它时出错吗？" +
			"都不是就调大 `RELAY_MAX_AGE`"}, ""},
	{relay.Recalled, Text{"a person recalled it, or its sender did, before the bot was given it",
		"在送到机器人之前，已被人或发送者撤回"}, nothing, ""},
	{relay.Muted, Text{"a person muted this bot in the group", "有人在群里把这个机器人静音了"},
		Text{"nothing; or `/relay unmute @Bot`", "不用处理；或 `/中继 取消静音 @机器人`"}, "steering.md"},
	{relay.Paused, Text{"a person paused bots' messages in the group", "有人暂停了群里机器人之间的消息"},
		Text{"nothing; or `/relay resume`", "不用处理；或 `/中继 恢复`"}, "steering.md"},
	{relay.StoppedByPerson, Text{"a person stopped the bots (`/relay stop`)", "有人叫停了机器人（`/中继 停止`）"},
		Text{"nothing: the next message of a person ends it; or reply “continue”", "不用处理：有人再说话就恢复；或回复“继续”"}, "steering.md"},
	{relay.NotForMe, Text{"who the message is for was found by the group's `answer` mode: another bot",
		"按本群的 `answer` 模式，这条消息是给别的机器人的"},
		Text{"mention the bot that should answer; or `/relay answer all`", "想让谁回答就点名谁；或 `/中继 回答 全部`"}, "steering.md"},
	{relay.Budget, Text{"bots said as much this hour as the group's budget allows", "这一小时机器人的消息已达到本群的预算"},
		Text{"nothing: it goes on as the hour passes; or `/relay budget N`", "不用处理：过一阵会继续；或 `/中继 预算 N`"}, "steering.md"},
	{relay.Undeliverable, Text{"the bot refused it (4xx), or did not answer within `DELIVERY_TIMEOUT`",
		"机器人明确拒收（4xx），或在 `DELIVERY_TIMEOUT` 内没有回答"},
		Text{"`err` in the sidecar's log line `stopped` says which; it should answer 2xx, or 503 to be asked again; " +
			"if its turns are longer, raise `DELIVERY_TIMEOUT`. A late answer counts all the same",
			"边车日志里 `stopped` 那行的 `err` 写着是哪种；机器人应答 2xx，想让边车再送就答 503；若它一轮更久，调大 `DELIVERY_TIMEOUT`。" +
				"迟到的回答同样算数"}, "api.md#deliveries"},
	{relay.BadSignature, Text{"not signed with this `RELAY_SECRET`", "签名与这里的 `RELAY_SECRET` 不符"},
		Text{"the same secret for all sidecars (`check`: `secrets`); if it is: a stranger writes to your folder or Redis",
			"所有边车用同一个密钥（`check` 的 `secrets`）；若已相同：有外人在写你的文件夹或 Redis"}, ""},
	{relay.Malformed, Text{"no message, or one on the wrong queue", "不是消息，或放错了队列"},
		Text{"`RELAY_DIR/processed/<agent>.malformed.jsonl` holds it; correct the program that wrote it. " +
			"Of equal warnings the log has 20 and then one a second, with `suppressed`; the metrics count all",
			"它在 `RELAY_DIR/processed/<agent>.malformed.jsonl` 里；请改正写它的程序。相同的警告日志先记 20 条，之后每秒一条并带 `suppressed`；" +
				"指标全部计数"}, ""},
}

var nothing = Text{"nothing", "不用处理"}

// Advise returns what is known of a reason; ok is false for one that is not known.
func Advise(why relay.Reason) (a Advice, ok bool) {
	for _, a := range Advices {
		if a.Reason == why {
			return a, true
		}
	}
	return Advice{}, false
}
