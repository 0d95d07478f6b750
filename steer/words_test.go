package steer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

// shanghai is where readers of most texts are.
var shanghai = time.FixedZone("CST", 8*60*60)

func TestAnswers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 14, 34, 0, 0, shanghai)
	withDefault := room()
	withDefault.Settings.DefaultBot = "agent_c"
	operator := room()
	operator.Operator = 60
	judgeOff := room()
	judgeOff.Settings.Judge = false
	for _, tt := range []struct {
		g                steer.Group
		command          string
		english, chinese string
	}{
		{room(), "pause 30m", "Bots' messages are paused until 15:04.", "机器人之间的消息已暂停，15:04 恢复。"},
		{room(), "pause 1d", "Bots' messages are paused until 3 Jan 14:34.", "机器人之间的消息已暂停，1月3日 14:34 恢复。"},
		{room(), "pause", "Bots' messages are paused until somebody resumes them.", "机器人之间的消息已暂停，直到有人恢复。"},
		{room(), "resume", "Bots' messages are no longer paused.", "机器人之间的消息已恢复。"},
		{room(), "mute BotA 2h", "BotA is muted until 16:34.", "BotA 已静音，16:34 恢复。"},
		{room(), "mute BotA Bot B", "BotA and Bot B are muted until somebody ends it.", "BotA、Bot B 已静音，直到有人取消静音。"},
		{room(), "unmute BotA", "BotA is no longer muted.", "BotA 已取消静音。"},
		{room(), "answer all", "All bots answer people's messages.", "所有机器人都会回答大家的消息。"},
		{room(), "answer named", "Bots answer only when they are mentioned.", "机器人只在被点名时回答。"},
		{room(), "answer BotA", "BotA answers messages that mention no bot.", "没有点名的消息由 BotA 回答。"},
		{withDefault, "answer default", "小助手 answers messages that mention no bot.", "没有点名的消息由 小助手 回答。"},
		{withDefault, "answer one", "小助手 answers messages that mention no bot.", "没有点名的消息由 小助手 回答。"},
		{room(), "answer default", "Bots answer only when they are mentioned: there is no default bot.", "还没有默认机器人"},
		{room(), "answer one", "One bot answers messages that mention no bot", "没有点名的消息只由一个机器人回答"},
		{room(), "limit 7", "The limit is 7: bots stop at message 7 in a row.", "上限为 7：机器人连续发言到第 7 条时停止。"},
		{room(), "limit 1", "in a row. The threshold is also 1.", "停止。阈值也为 1。"},
		{room(), "threshold 3", "The threshold is 3: the first 3 bots' messages in a row pass without the judge.",
			"阈值为 3：机器人连续的前 3 条不经裁判，直接放行。"},
		{judgeOff, "threshold 0", "the judge decides on each bot's message. At present the judge is off.",
			"都由裁判决定。目前裁判是关闭的。"},
		{room(), "judge on", "The judge is on: it decides on bots' messages after the first 2 in a row.",
			"裁判已开启：机器人连续的前 2 条之后由它决定。"},
		{room(), "judge off", "The judge is off: bots' messages pass up to the limit, 5 in a row.",
			"裁判已关闭：机器人的消息都放行，直到上限 5。"},
		{room(), "budget 40", "The budget is 40 bots' messages an hour.", "预算为每小时 40 条机器人消息。"},
		{room(), "budget 0", "The budget is removed: bots' messages are not limited.", "已取消预算，不再限制每小时的机器人消息。"},
		{operator, "budget 0", "The operator's budget applies: 60 bots' messages an hour.", "按运维设定的预算：每小时 60 条机器人消息。"},
		{room(), "continue", "The bots continue.", "机器人可以继续了。"},
		{room(), "continue BotA", "BotA continues.", "BotA可以继续了。"},
		{room(), "stop", "Stopped. The bots continue when a person writes again.", "已停止。有人再发消息时，机器人才会继续。"},
		{room(), "forget", "The settings made in this group are removed; the operator's settings apply.",
			"已清除本群的设置，恢复为运维的设置。"},
		{room(), "status", "Online (2): BotA and Bot B\n", "在线（2）：BotA、Bot B\n"},
	} {
		for _, word := range []string{"/relay ", "/中继 "} {
			want := tt.english
			if word == "/中继 " {
				want = tt.chinese
			}
			c, _ := steer.ParseCommand(steer.Said{Text: word + tt.command}, commandWords, tt.g.Bots)
			if got := c.AnswerText(tt.g, at); !strings.HasPrefix(got, want) && !strings.HasSuffix(got, want) {
				t.Errorf("%s%s: %q\nwant %q", word, tt.command, got, want)
			}
			set, _ := c.Changes(tt.g, relay.MillisOf(at))
			after := tt.g
			record := steer.Record{}
			record.Merge(set.Of(relay.MillisOf(at), "om_1"))
			after.Settings = record.Over(after.Settings, map[string]string{}, at)
			if before, behind := c.AnswerText(tt.g, at), c.AnswerText(after, at); before != behind &&
				tt.command != "status" {
				t.Errorf("%s%s: %q of the group before, %q behind", word, tt.command, before, behind)
			}
		}
	}
	c, _ := steer.ParseCommand(steer.Said{Text: "/relay pause 30m"}, commandWords, nil)
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("UTC", 0)} { // as TZ=UTC has it
		if got := c.AnswerText(room(), at.In(zone)); !strings.HasSuffix(got, "until 07:04 UTC.") {
			t.Errorf("in UTC, which people may not be in: %q", got)
		}
	}
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 14, 34, 0, 0, shanghai)
	in := func(d time.Duration) *steer.Until { ms := relay.MillisOf(now.Add(d)); return &steer.Until{Until: &ms} }
	g := room()
	g.Depth = 3
	g.Locked = true
	g.Settings.Budget = 40
	g.Settings.Paused = in(time.Hour)
	g.Settings.Muted = map[relay.AgentName]*steer.Until{"agent_a": in(48 * time.Hour), "agent_b": {},
		"agent_c": in(-time.Hour)}
	g.LastStop = &steer.LastStop{Sender: "agent_a", Bots: bots("agent_b", "agent_c"), Reason: relay.JudgeNo,
		At: relay.MillisOf(now.Add(-time.Hour))}
	const english = `Online (2): BotA and Bot B
Offline (1): 小助手
All bots answer people's messages.
Bots' messages in a row: 3; limit 5, threshold 2, judge on
Budget: 40 bots' messages an hour
Bots' messages are paused until 15:34
Muted (2): BotA until 4 Jan 14:34 and Bot B
The operator has locked this group's settings.
Last stop, 13:34: BotA's message to Bot B and 小助手, because the judge sees nothing that needs an answer.`
	const chinese = `在线（2）：BotA、Bot B
离线（1）：小助手
所有机器人都会回答大家的消息。
机器人连续发言：3 条；上限 5，阈值 2，裁判开
预算：每小时 40 条机器人消息
机器人之间的消息已暂停（到 15:34）
静音（2）：BotA（到 1月4日 14:34）、Bot B
本群的设置已由运维锁定，不能在群里更改。
最近一次停止（13:34）：BotA 发给 Bot B、小助手 的消息，原因：裁判认为无需回答。`
	if got := steer.StatusText(g, now, false); got != english {
		t.Errorf("got\n%s\nwant\n%s", got, english)
	}
	if got := steer.StatusText(g, now, true); got != chinese {
		t.Errorf("got\n%s\nwant\n%s", got, chinese)
	}
	for _, tt := range []struct {
		to               []relay.AgentName
		english, chinese string
	}{
		{bots("agent_b", "agent_a"), "BotA's message to Bot B,", "BotA 发给 Bot B 的"},
		{bots("agent_a"), "BotA's message to other bots,", "BotA 发给 其他机器人 的"},
	} {
		g.LastStop.Bots = tt.to
		if en, zh := steer.StatusText(g, now, false), steer.StatusText(g, now, true); !strings.Contains(en, tt.english) ||
			!strings.Contains(zh, tt.chinese) {
			t.Errorf("stopped at %v: %s\n%s", tt.to, en, zh)
		}
	}
	if got := steer.StatusText(steer.Group{}, now, false); !strings.HasPrefix(got, "No bot is online\n") {
		t.Errorf("of nothing: %q", got)
	}
}

func TestHelpListsEachCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		words   []string
		chinese bool
		begin   string
	}{{commandWords, false, "/relay "}, {commandWords, true, "/中继 "}, {[]string{"!bots"}, true, "!bots "}} {
		lines := strings.Split(steer.HelpText(tt.words, tt.chinese), "\n")
		if len(lines) != len(steer.Verbs) {
			t.Errorf("%d lines", len(lines))
		}
		for i, line := range lines {
			usage, _, _ := strings.Cut(line, "：")
			if !tt.chinese {
				usage, _, _ = strings.Cut(line, ": ")
			}
			usage, _, _ = strings.Cut(strings.NewReplacer("[", "", "]", "", "Bot", "BotA", "机器人",
				"BotA").Replace(usage), "|")
			c, is := steer.ParseCommand(steer.Said{Text: usage}, tt.words, room().Bots)
			if !is || c.Verb != steer.Verbs[i] || c.Mistake != nil || !strings.HasPrefix(line, tt.begin) {
				t.Errorf("%q: %+v, mistake: %s", line, c, wrong(c.Mistake))
			}
		}
	}
}

func TestWhyText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 14, 34, 0, 0, shanghai)
	fates := []steer.Fate{{Agent: "agent_a", Delivered: relay.MillisOf(at)}, {Agent: "agent_b", Stopped: relay.Muted,
		At: relay.MillisOf(at.Add(-26 * time.Hour))},
		{Agent: "agent_c", Stopped: relay.MaxDepth}, {Agent: "agent_d", Depth: 1}, {Agent: "agent_e", Stopped: relay.MaxDepth},
		{Agent: "agent_f"}}
	const english = `BotA, 14:30:
BotA: delivered at 14:34
Bot B: not delivered: the bot is muted (1 Jan 12:34)
小助手: not delivered: the bots reached the limit of messages in a row
agent_d: not delivered yet
agent_e: not delivered: the bots reached the limit of messages in a row
agent_f: on its way
Use “/relay unmute” with its name.
Reply “continue” to release it.`
	if got := steer.WhyText("BotA, 14:30", fates, room(), at, commandWords, false); got != english {
		t.Errorf("got\n%s\nwant\n%s", got, english)
	}
	if got := steer.WhyText("", fates[:2], room(), at, commandWords,
		true); got != "BotA：14:34 已送达\nBot B：未送达：机器人已静音（1月1日 12:34）\n“/中继 取消静音”加上它的名字可以取消。" {
		t.Errorf("got\n%s", got)
	}
	if got := steer.WhyText("", nil, room(), at, commandWords, true); !strings.HasPrefix(got, "还没有机器人收到它") {
		t.Errorf("got\n%s", got)
	}
}

func TestWordsForEachReason(t *testing.T) {
	t.Parallel()
	for _, chinese := range []bool{false, true} {
		seen := map[string]relay.Reason{}
		for _, why := range append(relay.Reasons(), "command", "continue") {
			got := steer.ReasonText(why, chinese)
			if got == string(why) || seen[got] != "" || steer.HanIn(got) != chinese {
				t.Errorf("%s: %q, as %q", why, got, seen[got])
			}
			seen[got] = why
			text := steer.WhyText("", []steer.Fate{{Agent: "a", Stopped: why}}, room(), now, commandWords, chinese)
			if !strings.Contains(text, got) || strings.ContainsAny(text, "{}") {
				t.Errorf("%s: %q", why, text)
			}
		}
	}
	if got := steer.ReasonText("of a later\nversion", true); got != "of a later version" {
		t.Errorf("a reason that is not known: %q", got)
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	both := []string{"Bot B", "小助手"}
	for got, want := range map[string]string{
		steer.StopNotice("BotA", both, relay.MaxDepth, false): "BotA's message was not delivered to Bot B and 小助手: " +
			"the bots reached the limit of messages in a row. Reply “continue” to release it.",
		steer.StopNotice("BotA", both, relay.JudgeNo, true): "BotA 的消息未送达 Bot B、小助手：" +
			"裁判认为无需回答。回复“继续”即可放行。",
		steer.StopNotice("", nil, relay.Budget, false): "A bot's message was not delivered to other bots: " +
			"this hour's budget is used up. Reply “continue” to release it.",
		steer.Refused("admins", true):   "只有群主和群管理员可以这样做。",
		steer.Refused("members", false): "Only members of this group can do that.",
		steer.Refused("list", true):     "只有运维名单上的人可以这样做。",
		steer.Locked(true):              "本群的设置已由运维锁定，不能在群里更改。",
		steer.NothingToContinue(false):  "Nothing was stopped.",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Names are anybody's: no text mentions somebody by one, breaks its lines or grows with them.
func TestTextsAreBoundedAndMentionNobody(t *testing.T) {
	t.Parallel()
	for i, name := range []string{
		"@all", "＠所有人", `<at user_id="all"></at>`, "a\nb\r\u2028c\x00\u202e", strings.Repeat("很长的名字", 60),
		strings.Repeat("x", 500), "\xff\xfe", " @ @ ",
		"Bot",
	} {
		g := steer.Group{Settings: steer.Settings{Answer: steer.Default, Muted: map[relay.AgentName]*steer.Until{},
			DefaultBot: "agent_7"}}
		stop := &steer.LastStop{Sender: "agent_1", Reason: relay.Reason(name), At: 1}
		var fates []steer.Fate
		var display []string
		for n := range 200 {
			agent := relay.AgentName(fmt.Sprintf("agent_%d", n))
			g.Bots = append(g.Bots, steer.Bot{Agent: agent, Name: fmt.Sprint(name, n), Online: n%2 == 0})
			g.Settings.Muted[agent] = &steer.Until{Until: new(relay.Millis(1_800_000_000_000))}
			stop.Bots = append(stop.Bots, agent)
			fates = append(fates, steer.Fate{Agent: agent, Stopped: relay.Reasons()[n%len(relay.Reasons())]})
			display = append(display, name)
		}
		g.LastStop = stop
		for _, chinese := range []bool{false, true} {
			texts := []string{
				steer.StatusText(g, now, chinese), steer.HelpText([]string{name, name}, chinese),
				steer.WhyText(name, fates, g, now, []string{name}, chinese), steer.StopNotice(name, display,
					relay.Reason(name), chinese),
				steer.Asked{Verb: steer.VerbMute, Chinese: chinese, Bots: stop.Bots, For: time.Hour}.AnswerText(g, now),
			}
			for _, command := range []string{"mute", "mute @" + name + "?", "answer " + name, "limit " + name,
				"judge " + name, "pause " + name, name} {
				c, _ := steer.ParseCommand(steer.Said{Text: "/relay " + command}, commandWords, g.Bots)
				if c.Mistake != nil {
					texts = append(texts, c.Mistake.Text(chinese))
				}
			}
			for _, text := range texts {
				if len(text) >= 4096 || !utf8.ValidString(text) || strings.ContainsAny(text, "@＠<>") ||
					strings.ContainsFunc(text, func(r rune) bool {
						return r != '\n' && (unicode.IsControl(r) ||
							unicode.Is(unicode.Cf, r))
					}) {
					t.Errorf("%d: %d bytes: %q", i, len(text), text)
				}
			}
			if lines := strings.Count(texts[0], "\n"); lines > 6 {
				t.Errorf("%d: status of %d lines", i, lines+1)
			}
			if want := "200"; !strings.Contains(texts[0], want) && !strings.Contains(texts[0], "more") {
				t.Errorf("%d: nothing is counted: %s", i, texts[0])
			}
		}
	}
}
