package group

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/relay"
)

var commandWords = []string{"/relay", "/中继"}

func roomBots() []Peer {
	return []Peer{{Agent: "agent_a", Name: "BotA"}, {Agent: "agent_b", Name: "Bot B"},
		{Agent: "agent_c", Name: "小助手"}}
}

// room is a group of these bots.
func room() *State {
	s := New()
	s.d.Config = Config{Agent: "agent_a", Base: Settings{Answer: ModeAll, Limit: 5, Threshold: 2, Judge: true},
		MaxDepth: 10,
		Commands: commandWords, AnyChat: true, MaxAge: time.Hour, SteerBy: "members"}
	for _, b := range roomBots() {
		c := Changes{}
		c.set(keyIn+string(b.Agent), b)
		s.merge(s.at(c, 1, string(b.Agent), false))
	}
	return s
}

func bots(agents ...relay.AgentName) []relay.AgentName { return agents }

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want asked // Chinese is expected where the text has 中继
	}{
		{"/relay", asked{verb: VerbStatus}},
		{"  /RELAY  ", asked{verb: VerbStatus}},
		{"/relay status", asked{verb: VerbStatus}},
		{"/relay 状态", asked{verb: VerbStatus}},
		{"/中继", asked{verb: VerbStatus}},
		{"／中继　状态。", asked{verb: VerbStatus}},
		{"／ｒｅｌａｙ help", asked{verb: VerbHelp}},
		{"/中继 help", asked{verb: VerbHelp}},
		{"/中继帮助", asked{verb: VerbHelp}},
		{"/relay, help!", asked{verb: VerbHelp}},
		{"/relay pause", asked{verb: VerbPause}},
		{"/relay\npause\n30m", asked{verb: VerbPause, pause: 30 * time.Minute}},
		{"/relay pause 2H", asked{verb: VerbPause, pause: 2 * time.Hour}},
		{"/relay pause 1d.", asked{verb: VerbPause, pause: 24 * time.Hour}},
		{"/relay pause 7d", asked{verb: VerbPause, pause: maxPause}},
		{"/relay pause 1h30m", asked{verb: VerbPause, pause: 90 * time.Minute}},
		{"/中继 暂停 30分钟", asked{verb: VerbPause, pause: 30 * time.Minute}},
		{"/中继暂停３０分钟", asked{verb: VerbPause, pause: 30 * time.Minute}},
		{"/中继 暂停 2小时", asked{verb: VerbPause, pause: 2 * time.Hour}},
		{"/relay resume", asked{verb: VerbResume}},
		{"/中继 恢复", asked{verb: VerbResume}},
		{"/relay mute agent_a", asked{verb: VerbMute, bots: bots("agent_a")}},
		{"/relay mute bot b 2h", asked{verb: VerbMute, bots: bots("agent_b"), pause: 2 * time.Hour}},
		{"/relay mute BotA BotA", asked{verb: VerbMute, bots: bots("agent_a")}},
		{"/中继 静音 ＠小助手 1天", asked{verb: VerbMute, bots: bots("agent_c"), pause: 24 * time.Hour}},
		{"/中继静音小助手", asked{verb: VerbMute, bots: bots("agent_c")}},
		{"/relay unmute @BotA", asked{verb: VerbUnmute, bots: bots("agent_a")}},
		{"/中继 取消静音 BotA", asked{verb: VerbUnmute, bots: bots("agent_a")}},
		{"/relay answer all", asked{verb: VerbAnswer, mode: ModeAll}},
		{"/relay answer Named", asked{verb: VerbAnswer, mode: ModeNamed}},
		{"/relay answer default", asked{verb: VerbAnswer, mode: ModeDefault}},
		{"/relay answer one", asked{verb: VerbAnswer, mode: ModeOne}},
		{"/relay answer @BotA", asked{verb: VerbAnswer, mode: ModeDefault, bots: bots("agent_a")}},
		{"/relay answer default Bot B", asked{verb: VerbAnswer, mode: ModeDefault, bots: bots("agent_b")}},
		{"/中继 回答 全部", asked{verb: VerbAnswer, mode: ModeAll}},
		{"/中继 回答 点名", asked{verb: VerbAnswer, mode: ModeNamed}},
		{"/中继 回答 默认", asked{verb: VerbAnswer, mode: ModeDefault}},
		{"/中继回答一个", asked{verb: VerbAnswer, mode: ModeOne}},
		{"/relay limit 5", asked{verb: VerbLimit, number: "5"}},
		{"/中继 上限 ５", asked{verb: VerbLimit, number: "5"}},
		{"/relay threshold 0", asked{verb: VerbThreshold, number: "0"}},
		{"/中继 阈值 1", asked{verb: VerbThreshold, number: "1"}},
		{"/relay judge on", asked{verb: VerbJudge, on: true}},
		{"/relay judge OFF", asked{verb: VerbJudge}},
		{"/中继 裁判 开", asked{verb: VerbJudge, on: true}},
		{"/中继 裁判关", asked{verb: VerbJudge}},
		{"/relay budget 100", asked{verb: VerbBudget, number: "100"}},
		{"/中继 预算 100", asked{verb: VerbBudget, number: "100"}},
		{"/relay continue", asked{verb: VerbContinue}},
		{"/中继 继续", asked{verb: VerbContinue}},
		{"/relay stop", asked{verb: VerbStop}},
		{"/中继 停止！", asked{verb: VerbStop}},
		{"/relay why?", asked{verb: VerbWhy}},
		{"/中继 为什么", asked{verb: VerbWhy}},
		{"/relay forget", asked{verb: VerbForget}},
		{"/中继 还原", asked{verb: VerbForget}},
		{"@BotA /relay stop", asked{verb: VerbStop}},
		{"@Bot B @小助手，/relay mute BotA", asked{verb: VerbMute, bots: bots("agent_a")}},
	} {
		got, is := parseCommand(tt.text, commandWords, roomBots())
		tt.want.chinese = strings.Contains(tt.text, "中继")
		if !is || got.mistake != none || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %t, mistake: %s\n got %+v\nwant %+v", tt.text, is, wrong(got.mistake), got, tt.want)
		}
	}
}

func wrong(m text2) string {
	return m.en + " / " + m.zh
}

func TestParseCommandWithAMistake(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text             string
		want             asked
		english, chinese string // parts of what the person is told
	}{
		{"/relay mute＠BOTA, @小助手 and", asked{verb: VerbMute, bots: bots("agent_a", "agent_c")}, "“and”", "“and”"},
		{"/relay tell me a joke", asked{}, "no command “tell”. “/relay help” lists", "没有“tell”这个命令。“/relay 帮助”"},
		{"/relay @BotA", asked{}, "no command “BotA”", "没有“BotA”"},
		{"/relay pause 8d", asked{verb: VerbPause}, "“8d” is not a duration", "最长 7 天"},
		{"/relay pause 0m", asked{verb: VerbPause}, "“0m”", "“0m”"},
		{"/relay pause 30", asked{verb: VerbPause}, "30m, 2h or 1d, at most 7 days", "30分钟、2小时、1天"},
		{"/relay pause 99999999999999999999d", asked{verb: VerbPause}, "at most 7 days", "最长 7 天"},
		{"/relay pause 213504d", asked{verb: VerbPause}, "at most 7 days", "最长 7 天"},
		// 19 minutes more than an int64 holds
		{"/relay pause 1000000d", asked{verb: VerbPause}, "at most 7 days", "最长 7 天"},
		{"/relay pause forever", asked{verb: VerbPause}, "“forever” is not a duration", "“forever”不是时长"},
		{"/relay mute", asked{verb: VerbMute}, "Which bot?", "哪个机器人？"},
		{"/relay mute 2h", asked{verb: VerbMute}, "“2h” is not a bot", "“2h”不是"},
		{"/relay mute @Foo", asked{verb: VerbMute},
			"“Foo” is not a bot in this group. Bots here: BotA, Bot B and 小助手.",
			"“Foo”不是这里的机器人。这里的机器人：BotA、Bot B、小助手。"},
		{"/relay mute BotA 9d", asked{verb: VerbMute, bots: bots("agent_a")}, "“9d”", "“9d”"},
		{"/relay mute BotAnna", asked{verb: VerbMute}, "“BotAnna” is not a bot", "“BotAnna”"},
		{"/relay unmute BotA 2h", asked{verb: VerbUnmute, bots: bots("agent_a")}, "“2h” after “unmute”",
			"“取消静音”后面的“2h”"},
		{"/relay answer", asked{verb: VerbAnswer}, "Who answers? all, named, default, one",
			"由谁回答？全部、点名、默认、一个"},
		{"/relay answer nobody", asked{verb: VerbAnswer}, "“nobody” is not valid", "不能是“nobody”"},
		{"/relay answer all BotA", asked{verb: VerbAnswer, mode: ModeAll}, "“BotA” after “answer”", "“BotA”"},
		{"/relay limit", asked{verb: VerbLimit}, "takes a whole number from 1 to 10.", "要写 1 到 10 "},
		{"/relay limit ten", asked{verb: VerbLimit, number: "ten"}, "from 1 to 10, not “ten”",
			"1 到 10 的整数，不能是“ten”"},
		{"/relay limit 11", asked{verb: VerbLimit, number: "11"}, "from 1 to 10, not “11”", "1 到 10 的整数"},
		{"/relay threshold", asked{verb: VerbThreshold}, "from 0 to 5.", "0 到 5 的整数"},
		{"/relay threshold a b", asked{verb: VerbThreshold, number: "a"}, "from 0 to 5, not “a”", "0 到 5 的整数"},
		{"/relay budget -1", asked{verb: VerbBudget, number: "-1"}, "from 0 to 1000000, not “-1”", "0 到 1000000"},
		{"/relay budget 1.5", asked{verb: VerbBudget, number: "1.5"}, "not “1.5”", "“1.5”"},
		{"/relay judge", asked{verb: VerbJudge}, "on or off?", "开还是关？"},
		{"/relay judge maybe", asked{verb: VerbJudge}, "not “maybe”", "不能是“maybe”"},
		{"/relay stop now, please", asked{verb: VerbStop}, "“now” after “stop”", "“停止”后面的“now”"},
		{"/中继 状态 如何", asked{verb: VerbStatus}, "“如何”", "“状态”后面的“如何”"},
	} {
		got, is := parseCommand(tt.text, commandWords, roomBots())
		_, _, m := room().meant(&got, "", 1)
		m = cmp.Or(got.mistake, m)
		if !is || m == none || !strings.Contains(m.en, tt.english) || !strings.Contains(m.zh, tt.chinese) {
			t.Errorf("%q: %t, mistake: %s\nwant %s / %s", tt.text, is, wrong(m), tt.english, tt.chinese)
		}
		got.mistake, got.pause, tt.want.chinese = none, 0, strings.Contains(tt.text, "中继")
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
		if c, is := parseCommand(text, commandWords, roomBots()); is {
			t.Errorf("%q is a command: %+v", text, c)
		}
	}
	if _, is := parseCommand(" x", []string{"", " "}, nil); is {
		t.Error("an empty command word begins a command")
	}
}

// The platform's mentions are read by the agents that they resolve to.
func TestParseCommandWithMentions(t *testing.T) {
	t.Parallel()
	type mentions = []relay.Mention
	for _, tt := range []struct {
		text     string
		mentions mentions
		bots     []relay.AgentName
		is       bool
		mistake  string
	}{
		{"@Helper /relay mute @Other",
			mentions{{Name: "Helper", AgentName: "agent_a"}, {Name: "Other", AgentName: "agent_b"}},
			bots("agent_b"), true, ""},
		{"@Helper/relay mute @Helper",
			mentions{{Name: "Helper", AgentName: "agent_a"}, {Name: "Helper", AgentName: "agent_b"}},
			bots("agent_b"), true, ""},
		{"/relay mute @Zoe", mentions{{Name: "Zoe", AgentName: "agent_z"}}, nil, true, "is not a bot"}, // in another group
		{"@Alice /relay stop", mentions{{Name: "Alice", OpenID: "ou_alice"}}, nil, false, ""},
		{"@Far /relay stop", mentions{{Name: "Far", AgentName: "agent_far"}}, nil, true, ""}, // a bot without a sidecar here
		{"@BotA @Alice /relay stop", mentions{{Name: "BotA", AgentName: "agent_a"}, {Name: "Alice"}}, nil, false, ""},
	} {
		got, is := room().parse(&relay.Message{Content: tt.text, Mentions: tt.mentions})
		if is != tt.is || !slices.Equal(got.bots, tt.bots) || (got.mistake != none) != (tt.mistake != "") ||
			!strings.Contains(wrong(got.mistake), tt.mistake) {
			t.Errorf("%q: %t, %+v, mistake: %s", tt.text, is, got, wrong(got.mistake))
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
		got, is := parseCommand(tt.text, []string{"!Bots please", "!Bots", "机器人", "机器人管家",
			"straße"}, nil)
		if !is || got.verb != VerbStop || got.mistake != none || got.chinese != tt.chinese {
			t.Errorf("%q: %t, %+v, mistake: %s", tt.text, is, got, wrong(got.mistake))
		}
	}
}

func TestTwoBotsOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	twins := []Peer{{Agent: "agent_a", Name: "Bot"}, {Agent: "agent_b", Name: "Bot"}}
	got, _ := parseCommand("/relay mute Bot", commandWords, twins)
	if want := "Bots here: Bot (agent_a) and Bot (agent_b)."; !strings.Contains(wrong(got.mistake), want) {
		t.Errorf("mistake: %s\nwant %s", wrong(got.mistake), want)
	}
	got, _ = parseCommand("/relay mute agent_b", commandWords, twins)
	if !slices.Equal(got.bots, bots("agent_b")) {
		t.Errorf("by agent name: %+v", got)
	}
}

func TestIsContinue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		is   bool
	}{
		{"继续", true},
		{" 继续。", true},
		{"Continue!", true},
		{"GO  on…", true},
		{"@BotA 继续", true},
		{"@BotA，继续，@Bot B!", true},
		{"continue @BotA @BotA", true},
		{"@小助手 继续", true},
		{"继续@小助手！", true},
		{"continue ＠bot b, @BotA", true},
		{"BotA 继续", false},
		{"@BotAnna continue", false},
		{"@所有人 继续", false},
		{"@Alice 继续", false},
		{"@小助手 继续 说", false},
		{"goon", false},
		{"@BotA 继续 @Alice", false},
		{"go @BotA on", false},
		{"继续说", false},
		{"please continue", false},
		{"continued", false},
		{"@BotA", false},
		{"", false},
		{"。", false},
	} {
		if _, is := isContinue(tt.text, roomBots()); is != tt.is {
			t.Errorf("%q: %t", tt.text, is)
		}
	}
}
