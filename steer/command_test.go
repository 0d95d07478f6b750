package steer_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

var commandWords = []string{"/relay", "/中继"}

// room is a group of three bots, one with a name of two words and one with a Chinese one.
func room() steer.Group {
	return steer.Group{
		Bots: []steer.Bot{
			{Agent: "agent_a", Name: "BotA", Online: true},
			{Agent: "agent_b", Name: "Bot B", Online: true},
			{Agent: "agent_c", Name: "小助手"},
		},
		Settings: steer.Settings{Answer: steer.All, Limit: 5, Threshold: 2, Judge: true},
		MaxDepth: 10,
	}
}

func bots(agents ...relay.AgentName) []relay.AgentName { return agents }

func TestParseCommand(t *testing.T) {
	t.Parallel()
	type asked = steer.Asked
	for _, tt := range []struct {
		text string
		want asked // Chinese is expected where the text has 中继
	}{
		{"/relay", asked{Verb: steer.VerbStatus}},
		{"  /RELAY  ", asked{Verb: steer.VerbStatus}},
		{"/relay status", asked{Verb: steer.VerbStatus}},
		{"/relay 状态", asked{Verb: steer.VerbStatus}},
		{"/中继", asked{Verb: steer.VerbStatus}},
		{"／中继　状态。", asked{Verb: steer.VerbStatus}},
		{"／ｒｅｌａｙ help", asked{Verb: steer.VerbHelp}},
		{"/中继 help", asked{Verb: steer.VerbHelp}},
		{"/中继帮助", asked{Verb: steer.VerbHelp}},
		{"/relay, help!", asked{Verb: steer.VerbHelp}},
		{"/relay pause", asked{Verb: steer.VerbPause}},
		{"/relay\npause\n30m", asked{Verb: steer.VerbPause, For: 30 * time.Minute}},
		{"/relay pause 2H", asked{Verb: steer.VerbPause, For: 2 * time.Hour}},
		{"/relay pause 1d.", asked{Verb: steer.VerbPause, For: 24 * time.Hour}},
		{"/relay pause 7d", asked{Verb: steer.VerbPause, For: steer.MaxPause}},
		{"/relay pause 1h30m", asked{Verb: steer.VerbPause, For: 90 * time.Minute}},
		{"/relay pause 30 minutes", asked{Verb: steer.VerbPause, For: 30 * time.Minute}},
		{"/中继 暂停 30分钟", asked{Verb: steer.VerbPause, For: 30 * time.Minute}},
		{"/中继暂停３０分钟", asked{Verb: steer.VerbPause, For: 30 * time.Minute}},
		{"/中继 暂停 2小时", asked{Verb: steer.VerbPause, For: 2 * time.Hour}},
		{"/中继 暂停 1 天", asked{Verb: steer.VerbPause, For: 24 * time.Hour}},
		{"/relay resume", asked{Verb: steer.VerbResume}},
		{"/中继 恢复", asked{Verb: steer.VerbResume}},
		{"/relay mute agent_a", asked{Verb: steer.VerbMute, Bots: bots("agent_a")}},
		{"/relay mute bot b 2h", asked{Verb: steer.VerbMute, Bots: bots("agent_b"), For: 2 * time.Hour}},
		{"/relay mute BotA BotA", asked{Verb: steer.VerbMute, Bots: bots("agent_a")}},
		{"/中继 静音 ＠小助手 1天", asked{Verb: steer.VerbMute, Bots: bots("agent_c"), For: 24 * time.Hour}},
		{"/中继静音小助手", asked{Verb: steer.VerbMute, Bots: bots("agent_c")}},
		{"/relay unmute @BotA", asked{Verb: steer.VerbUnmute, Bots: bots("agent_a")}},
		{"/中继 取消静音 BotA", asked{Verb: steer.VerbUnmute, Bots: bots("agent_a")}},
		{"/relay answer all", asked{Verb: steer.VerbAnswer, Mode: steer.All}},
		{"/relay answer Named", asked{Verb: steer.VerbAnswer, Mode: steer.Named}},
		{"/relay answer default", asked{Verb: steer.VerbAnswer, Mode: steer.Default}},
		{"/relay answer one", asked{Verb: steer.VerbAnswer, Mode: steer.One}},
		{"/relay answer @BotA", asked{Verb: steer.VerbAnswer, Mode: steer.Default, Bots: bots("agent_a")}},
		{"/relay answer default Bot B", asked{Verb: steer.VerbAnswer, Mode: steer.Default, Bots: bots("agent_b")}},
		{"/中继 回答 全部", asked{Verb: steer.VerbAnswer, Mode: steer.All}},
		{"/中继 回答 点名", asked{Verb: steer.VerbAnswer, Mode: steer.Named}},
		{"/中继 回答 默认", asked{Verb: steer.VerbAnswer, Mode: steer.Default}},
		{"/中继回答一个", asked{Verb: steer.VerbAnswer, Mode: steer.One}},
		{"/relay limit 5", asked{Verb: steer.VerbLimit, N: 5}},
		{"/中继 上限 ５", asked{Verb: steer.VerbLimit, N: 5}},
		{"/relay threshold 0", asked{Verb: steer.VerbThreshold}},
		{"/中继 阈值 1", asked{Verb: steer.VerbThreshold, N: 1}},
		{"/relay judge on", asked{Verb: steer.VerbJudge, On: true}},
		{"/relay judge OFF", asked{Verb: steer.VerbJudge}},
		{"/中继 裁判 开", asked{Verb: steer.VerbJudge, On: true}},
		{"/中继 裁判关", asked{Verb: steer.VerbJudge}},
		{"/relay budget 100", asked{Verb: steer.VerbBudget, N: 100}},
		{"/中继 预算 100", asked{Verb: steer.VerbBudget, N: 100}},
		{"/relay continue", asked{Verb: steer.VerbContinue}},
		{"/relay continue @BotA、agent_b", asked{Verb: steer.VerbContinue, Bots: bots("agent_a", "agent_b")}},
		{"/中继 继续", asked{Verb: steer.VerbContinue}},
		{"/relay stop", asked{Verb: steer.VerbStop}},
		{"/中继 停止！", asked{Verb: steer.VerbStop}},
		{"/relay why?", asked{Verb: steer.VerbWhy}},
		{"/中继 为什么", asked{Verb: steer.VerbWhy}},
		{"/relay forget", asked{Verb: steer.VerbForget}},
		{"/中继 还原", asked{Verb: steer.VerbForget}},
		{"@BotA /relay stop", asked{Verb: steer.VerbStop}},
		{"@Bot B @小助手，/relay mute BotA", asked{Verb: steer.VerbMute, Bots: bots("agent_a")}},
	} {
		got, is := steer.ParseCommand(steer.Said{Text: tt.text}, commandWords, room().Bots)
		tt.want.Chinese = strings.Contains(tt.text, "中继")
		if !is || got.Mistake != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %t, mistake: %s\n got %+v\nwant %+v", tt.text, is, wrong(got.Mistake), got, tt.want)
		}
	}
}

func wrong(m *steer.Mistake) string {
	if m == nil {
		return "none"
	}
	return m.Text(false) + " / " + m.Text(true)
}

func TestParseCommandWithAMistake(t *testing.T) {
	t.Parallel()
	type asked = steer.Asked
	for _, tt := range []struct {
		text             string
		want             asked
		english, chinese string // parts of what the person is told
	}{
		{"/relay mute＠BOTA, @小助手 and", asked{Verb: steer.VerbMute, Bots: bots("agent_a", "agent_c")}, "“and”", "“and”"},
		{"/relay pasue", asked{}, "pasue”. Did you mean “pause”? “/relay help”", "是不是“pause”？“/relay 帮助”"},
		{"/relay UNMUET BotA", asked{}, "Did you mean “unmute”", "是不是“unmute”"},
		{"/中继 停", asked{}, "Did you mean “停止”", "是不是“停止”"},
		{"/中继 限制 5", asked{}, "Did you mean “上限”", "是不是“上限”"},
		{"/relay Unpause", asked{}, "Did you mean “resume”", "是不是“resume”"},
		{"/中继 暂亭", asked{}, "Did you mean “暂停”", "没有“暂亭”这个命令。是不是“暂停”？“/中继 帮助”"},
		{"/relay tell me a joke", asked{}, "no command “tell”. “/relay help” lists", "没有“tell”这个命令。“/relay 帮助”"},
		{"/relay @BotA", asked{}, "no command “BotA”", "没有“BotA”"},
		{"/relay pause 8d", asked{Verb: steer.VerbPause}, "“8d” is not a duration", "最长 7 天"},
		{"/relay pause 0m", asked{Verb: steer.VerbPause}, "“0m”", "“0m”"},
		{"/relay pause 30", asked{Verb: steer.VerbPause}, "30m, 2h or 1d, at most 7 days", "30分钟、2小时、1天"},
		{"/relay pause 99999999999999999999d", asked{Verb: steer.VerbPause}, "at most 7 days", "最长 7 天"},
		{"/relay pause 213504d", asked{Verb: steer.VerbPause}, "at most 7 days", "最长 7 天"},
		// 19 minutes more than an int64 holds
		{"/relay pause 1000000d", asked{Verb: steer.VerbPause}, "at most 7 days", "最长 7 天"},
		{"/relay pause forever", asked{Verb: steer.VerbPause}, "“forever” is not a duration", "“forever”不是时长"},
		{"/relay mute", asked{Verb: steer.VerbMute}, "Which bot?", "哪个机器人？"},
		{"/relay mute 2h", asked{Verb: steer.VerbMute}, "“2h” is not a bot", "“2h”不是"},
		{"/relay mute @Foo", asked{Verb: steer.VerbMute},
			"“Foo” is not a bot in this group. Bots here: BotA, Bot B and 小助手.",
			"“Foo”不是这里的机器人。这里的机器人：BotA、Bot B、小助手。"},
		{"/relay mute BotA 9d", asked{Verb: steer.VerbMute, Bots: bots("agent_a")}, "“9d”", "“9d”"},
		{"/relay mute BotAnna", asked{Verb: steer.VerbMute}, "“BotAnna” is not a bot", "“BotAnna”"},
		{"/relay unmute BotA 2h", asked{Verb: steer.VerbUnmute, Bots: bots("agent_a")}, "“2h” after “unmute”",
			"“取消静音”后面的“2h”"},
		{"/relay answer", asked{Verb: steer.VerbAnswer}, "Who answers? all, named, default, one", "由谁回答？全部、点名、默认、一个"},
		{"/relay answer nobody", asked{Verb: steer.VerbAnswer}, "“nobody” is not valid", "不能是“nobody”"},
		{"/relay answer all BotA", asked{Verb: steer.VerbAnswer, Mode: steer.All}, "“BotA” after “answer”", "“BotA”"},
		{"/relay limit", asked{Verb: steer.VerbLimit, N: -1}, "takes a whole number from 1 to 10.", "要写 1 到 10 "},
		{"/relay limit ten", asked{Verb: steer.VerbLimit, N: -1, NoNumber: "ten"}, "from 1 to 10, not “ten”", "1 到 10 的整数，不能是“ten”"},
		{"/relay limit 11", asked{Verb: steer.VerbLimit, N: 11}, "from 1 to 10, not “11”", "1 到 10 的整数"},
		{"/relay threshold", asked{Verb: steer.VerbThreshold, N: -1}, "from 0 to 5.", "0 到 5 的整数"},
		{"/relay threshold a b", asked{Verb: steer.VerbThreshold, N: -1, NoNumber: "a"}, "from 0 to 5, not “a”", "0 到 5 的整数"},
		{"/relay budget -1", asked{Verb: steer.VerbBudget, N: -1, NoNumber: "-1"}, "from 0 to 1000000, not “-1”", "0 到 1000000"},
		{"/relay budget 1.5", asked{Verb: steer.VerbBudget, N: -1, NoNumber: "1.5"}, "not “1.5”", "“1.5”"},
		{"/relay judge", asked{Verb: steer.VerbJudge}, "on or off?", "开还是关？"},
		{"/relay judge maybe", asked{Verb: steer.VerbJudge}, "not “maybe”", "不能是“maybe”"},
		{"/relay stop now, please", asked{Verb: steer.VerbStop}, "“now” after “stop”", "“停止”后面的“now”"},
		{"/中继 状态 如何", asked{Verb: steer.VerbStatus}, "“如何”", "“状态”后面的“如何”"},
		{"/relay continue @Foo", asked{Verb: steer.VerbContinue}, "“Foo” is not a bot", "“Foo”"},
	} {
		got, is := steer.ParseCommand(steer.Said{Text: tt.text}, commandWords, room().Bots)
		_, m := got.Changes(room(), 1)
		if !is || m == nil || !strings.Contains(m.Text(false), tt.english) || !strings.Contains(m.Text(true),
			tt.chinese) {
			t.Errorf("%q: %t, mistake: %s\nwant %s / %s", tt.text, is, wrong(m), tt.english, tt.chinese)
		}
		if set, again := got.Changes(room(), 1); set != nil || again == nil {
			t.Errorf("%q changes %v", tt.text, set)
		}
		got.Mistake, tt.want.Chinese = nil, strings.Contains(tt.text, "中继")
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q:\n got %+v\nwant %+v", tt.text, got, tt.want)
		}
	}
}

func TestWhatIsNoCommand(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "@BotA", "relay status", "please /relay status", "/relayed", "/relay-config", "/relay/x",
		"/relay.exe crashed",
		"/relay:8080 answers", "/中继器 坏了", "@Foo /relay stop", "@BotAnna /relay stop", "@所有人 /relay stop",
		"BotA /relay stop",
		"> /relay stop", "/other stop",
	} {
		if c, is := steer.ParseCommand(steer.Said{Text: text}, commandWords, room().Bots); is {
			t.Errorf("%q is a command: %+v", text, c)
		}
	}
	if _, is := steer.ParseCommand(steer.Said{Text: " x"}, []string{"", " "}, nil); is {
		t.Error("an empty command word begins a command")
	}
}

func TestParseCommandWithMentions(t *testing.T) {
	t.Parallel()
	type mentioned = steer.Mentioned
	for _, tt := range []struct {
		text     string
		mentions []mentioned
		bots     []relay.AgentName
		is       bool
		mistake  string
	}{
		{"@Helper /relay mute @Other", []mentioned{{Text: "@Helper", Agent: "agent_a"}, {Text: "@Other", Agent: "agent_b"}}, bots("agent_b"),
			true, ""},
		{"@Helper/relay mute @Helper", []mentioned{{Text: "@Helper", Agent: "agent_a"}, {Text: "@Helper", Agent: "agent_b"}}, bots("agent_b"),
			true, ""},
		{"/relay mute @Bot @BotA 2h", []mentioned{{Text: "@Bot", Agent: "agent_b"}, {Text: "@BotA", Agent: "agent_c"}}, bots("agent_b",
			"agent_c"), true, ""},
		{"/relay mute @BotA", []mentioned{{Text: "@Bot", Agent: "agent_b"}}, bots("agent_a"), true, ""}, // typed, and longer
		{"/relay mute Helper stop", []mentioned{{Text: "Helper stop", Agent: "agent_a"}}, bots("agent_a"), true, ""},
		{"/relay mute @BotA", []mentioned{{Text: "@BotA"}}, nil, true, "“BotA” is not a bot"},                  // a person of that name
		{"/relay mute @Zoe", []mentioned{{Text: "@Zoe", Agent: "agent_z"}}, nil, true, "“Zoe” is not a bot"},   // in another group
		{"/relay answer @Zoe", []mentioned{{Text: "@Zoe", Agent: "agent_z"}}, nil, true, "“Zoe” is not valid"}, // the same
		{"@Alice /relay stop", []mentioned{{Text: "@Alice"}}, nil, false, ""},
		{"@Far /relay stop", []mentioned{{Text: "@Far", IsBot: true}}, nil, true, ""}, // a bot without a sidecar
		{"@Far @BotA /relay stop", []mentioned{{Text: "@Far", IsBot: true}, {Text: "@BotA", Agent: "agent_a"}}, nil, true, ""},
		{"@BotA @Alice /relay stop", []mentioned{{Text: "@BotA", Agent: "agent_a"}, {Text: "@Alice"}}, nil, false, ""},
	} {
		got, is := steer.ParseCommand(steer.Said{Text: tt.text, Mentions: tt.mentions}, commandWords, room().Bots)
		if is != tt.is || !slices.Equal(got.Bots, tt.bots) || (got.Mistake != nil) != (tt.mistake != "") ||
			!strings.Contains(wrong(got.Mistake), tt.mistake) {
			t.Errorf("%q: %t, %+v, mistake: %s", tt.text, is, got, wrong(got.Mistake))
		}
	}
}

func TestCommandWordsOfAnOperator(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text    string
		chinese bool
	}{{"!bots stop", false}, {"机器人 stop", true}, {"机器人管家 停止", true}, {"Straße stop", false},
		{"!bots please stop", false}} {
		got, is := steer.ParseCommand(steer.Said{Text: tt.text}, []string{"!Bots please", "!Bots", "机器人", "机器人管家",
			"straße"}, nil)
		if !is || got.Verb != steer.VerbStop || got.Mistake != nil || got.Chinese != tt.chinese {
			t.Errorf("%q: %t, %+v, mistake: %s", tt.text, is, got, wrong(got.Mistake))
		}
	}
}

func TestTwoBotsOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	twins := []steer.Bot{{Agent: "agent_a", Name: "Bot"}, {Agent: "agent_b", Name: "Bot"}}
	got, _ := steer.ParseCommand(steer.Said{Text: "/relay mute Bot"}, commandWords, twins)
	if want := "Bots here: Bot (agent_a) and Bot (agent_b)."; !strings.Contains(wrong(got.Mistake), want) {
		t.Errorf("mistake: %s\nwant %s", wrong(got.Mistake), want)
	}
	got, _ = steer.ParseCommand(steer.Said{Text: "/relay mute agent_b"}, commandWords, twins)
	if !slices.Equal(got.Bots, bots("agent_b")) {
		t.Errorf("by agent name: %+v", got)
	}
}

func TestIsContinue(t *testing.T) {
	t.Parallel()
	a, b, person := steer.Mentioned{Text: "@BotA", Agent: "agent_a"}, steer.Mentioned{Text: "@Bot B!",
		Agent: "agent_b"},
		steer.Mentioned{Text: "@Alice"}
	long := steer.Mentioned{Text: "@BotAnna", Agent: "agent_l"}
	for _, tt := range []struct {
		text     string
		mentions []steer.Mentioned
		bots     []relay.AgentName
		is       bool
	}{
		{"继续", nil, nil, true},
		{" 继续。", nil, nil, true},
		{"Continue!", nil, nil, true},
		{"GO  on…", nil, nil, true},
		{"@BotA 继续", []steer.Mentioned{a}, bots("agent_a"), true},
		{"@BotA，继续，@Bot B!", []steer.Mentioned{a, b}, bots("agent_a", "agent_b"), true},
		{"continue @BotA @BotA", []steer.Mentioned{a, a}, bots("agent_a"), true},
		{"@BotAnna@BotA continue", []steer.Mentioned{a, long}, bots("agent_a", "agent_l"), true},
		{"@小助手 继续", nil, bots("agent_c"), true}, // typed, as in a terminal
		{"继续@小助手！", nil, bots("agent_c"), true},
		{"@Bot B continue", nil, bots("agent_b"), true},
		{"continue ＠bot b, @BotA", nil, bots("agent_b", "agent_a"), true},
		{"@BotA go on @小助手", []steer.Mentioned{a}, bots("agent_a", "agent_c"), true},
		{"BotA 继续", nil, nil, false},
		{"@BotAnna continue", nil, nil, false},
		{"@所有人 继续", nil, nil, false},
		{"@Alice 继续", nil, nil, false},
		{"@小助手 继续 说", nil, nil, false},
		{"goon", nil, nil, false},
		{"@BotA 继续 @Alice", []steer.Mentioned{a, person}, nil, false},
		{"@Alice 继续", []steer.Mentioned{person}, nil, false},
		{"go @BotA on", []steer.Mentioned{a}, nil, false},
		{"继续说", nil, nil, false},
		{"please continue", nil, nil, false},
		{"continued", nil, nil, false},
		{"@BotA", []steer.Mentioned{a}, nil, false},
		{"", nil, nil, false},
		{"。", nil, nil, false},
	} {
		got, is := steer.IsContinue(steer.Said{Text: tt.text, Mentions: tt.mentions}, room().Bots)
		if is != tt.is || !slices.Equal(got, tt.bots) {
			t.Errorf("%q: %v, %t", tt.text, got, is)
		}
	}
}

// Whatever people write, a command is read without a panic, names bots of the group only,
// is the same again, and its texts are short.
func FuzzParseCommand(f *testing.F) {
	for _, text := range []string{
		"/relay mute @BotA 2h", "@BotA /中继 静音 小助手 30 分钟", "/relay answer default Bot B", "/relay limit 99999999",
		"/中继暂停1天2小时",
		"@BotA，继续", "/relay budget \xff", "／relay　why？",
	} {
		f.Add(text, "@BotA", "agent_a", uint8(0))
	}
	f.Fuzz(func(t *testing.T, text, mention, agent string, at uint8) {
		if agent == "" || len(agent) > 64 {
			return // no sidecar has such a name
		}
		g := room()
		g.Bots = append(g.Bots, steer.Bot{Agent: relay.AgentName(agent), Name: mention})
		s := steer.Said{Text: text, Mentions: []steer.Mentioned{{Text: mention, Agent: relay.AgentName(agent)},
			{Text: "@Alice"}}}
		s.Mentions = s.Mentions[at%3:]
		steer.IsContinue(s, g.Bots)
		c, is := steer.ParseCommand(s, commandWords, g.Bots)
		if again, also := steer.ParseCommand(s, commandWords, g.Bots); also != is || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v, then %+v", c, again)
		}
		if !is {
			return
		}
		for _, bot := range c.Bots {
			if !slices.ContainsFunc(g.Bots, func(b steer.Bot) bool { return b.Agent == bot }) {
				t.Errorf("%q is no bot of the group", bot)
			}
		}
		if c.For < 0 || c.For > steer.MaxPause {
			t.Errorf("for %v", c.For)
		}
		set, mistake := c.Changes(g, 1_700_000_000_000)
		var texts []string
		if mistake != nil {
			if set != nil {
				t.Errorf("a mistake changes %v", set)
			}
			texts = append(texts, mistake.Text(false), mistake.Text(true))
		} else {
			if r := (steer.Record{}); len(set) > 0 && !r.Merge(set.Of(1_700_000_000_000, "om_1")) {
				t.Errorf("no record takes %v", set)
			}
			texts = append(texts, c.AnswerText(g, time.UnixMilli(1_700_000_000_000)))
		}
		for _, text := range texts {
			if len(text) > 4096 || !utf8.ValidString(text) || strings.Contains(text, "@") {
				t.Errorf("%d bytes: %.200q", len(text), text)
			}
		}
	})
}
