package steer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Bounds of texts, in bytes. A whole one stays below 4 KB.
const (
	maxShown = 60   // of a name or a word
	maxList  = 700  // of a list of names
	maxFates = 2500 // of the lines on what became of a message
)

// text is one in both languages.
type text struct{ en, zh string }

func (t text) in(chinese bool) string {
	if chinese {
		return t.zh
	}
	return t.en
}

// clean is a name or word as texts show it: on one line, bounded, and so that Feishu makes
// no mention of it.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp), r == '@', r == wideAt:
			return ' '
		case r == '<':
			return '‹'
		case r == '>':
			return '›'
		}
		return r
	}, strings.ToValidUTF8(name, " "))
	return runes.Short(strings.Join(strings.Fields(name), " "), maxShown)
}

// namer tells the bots' names: the agent's too where two bots have one name.
func namer(bots []Bot) func(relay.AgentName) string {
	names, same := map[relay.AgentName]string{}, map[string]int{}
	for _, b := range bots {
		names[b.Agent] = clean(b.Name)
		same[names[b.Agent]]++
	}
	return func(agent relay.AgentName) string {
		switch name, id := names[agent], clean(string(agent)); {
		case name == "":
			return id
		case same[name] > 1:
			return name + " (" + id + ")"
		default:
			return name
		}
	}
}

func labels(agents []relay.AgentName, bots []Bot) []string {
	name := namer(bots)
	out := make([]string, len(agents))
	for i, agent := range agents {
		out[i] = name(agent)
	}
	return out
}

// list joins names, and counts those for which there is no room.
func list(names []string, chinese bool) string {
	shown, size := 0, 0
	for shown < len(names) && size+len(names[shown]) <= maxList {
		size += len(names[shown]) + len("、")
		shown++
	}
	more := len(names) - shown
	switch {
	case chinese && more > 0:
		return fmt.Sprintf("%s 等 %d 个", strings.Join(names[:shown], "、"), len(names))
	case chinese:
		return strings.Join(names, "、")
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
	case shown > 1:
		return strings.Join(names[:shown-1], ", ") + " and " + names[shown-1]
	}
	return strings.Join(names, "")
}

// clock is a time as somebody where now is reads it.
func clock(at, now time.Time, chinese bool) string {
	at = at.In(now.Location())
	layout := "15:04"
	if y, m, d := now.Date(); at.Before(time.Date(y, m, d, 0, 0, 0, 0, now.Location())) ||
		!at.Before(time.Date(y, m, d+1, 0, 0, 0, 0, now.Location())) {
		layout = text{"2 Jan 15:04", "1月2日 15:04"}.in(chinese)
	}
	if zone, _ := at.Zone(); zone == "UTC" { // of a container, and hardly the readers'
		layout += " UTC"
	}
	return at.Format(layout)
}

// Mistake is what a person got wrong in a command.
type Mistake struct{ says text }

// Text says what is wrong and what is right.
func (m *Mistake) Text(chinese bool) string { return m.says.in(chinese) }

func unknownWord(command, asked, meant string) *Mistake {
	command, asked = clean(command), clean(asked)
	help := text{fmt.Sprintf("“%s help” lists the commands.", command), fmt.Sprintf("“%s 帮助”列出所有命令。", command)}
	m := &Mistake{says: text{"There is no command “" + asked + "”. ", "没有“" + asked + "”这个命令。"}}
	if meant != "" {
		m.says.en += "Did you mean “" + meant + "”? "
		m.says.zh += "是不是“" + meant + "”？"
	}
	m.says.en += help.en
	m.says.zh += help.zh
	return m
}

// thereAre names the bots that a command can be about.
func thereAre(bots []Bot) text {
	if len(bots) == 0 {
		return text{"There are no bots here.", "这里没有机器人。"}
	}
	names := labels(agents(bots), bots)
	return text{"Bots here: " + list(names, false) + ".", "这里的机器人：" + list(names, true) + "。"}
}

func unknownBot(asked string, bots []Bot) *Mistake {
	asked, here := clean(asked), thereAre(bots)
	return &Mistake{says: text{"“" + asked + "” is not a bot in this group. " + here.en,
		"“" + asked + "”不是这里的机器人。" + here.zh}}
}

func whichBot(v Verb, asked string, bots []Bot) *Mistake {
	if asked != "" {
		return unknownBot(asked, bots)
	}
	here := thereAre(bots)
	return &Mistake{says: text{"Which bot? Put its name after “" + string(v) + "”. " + here.en,
		"哪个机器人？请写在“" + chinese[v] + "”后面。" + here.zh}}
}

func badAnswer(asked string, bots []Bot) *Mistake {
	here := thereAre(bots)
	m := &Mistake{says: text{"Who answers? all, named, default, one, or a bot. " + here.en,
		"由谁回答？全部、点名、默认、一个，或某个机器人。" + here.zh}}
	if asked = clean(asked); asked != "" {
		m.says.en = "“" + asked + "” is not valid. " + m.says.en
		m.says.zh = "不能是“" + asked + "”。" + m.says.zh
	}
	return m
}

func badState(asked string) *Mistake {
	if asked = clean(asked); asked == "" {
		return &Mistake{says: text{"The judge: on or off?", "裁判：开还是关？"}}
	}
	return &Mistake{says: text{"The judge can be on or off, not “" + asked + "”.", "裁判只能是开或关，不能是“" + asked + "”。"}}
}

func badTime(asked string) *Mistake {
	asked = clean(asked)
	return &Mistake{says: text{"“" + asked + "” is not a duration. Write 30m, 2h or 1d, at most 7 days.",
		"“" + asked + "”不是时长。请写 30分钟、2小时、1天，最长 7 天。"}}
}

func badNumber(v Verb, asked string, low, high int) *Mistake {
	m := &Mistake{says: text{
		fmt.Sprintf("“%s” takes a whole number from %d to %d", v, low, high),
		fmt.Sprintf("“%s”后面要写 %d 到 %d 的整数", chinese[v], low, high)}}
	if asked = clean(asked); asked != "" {
		m.says.en += ", not “" + asked + "”"
		m.says.zh += "，不能是“" + asked + "”"
	}
	m.says.en += "."
	m.says.zh += "。"
	return m
}

func unexpected(asked string, v Verb) *Mistake {
	asked = clean(asked)
	return &Mistake{says: text{"Unexpected “" + asked + "” after “" + string(v) + "”: nothing was changed.",
		"“" + chinese[v] + "”后面的“" + asked + "”无法识别，命令未执行。"}}
}

// AnswerText tells the group that a command was executed at a time, in the language of the
// command and for readers where that time is. g is the group, before or behind it. It is ""
// for the verbs help and why: see [HelpText] and [WhyText]. For continue, a.Bots are those
// that go on; none: all.
func (a Asked) AnswerText(g Group, at time.Time) string {
	return a.answer(g, at).in(a.Chinese)
}

func (a Asked) answer(g Group, at time.Time) text {
	end := text{clock(at.Add(a.For), at, false), clock(at.Add(a.For), at, true)}
	who := text{list(labels(a.Bots, g.Bots), false), list(labels(a.Bots, g.Bots), true)}
	is, goes := "is", "continues"
	if len(a.Bots) != 1 {
		is, goes = "are", "continue"
	}
	switch a.Verb {
	case VerbStatus:
		return text{StatusText(g, at, false), StatusText(g, at, true)}
	case VerbPause:
		if a.For > 0 {
			return text{"Bots' messages are paused until " + end.en + ".", "机器人之间的消息已暂停，" + end.zh + " 恢复。"}
		}
		return text{"Bots' messages are paused until somebody resumes them.", "机器人之间的消息已暂停，直到有人恢复。"}
	case VerbResume:
		return text{"Bots' messages are no longer paused.", "机器人之间的消息已恢复。"}
	case VerbMute:
		if a.For > 0 {
			return text{who.en + " " + is + " muted until " + end.en + ".", who.zh + " 已静音，" + end.zh + " 恢复。"}
		}
		return text{who.en + " " + is + " muted until somebody ends it.", who.zh + " 已静音，直到有人取消静音。"}
	case VerbUnmute:
		return text{who.en + " " + is + " no longer muted.", who.zh + " 已取消静音。"}
	case VerbAnswer:
		s := Settings{Answer: a.Mode, DefaultBot: g.Settings.DefaultBot}
		if len(a.Bots) > 0 {
			s.DefaultBot = a.Bots[0]
		}
		return answers(s, g.Bots)
	case VerbLimit:
		t := text{fmt.Sprintf("The limit is %d: bots stop at message %[1]d in a row.", a.N),
			fmt.Sprintf("上限为 %d：机器人连续发言到第 %[1]d 条时停止。", a.N)}
		if g.Settings.Threshold >= a.N {
			t.en += fmt.Sprintf(" The threshold is also %d.", a.N)
			t.zh += fmt.Sprintf("阈值也为 %d。", a.N)
		}
		return t
	case VerbThreshold:
		t := text{
			fmt.Sprintf("The threshold is %d: the first %[1]d bots' messages in a row pass without the judge.", a.N),
			fmt.Sprintf("阈值为 %d：机器人连续的前 %[1]d 条不经裁判，直接放行。", a.N),
		}
		if a.N == 0 {
			t = text{"The threshold is 0: the judge decides on each bot's message.", "阈值为 0：机器人的每条消息都由裁判决定。"}
		}
		if !g.Settings.Judge {
			t.en += " At present the judge is off."
			t.zh += "目前裁判是关闭的。"
		}
		return t
	case VerbJudge:
		if a.On {
			n := g.Settings.Threshold
			return text{fmt.Sprintf("The judge is on: it decides on bots' messages after the first %d in a row.", n),
				fmt.Sprintf("裁判已开启：机器人连续的前 %d 条之后由它决定。", n)}
		}
		n := g.Settings.Limit
		return text{fmt.Sprintf("The judge is off: bots' messages pass up to the limit, %d in a row.", n),
			fmt.Sprintf("裁判已关闭：机器人的消息都放行，直到上限 %d。", n)}
	case VerbBudget:
		switch {
		case a.N > 0:
			return text{fmt.Sprintf("The budget is %d bots' messages an hour.", a.N),
				fmt.Sprintf("预算为每小时 %d 条机器人消息。", a.N)}
		case g.Operator > 0:
			return text{fmt.Sprintf("The operator's budget applies: %d bots' messages an hour.", g.Operator),
				fmt.Sprintf("按运维设定的预算：每小时 %d 条机器人消息。", g.Operator)}
		}
		return text{"The budget is removed: bots' messages are not limited.", "已取消预算，不再限制每小时的机器人消息。"}
	case VerbContinue:
		if len(a.Bots) == 0 {
			who = text{"The bots", "机器人"}
		}
		return text{who.en + " " + goes + ".", who.zh + "可以继续了。"}
	case VerbStop:
		return text{"Stopped. The bots continue when a person writes again.", "已停止。有人再发消息时，机器人才会继续。"}
	case VerbForget:
		return text{"The settings made in this group are removed; the operator's settings apply.", "已清除本群的设置，恢复为运维的设置。"}
	}
	return text{}
}

// answers says who answers a message that names no bot.
func answers(s Settings, bots []Bot) text {
	byDefault := slices.ContainsFunc(bots, func(b Bot) bool { return b.Agent == s.DefaultBot })
	named := namer(bots)(s.DefaultBot)
	switch {
	case s.Answer == Named:
		return text{"Bots answer only when they are mentioned.", "机器人只在被点名时回答。"}
	case s.Answer == Default && !byDefault:
		return text{"Bots answer only when they are mentioned: there is no default bot. Set one: “answer” and its name.",
			"还没有默认机器人，所以机器人只在被点名时回答。在“回答”后面写上机器人的名字，就能指定一个。"}
	case (s.Answer == Default || s.Answer == One) && byDefault:
		return text{named + " answers messages that mention no bot.", "没有点名的消息由 " + named + " 回答。"}
	case s.Answer == One:
		return text{"One bot answers messages that mention no bot: the one that last spoke to that person.",
			"没有点名的消息只由一个机器人回答：上次和这个人说话的那个。"}
	}
	return text{"All bots answer people's messages.", "所有机器人都会回答大家的消息。"}
}

// StatusText is how things stand in a group, for readers where now is.
func StatusText(g Group, now time.Time, chinese bool) string {
	var lines []string
	say := func(en, zh string, args ...any) {
		lines = append(lines, fmt.Sprintf(text{en, zh}.in(chinese), args...))
	}
	var on, off []Bot
	for _, b := range g.Bots {
		if b.Online {
			on = append(on, b)
		} else {
			off = append(off, b)
		}
	}
	if len(on) == 0 {
		say("No bot is online", "没有机器人在线")
	} else {
		say("Online (%d): %s", "在线（%d）：%s", len(on), list(labels(agents(on), g.Bots), chinese))
	}
	if len(off) > 0 {
		say("Offline (%d): %s", "离线（%d）：%s", len(off), list(labels(agents(off), g.Bots), chinese))
	}
	s := g.Settings
	lines = append(lines, answers(s, g.Bots).in(chinese))
	judge := text{"off", "关"}
	if s.Judge {
		judge = text{"on", "开"}
	}
	say("Bots' messages in a row: %d; limit %d, threshold %d, judge %s", "机器人连续发言：%d 条；上限 %d，阈值 %d，裁判%s",
		g.Depth, s.Limit, s.Threshold, judge.in(chinese))
	if s.Budget > 0 {
		say("Budget: %d bots' messages an hour", "预算：每小时 %d 条机器人消息", s.Budget)
	}
	if s.Paused.Holds(now) {
		say("Bots' messages are paused%s", "机器人之间的消息已暂停%s", ending(s.Paused, now, chinese))
	}
	if g.Stopped {
		say("Somebody stopped the bots; they continue when a person writes", "有人叫停了机器人，有人再发消息时才会继续")
	}
	name := namer(g.Bots)
	var muted []string
	for _, agent := range slices.Sorted(maps.Keys(s.Muted)) {
		if s.Muted[agent].Holds(now) {
			muted = append(muted, name(agent)+ending(s.Muted[agent], now, chinese))
		}
	}
	if len(muted) > 0 {
		say("Muted (%d): %s", "静音（%d）：%s", len(muted), list(muted, chinese))
	}
	if g.Locked {
		lines = append(lines, Locked(chinese))
	}
	if l := g.LastStop; l != nil {
		to := slices.DeleteFunc(slices.Clone(l.Bots), func(bot relay.AgentName) bool { return bot == l.Sender })
		say("Last stop, %s: %s's message to %s, because %s.", "最近一次停止（%s）：%s 发给 %s 的消息，原因：%s。",
			clock(l.At.Time(), now, chinese), name(l.Sender), otherBots(labels(to, g.Bots), chinese),
			ReasonText(l.Reason, chinese))
	}
	return strings.Join(lines, "\n")
}

// ending is when a pause ends, as it follows what is paused; "" where somebody ends it.
func ending(u *Until, now time.Time, chinese bool) string {
	if u.Until == nil {
		return ""
	}
	return fmt.Sprintf(text{" until %s", "（到 %s）"}.in(chinese), clock(u.Until.Time(), now, chinese))
}

// helps are the arguments and meanings of the verbs.
var helps = map[Verb]struct{ args, means text }{
	VerbStatus: {means: text{"bots, settings and the last stop", "机器人、设置和最近一次停止的原因"}},
	VerbHelp:   {means: text{"these commands", "这些命令"}},
	VerbPause:  {text{"[30m]", "[30分钟]"}, text{"pause bots' messages to each other", "暂停机器人之间的消息"}},
	VerbResume: {means: text{"end the pause", "结束暂停"}},
	VerbMute:   {text{"Bot [2h]", "机器人 [2小时]"}, text{"mute a bot", "将一个机器人静音"}},
	VerbUnmute: {text{"Bot", "机器人"}, text{"give it messages again", "让它重新接收消息"}},
	VerbAnswer: {text{"all|named|default|one|Bot", "全部|点名|默认|一个|机器人"},
		text{"who answers when no bot is mentioned", "没有点名时由谁回答"}},
	VerbLimit:     {text{"5", "5"}, text{"number of bots' messages in a row at which they stop", "机器人连续发言到第几条停止"}},
	VerbThreshold: {text{"1", "1"}, text{"how many of them pass without the judge", "其中前几条不经裁判"}},
	VerbJudge:     {text{"on|off", "开|关"}, text{"whether the judge decides on the others", "其余的是否由裁判决定"}},
	VerbBudget:    {text{"100", "100"}, text{"bots' messages an hour, 0 for no limit", "每小时的机器人消息数，0 为不限"}},
	VerbContinue:  {text{"[Bot]", "[机器人]"}, text{"release the messages that were stopped", "放行被停止的消息"}},
	VerbStop:      {means: text{"stop the bots until a person writes again", "叫停机器人，直到有人再发消息"}},
	VerbWhy:       {means: text{"what happened to the message you reply to", "所回复的那条消息的处理结果"}},
	VerbForget:    {means: text{"remove the settings made in this group", "还原本群的设置"}},
}

// HelpText lists the commands, one on a line.
func HelpText(words []string, chinese bool) string {
	var lines []string
	for _, v := range Verbs {
		h := helps[v]
		line := strings.Join(strings.Fields(command(words, v, chinese)+" "+h.args.in(chinese)), " ")
		lines = append(lines, line+text{": ", "："}.in(chinese)+h.means.in(chinese))
	}
	return strings.Join(lines, "\n")
}

// command is how a verb is written: behind the first command word of the language.
func command(words []string, v Verb, inChinese bool) string {
	word := ""
	if i := slices.IndexFunc(words, func(w string) bool { return HanIn(w) == inChinese }); i >= 0 {
		word = words[i]
	} else if len(words) > 0 {
		word = words[0]
	}
	return clean(word) + " " + text{string(v), chinese[v]}.in(inChinese)
}

// reasons are what each stop is to people, and what they can do. {unmute} and the like are commands.
// The last are why no bot was given a person's message.
var reasons = map[relay.Reason]struct{ means, do text }{
	relay.OwnMessage: {means: text{"it is the bot's own", "是它自己的消息"}},
	relay.NotAMember: {text{"the bot is not in this group", "机器人不在这个群里"},
		text{"Add the bot to the group.", "请把机器人加入本群。"}},
	relay.Duplicate: {means: text{"the bot already has it", "机器人已经收到过"}},
	relay.BadSignature: {text{"its signature is wrong", "签名错误"},
		text{"The operator should compare RELAY_SECRET.", "请运维核对 RELAY_SECRET。"}},
	relay.Malformed: {text{"its format is invalid", "消息格式无效"},
		text{"Tell the operator.", "请告诉运维。"}},
	relay.Expired: {text{"it expired before it could be delivered", "送达机器人之前已过期"},
		text{"Send it again.", "请重新发送。"}},
	relay.Recalled: {means: text{"it was recalled", "消息已撤回"}},
	relay.Muted: {text{"the bot is muted", "机器人已静音"},
		text{"Use “{unmute}” with its name.", "“{unmute}”加上它的名字可以取消。"}},
	relay.Paused: {text{"bots' messages are paused", "机器人之间的消息已暂停"},
		text{"Use “{resume}”.", "“{resume}”可以恢复。"}},
	relay.StoppedByPerson: {text{"somebody stopped the bots", "有人叫停了机器人"},
		text{"They continue when a person writes, or with “{continue}”.", "有人再发消息，或发“{continue}”，它们就会继续。"}},
	relay.NotForMe: {text{"it is for another bot", "消息是给别的机器人的"},
		text{"Mention the bot that should answer.", "想让谁回答，就点名谁。"}},
	relay.Budget: {text{"this hour's budget is used up", "这一小时的预算用完了"},
		text{"Wait, or raise it with “{budget}”.", "请稍等，或用“{budget}”调高。"}},
	relay.NotMentioned: {text{"the bot was not mentioned", "没有点名这个机器人"},
		text{"Mention the bot that should answer.", "想让谁回答，就点名谁。"}},
	relay.MaxDepth: {text{"the bots reached the limit of messages in a row", "机器人连续发言已达上限"},
		text{"Reply “continue” to release it.", "回复“继续”即可放行。"}},
	relay.JudgeNo: {text{"the judge sees nothing that needs an answer", "裁判认为无需回答"},
		text{"Reply “continue” to release it.", "回复“继续”即可放行。"}},
	relay.JudgeError: {text{"the judge could not decide", "裁判未能作出判断"},
		text{"Reply “continue” to release it.", "回复“继续”即可放行。"}},
	relay.Undeliverable: {text{"the bot refused it or did not answer in time", "机器人拒收，或没有及时回应"},
		text{"Send it again; if it happens often, tell the operator.", "请重新发送；如果经常这样，请告诉运维。"}},
	"command":  {means: text{"it is a command", "它是一条命令"}},
	"continue": {means: text{"it released the messages that were stopped", "它放行被停止的消息"}},
}

// ReasonText says why a message was stopped: part of a sentence. A reason that is not known
// is its own word.
func ReasonText(why relay.Reason, chinese bool) string {
	if r, ok := reasons[why]; ok {
		return r.means.in(chinese)
	}
	return clean(string(why))
}

// OnItsWay is how long after it was sent a message is on its way to the online bots of which nothing else is known.
const OnItsWay = 30 * time.Second

// WhyText is what became of a message at each bot, and what people can do. about is what
// message it is, in a few words, or "". words are the command words.
func WhyText(about string, fates []Fate, g Group, now time.Time, words []string, chinese bool) string {
	var lines []string
	if about = clean(about); about != "" {
		lines = append(lines, about+text{":", "："}.in(chinese))
	}
	if len(fates) == 0 {
		none := text{"No bot has received it yet, or it is too long ago.", "还没有机器人收到它，或时间太久，已没有记录。"}
		lines = append(lines, none.in(chinese))
	}
	var do []string
	name, size := namer(g.Bots), 0
	for i, f := range fates {
		bot := name(f.Agent)
		line := fmt.Sprintf(text{"%s: not delivered yet", "%s：尚未送达"}.in(chinese), bot)
		switch {
		case f == Fate{Agent: f.Agent}:
			line = fmt.Sprintf(text{"%s: on its way", "%s：正在送达"}.in(chinese), bot)
		case f.Stopped != "":
			line = fmt.Sprintf(text{"%s: not delivered: %s", "%s：未送达：%s"}.in(chinese), bot,
				ReasonText(f.Stopped, chinese))
			if f.At != 0 {
				line += fmt.Sprintf(text{" (%s)", "（%s）"}.in(chinese), clock(f.At.Time(), now, chinese))
			}
			hint := reasons[f.Stopped].do.in(chinese)
			for _, v := range Verbs {
				hint = strings.ReplaceAll(hint, "{"+string(v)+"}", command(words, v, chinese))
			}
			if hint != "" && !slices.Contains(do, hint) {
				do = append(do, hint)
			}
		case f.Delivered != 0:
			line = fmt.Sprintf(text{"%s: delivered at %s", "%s：%s 已送达"}.in(chinese), bot,
				clock(f.Delivered.Time(), now, chinese))
		}
		if size += len(line); size > maxFates {
			lines = append(lines, fmt.Sprintf(text{"and %d more bots", "还有 %d 个机器人"}.in(chinese), len(fates)-i))
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, do...), "\n")
}

// StopNotice tells a group that a bot's message was not given to others. The names are
// display names.
func StopNotice(sender string, bots []string, why relay.Reason, chinese bool) string {
	if sender = clean(sender); sender == "" {
		sender = text{"A bot", "机器人"}.in(chinese)
	}
	names := make([]string, len(bots))
	for i, name := range bots {
		names[i] = clean(name)
	}
	return fmt.Sprintf(text{"%s's message was not delivered to %s: %s. Reply “continue” to release it.",
		"%s 的消息未送达 %s：%s。回复“继续”即可放行。"}.in(chinese), sender, otherBots(names, chinese), ReasonText(why, chinese))
}

// otherBots names those that were not given a message.
func otherBots(names []string, chinese bool) string {
	return cmp.Or(list(names, chinese), text{"other bots", "其他机器人"}.in(chinese))
}

// Refused tells a person that only others may give this command: those of members, admins
// or list.
func Refused(who string, chinese bool) string {
	switch who {
	case "members":
		return text{"Only members of this group can do that.", "只有本群成员可以这样做。"}.in(chinese)
	case "admins":
		return text{"Only the group's owner and administrators can do that.", "只有群主和群管理员可以这样做。"}.in(chinese)
	}
	return text{"Only people whom the operator has listed can do that.", "只有运维名单上的人可以这样做。"}.in(chinese)
}

// Locked says that nothing can be changed.
func Locked(chinese bool) string {
	return text{"The operator has locked this group's settings.", "本群的设置已由运维锁定，不能在群里更改。"}.in(chinese)
}

// stillPaused says that a continue is of no use.
var stillPaused = &Mistake{says: text{"Bots' messages are paused. Resume them first; what was stopped waits until then.",
	"机器人之间的消息已暂停。请先恢复，被停止的消息会等到那时。"}}

// StillMuted says that bots cannot go on.
func StillMuted(muted []relay.AgentName, bots []Bot) *Mistake {
	is, it := "is", "it"
	if len(muted) > 1 {
		is, it = "are", "them"
	}
	return &Mistake{says: text{fmt.Sprintf("%s %s muted. Unmute %s first.", list(labels(muted, bots), false), is, it),
		fmt.Sprintf("%s 已静音，请先取消静音。", list(labels(muted, bots), true))}}
}

// NothingToContinue says that nothing was stopped.
func NothingToContinue(chinese bool) string {
	return text{"Nothing was stopped.", "没有被停止的消息。"}.in(chinese)
}
