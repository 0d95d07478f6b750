package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// text2 is a text in both languages.
type text2 struct{ en, zh string }

func (t text2) in(chinese bool) string {
	if chinese {
		return t.zh
	}
	return t.en
}

// is reports whether a person said one of both.
func (t text2) is(said string) bool { return strings.EqualFold(said, t.en) || said == t.zh }

// catalogue has the texts that people read. Names in them mention nobody.
var catalogue = map[string]text2{
	// Mistakes in a command.
	"no command": {"There is no command “%[1]s”. “%[2]s help” lists the commands.",
		"没有“%[1]s”这个命令。“%[2]s 帮助”列出所有命令。"},
	"unexpected": {"Unexpected “%[1]s” after “%[2]s”: nothing was changed.",
		"“%[2]s”后面的“%[1]s”无法识别，命令未执行。"},
	"bad time": {"“%s” is not a duration. Write 30m, 2h or 1d, at most 7 days.",
		"“%s”不是时长。请写 30分钟、2小时、1天，最长 7 天。"},
	"not a bot": {"“%s” is not a bot in this group. %s", "“%s”不是这里的机器人。%s"},
	"which bot": {"Which bot? Put its name after “%s”. %s", "哪个机器人？请写在“%s”后面。%s"},
	"who answers": {"Who answers? all, named, default, one, or a bot. %s",
		"由谁回答？全部、点名、默认、一个，或某个机器人。%s"},
	"answers not": {"“%s” is not valid. Who answers? all, named, default, one, or a bot. %s",
		"不能是“%s”。由谁回答？全部、点名、默认、一个，或某个机器人。%s"},
	"on or off":     {"The judge: on or off?", "裁判：开还是关？"},
	"not on or off": {"The judge can be on or off, not “%s”.", "裁判只能是开或关，不能是“%s”。"},
	"no number":     {"“%s” takes a whole number from %d to %d.", "“%s”后面要写 %d 到 %d 的整数。"},
	"bad number":    {"“%s” takes a whole number from %d to %d, not “%s”.", "“%s”后面要写 %d 到 %d 的整数，不能是“%s”。"},
	"bots here":     {"Bots here: %s.", "这里的机器人：%s。"},
	"no bots here":  {"There are no bots here.", "这里没有机器人。"},

	// Refusals.
	"members": {"Only members of this group can do that.", "只有本群成员可以这样做。"},
	"admins":  {"Only the group's owner and administrators can do that.", "只有群主和群管理员可以这样做。"},
	"list":    {"Only people whom the operator has listed can do that.", "只有运维名单上的人可以这样做。"},
	"locked":  {"The operator has locked this group's settings.", "本群的设置已由运维锁定，不能在群里更改。"},
	"still paused": {"Bots' messages are paused. Resume them first; what was stopped waits until then.",
		"机器人之间的消息已暂停。请先恢复，被停止的消息会等到那时。"},
	"still muted":         {"Muted: %s. Unmute them first.", "%s 已静音，请先取消静音。"},
	"nothing to continue": {"Nothing was stopped.", "没有被停止的消息。"},

	// Answers.
	"pause":    {"Bots' messages are paused until %s.", "机器人之间的消息已暂停，%s恢复。"},
	"resume":   {"Bots' messages are no longer paused.", "机器人之间的消息已恢复。"},
	"mute":     {"%s %s muted until %s.", "%[1]s 已静音，%[3]s恢复。"},
	"unmute":   {"%[1]s %[2]s no longer muted.", "%[1]s 已取消静音。"},
	"somebody": {"somebody ends it", "直到有人"},
	"limit": {"The limit is %d: bots stop at message %[1]d in a row.",
		"上限为 %d：机器人连续发言到第 %[1]d 条时停止。"},
	"threshold too": {" The threshold is also %d.", "阈值也为 %d。"},
	"threshold": {"The threshold is %d: the first %[1]d bots' messages in a row pass without the judge.",
		"阈值为 %d：机器人连续的前 %[1]d 条不经裁判，直接放行。"},
	"judge on": {"The judge is on: it decides on bots' messages after the first %d in a row.",
		"裁判已开启：机器人连续的前 %d 条之后由它决定。"},
	"judge off": {"The judge is off: bots' messages pass up to the limit, %d in a row.",
		"裁判已关闭：机器人的消息都放行，直到上限 %d。"},
	"budget": {"The budget is %d bots' messages an hour.", "预算为每小时 %d 条机器人消息。"},
	"operator": {"The operator's budget applies: %d bots' messages an hour.",
		"按运维设定的预算：每小时 %d 条机器人消息。"},
	"no budget": {"The budget is removed: bots' messages are not limited.",
		"已取消预算，不再限制每小时的机器人消息。"},
	"continue":    {"The bots continue.", "机器人可以继续了。"},
	"continue at": {"%s can continue.", "%s可以继续了。"},
	"stop": {"Stopped. The bots continue when a person writes again.",
		"已停止。有人再发消息时，机器人才会继续。"},
	"forget": {"The settings made in this group are removed; the operator's settings apply.",
		"已清除本群的设置，恢复为运维的设置。"},

	// Who answers.
	"answer named": {"Bots answer only when they are mentioned.", "机器人只在被点名时回答。"},
	"answer no default": {
		"Bots answer only when they are mentioned: there is no default bot. Set one: “answer” and its name.",
		"还没有默认机器人，所以机器人只在被点名时回答。在“回答”后面写上机器人的名字，就能指定一个。"},
	"answer default": {"%s answers messages that mention no bot.", "没有点名的消息由 %s 回答。"},
	"answer one": {"One bot answers messages that mention no bot: the one that last spoke to that person.",
		"没有点名的消息只由一个机器人回答：上次和这个人说话的那个。"},
	"answer all": {"All bots answer people's messages.", "所有机器人都会回答大家的消息。"},

	// The status.
	"online":        {"Online (%d): %s", "在线（%d）：%s"},
	"nobody online": {"No bot is online", "没有机器人在线"},
	"offline":       {"Offline (%d): %s", "离线（%d）：%s"},
	"in a row": {"Bots' messages in a row: %d; limit %d, threshold %d, judge %s",
		"机器人连续发言：%d 条；上限 %d，阈值 %d，裁判%s"},
	"is budget": {"Budget: %d bots' messages an hour", "预算：每小时 %d 条机器人消息"},
	"is paused": {"Bots' messages are paused%s", "机器人之间的消息已暂停%s"},
	"is stopped": {"Somebody stopped the bots; they continue when a person writes",
		"有人叫停了机器人，有人再发消息时才会继续"},
	"are muted": {"Muted (%d): %s", "静音（%d）：%s"},
	"until":     {" until %s", "（到 %s）"},
	"last stop": {"Last stop, %s: %s's message to %s, because %s.", "最近一次停止（%s）：%s 发给 %s 的消息，原因：%s。"},

	// Why, and notices.
	"no fate":     {"No bot received it, or it is too long ago.", "没有机器人收到它，或时间太久，已没有记录。"},
	"waits":       {"%s: not delivered yet", "%s：尚未送达"},
	"on its way":  {"%s: on its way", "%s：正在送达"},
	"was stopped": {"%s: not delivered: %s (%s)", "%s：未送达：%s（%s）"},
	"delivered":   {"%s: delivered at %s", "%s：%s 已送达"},
	"about":       {"%s:", "%s："},
	"help":        {"%s%s: %s", "%s%s：%s"},
	"notice": {"%s's message was not delivered to %s: %s. Reply “continue” to release it.",
		"%s 的消息未送达 %s：%s。回复“继续”即可放行。"},
}

// reasons are what each stop is to people, and what they can do; {unmute} and the like are commands. The last two are
// why no bot was given a person's message.
var reasons = map[relay.Reason]struct{ means, do text2 }{
	relay.OwnMessage: {means: text2{"it is the bot's own", "是它自己的消息"}},
	relay.NotAMember: {text2{"the bot is not in this group", "机器人不在这个群里"},
		text2{"Add the bot to the group.", "请把机器人加入本群。"}},
	relay.Duplicate: {means: text2{"the bot already has it", "机器人已经收到过"}},
	relay.BadSignature: {text2{"its signature is wrong", "签名错误"},
		text2{"The operator should compare RELAY_SECRET.", "请运维核对 RELAY_SECRET。"}},
	relay.Malformed: {text2{"its format is invalid", "消息格式无效"}, text2{"Tell the operator.", "请告诉运维。"}},
	relay.Expired: {text2{"it expired before it could be delivered", "送达机器人之前已过期"},
		text2{"Send it again.", "请重新发送。"}},
	relay.Recalled: {means: text2{"it was recalled", "消息已撤回"}},
	relay.Muted: {text2{"the bot is muted", "机器人已静音"},
		text2{"Use “{unmute}” with its name.", "“{unmute}”加上它的名字可以取消。"}},
	relay.Paused: {text2{"bots' messages are paused",
		"机器人之间的消息已暂停"}, text2{"Use “{resume}”.", "“{resume}”可以恢复。"}},
	relay.StoppedByPerson: {text2{"somebody stopped the bots", "有人叫停了机器人"},
		text2{"They continue when a person writes, or with “{continue}”.", "有人再发消息，或发“{continue}”，它们就会继续。"}},
	relay.NotForMe: {text2{"it is for another bot", "消息是给别的机器人的"},
		text2{"Mention the bot that should answer.", "想让谁回答，就点名谁。"}},
	relay.Budget: {text2{"this hour's budget is used up", "这一小时的预算用完了"},
		text2{"Wait, or raise it with “{budget}”.", "请稍等，或用“{budget}”调高。"}},
	relay.NotMentioned: {text2{"the bot was not mentioned", "没有点名这个机器人"},
		text2{"Mention the bot that should answer.", "想让谁回答，就点名谁。"}},
	relay.MaxDepth: {text2{"the bots reached the limit of messages in a row", "机器人连续发言已达上限"},
		text2{"Reply “continue” to release it.", "回复“继续”即可放行。"}},
	relay.JudgeNo:    {means: text2{"the judge sees nothing that needs an answer", "裁判认为无需回答"}},
	relay.JudgeError: {means: text2{"the judge could not decide", "裁判未能作出判断"}},
	relay.Undeliverable: {text2{"the bot refused it or did not answer in time", "机器人拒收，或没有及时回应"},
		text2{"Send it again; if it happens often, tell the operator.", "请重新发送；如果经常这样，请告诉运维。"}},
	relay.Command:  {means: text2{"it is a command", "它是一条命令"}},
	relay.Continue: {means: text2{"it released the messages that were stopped", "它放行被停止的消息"}},
}

// Bounds of texts, in bytes; longer ones are cut. An answer as a whole has maxShownText.
const (
	maxWord = 60  // of a name or a word
	maxList = 700 // of a list of names
)

// none is no text: nothing is wrong.
var none text2

// say is a text of the catalogue. A string among args is shown as a word.
func say(key string, args ...any) text2 {
	t := catalogue[key]
	return text2{fill(t.en, false, args), fill(t.zh, true, args)}
}

func fill(format string, chinese bool, args []any) string {
	if !strings.Contains(format, "%") {
		return format
	}
	shown := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			shown[i] = word(arg)
		case interface{ in(chinese bool) string }:
			shown[i] = arg.in(chinese)
		default:
			shown[i] = arg
		}
	}
	return fmt.Sprintf(format, shown...)
}

func (t text2) and(more text2) text2 { return text2{t.en + more.en, t.zh + more.zh} }

// botsHere lists the bots of a group.
func botsHere(bots []Peer) text2 {
	if len(bots) == 0 {
		return say("no bots here")
	}
	return say("bots here", labels(bots, agentsOf(bots)...))
}

// ReasonText is what a stop is to people.
func ReasonText(why relay.Reason, chinese bool) string { return means(why).in(chinese) }

// means is what a stop is to people.
func means(why relay.Reason) text2 {
	return cmp.Or(reasons[why].means, text2{word(string(why)), word(string(why))})
}

// in is the verb as people write it.
func (v Verb) in(chinese bool) string { return text2{string(v), v.row().zh}.in(chinese) }

// moment is a time as the readers have it.
func (s *State) moment(ms relay.Millis) text2 {
	at := ms.Time().In(s.clock.Location())
	layout := text2{"15:04", "15:04"}
	if at.Format(time.DateOnly) != s.clock.Format(time.DateOnly) {
		layout = text2{"2 Jan 15:04", "1月2日 15:04"}
	}
	if zone, _ := at.Zone(); zone == "UTC" { // of a container, and hardly the readers'
		layout = layout.and(text2{" UTC", " UTC"})
	}
	return text2{at.Format(layout.en), at.Format(layout.zh)}
}

// word is a name or word as texts show it: on one line, bounded, and so that Feishu makes no mention of it.
func word(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp), r == '@', r == '＠':
			return ' '
		case r == '<':
			return '‹'
		case r == '>':
			return '›'
		}
		return r
	}, strings.ToValidUTF8(name, " "))
	name = strings.Join(strings.Fields(name), " ")
	if short := runes.Cut(name, maxWord); short != name {
		return short + "…"
	}
	return name
}

func agentsOf(bots []Peer) []relay.AgentName {
	out := make([]relay.AgentName, len(bots))
	for i, b := range bots {
		out[i] = b.Agent
	}
	return out
}

// names are shown as a list.
type names []string

// labels are the names of bots: with the agent's too where two bots have one name.
func labels(bots []Peer, agents ...relay.AgentName) names {
	known, same := map[relay.AgentName]string{}, map[string]int{}
	for _, b := range bots {
		known[b.Agent] = word(b.Name)
		same[known[b.Agent]]++
	}
	out := make(names, len(agents))
	for i, agent := range agents {
		switch out[i] = known[agent]; {
		case out[i] == "":
			out[i] = word(string(agent))
		case same[out[i]] > 1:
			out[i] += " (" + word(string(agent)) + ")"
		}
	}
	return out
}

func (n names) in(chinese bool) string {
	joined := strings.Join(n, text2{", ", "、"}.in(chinese))
	if last := len(n) - 1; last > 0 && !chinese {
		joined = strings.Join(n[:last], ", ") + " and " + n[last]
	}
	if short := runes.Cut(joined, maxList); short != joined {
		return short + "…"
	}
	return joined
}

// helpText lists the commands, one on a line.
func helpText(words []string) (help text2) {
	for i, v := range verbs {
		if i > 0 {
			help = help.and(text2{"\n", "\n"})
		}
		help = help.and(say("help", text2{commandOf(words, v.verb, false), commandOf(words, v.verb, true)}, v.args,
			v.help))
	}
	return help
}

// commandOf is how a verb is written: behind the first command word of the language.
func commandOf(words []string, v Verb, chinese bool) string {
	first := ""
	if i := slices.IndexFunc(words, func(w string) bool { return HasHan(w) == chinese }); i >= 0 {
		first = words[i]
	} else if len(words) > 0 {
		first = words[0]
	}
	return word(first) + " " + v.in(chinese)
}

// hint is what people can do about a stop.
func hint(why relay.Reason, words []string, chinese bool) string {
	text := reasons[why].do.in(chinese)
	for _, v := range verbs {
		text = strings.ReplaceAll(text, "{"+string(v.verb)+"}", commandOf(words, v.verb, chinese))
	}
	return text
}
