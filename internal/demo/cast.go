package demo

import (
	"encoding/json"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// character is one of the bots: who it is, and what it answers.
type character struct {
	agent  string // AGENT_NAME
	name   string // as the group sees it
	openID string
	role   string
	asked  []line // by a person
	told   []line // by a bot that addresses it
}

// line is an answer to what has one of the keywords, or "" for anything, in it.
// The first one that fits is said. {sender} stands for who is answered, {task}
// for the words of that one.
type line struct{ hears, says string }

const (
	userOpenID = "ou_demo_user"
	everybody  = "大家 everyone @all"
	talk       = "讨论 discuss"
	thanks     = "谢 thank"
	greeting   = "你好 hello"
	courtesy   = "谢 不客气 好的 thank welcome"
	question   = "? ？"
	code       = "```"
)

// sorted is what a coder writes.
const sorted = "```go\nfunc Sort(s []int) { slices.Sort(s) }\n```"

// cast is who plays in the first act, in the order in which they are shown.
func (l language) cast() []character {
	return []character{
		{
			agent: "agent_plan", name: l.say("Planner", "小策"), openID: "ou_demo_plan",
			role: l.say("plans the work, hands it to others, reports to people", "规划工作，分派给其他机器人，向人汇报"),
			asked: []line{
				{everybody, l.say("Use the one in the library. It is good enough.", "我建议先用现成的，够用了。")},
				{talk, l.say("@Coder quicksort or merge sort, what do you think?", "@小码 快排还是归并，你怎么看？")},
				{thanks, l.say("@Coder thank you very much!", "@小码 谢谢你，辛苦了！")},
				{greeting, l.say("Hello! Give me something to do.", "你好！有什么要做的，交给我就行。")},
				{"", l.say("@Coder please do this and send it to me: {task}.", "@小码 请接手：{task}，写好后发给我。")},
			},
			told: []line{
				{code, l.say("It is done. The code is above.", "做好了，代码在上面，请查收。")},
				{courtesy, l.say("@{sender} thank you!", "@{sender} 好的，谢谢！")},
				{question, l.say("@{sender} ten million. Is there memory for two copies?", "@{sender} 一千万条。内存放得下两份吗？")},
				{"", l.say("@{sender} noted, it is in the plan.", "@{sender} 收到，我记进计划里。")},
			},
		},
		{
			agent: "agent_code", name: l.say("Coder", "小码"), openID: "ou_demo_code", role: l.say("writes and tests code", "写代码并测试"),
			asked: []line{
				{everybody, l.say("The simplest one that works.", "能用的里面挑最简单的。")},
				{thanks, l.say("You are welcome!", "不客气！")},
				{"", sorted},
			},
			told: []line{
				{courtesy, l.say("@{sender} you are welcome!", "@{sender} 不客气！")},
				{question, l.say("@{sender} one question first: how many items are there?", "@{sender} 先问一句：数据有多少条？")},
				{"", l.say("@{sender} done, the tests pass:\n", "@{sender} 写好了，测试通过：\n") + sorted},
			},
		},
		{
			agent: "agent_review", name: l.say("Reviewer", "小审"), openID: "ou_demo_review",
			role: l.say("reviews and tests what others wrote", "评审并测试别人写的代码"),
			asked: []line{
				{everybody, l.say("Any of them. Test the empty slice.", "都行，别忘了测边界情况。")},
				{thanks, l.say("You are welcome!", "不客气！")},
				{"", l.say("I read it: it is correct. Please add a test of the empty slice.", "看过了：没有问题，请补一个空切片的测试。")},
			},
			told: []line{
				{courtesy, l.say("@{sender} you are welcome!", "@{sender} 不客气！")},
				{"", l.say("@{sender} I read it: please add a test of the empty slice.", "@{sender} 看过了：请补一个空切片的测试。")},
			},
		},
	}
}

// The groups: everybody is in the first, the reviewer is not in the second.
const (
	devGroup  relay.ChatID = "oc_demo_dev"
	pairGroup relay.ChatID = "oc_demo_pair"
)

// group is one of them.
type group struct {
	name    string
	members []string
}

func (l language) groups() map[relay.ChatID]group {
	return map[relay.ChatID]group{
		devGroup:  {l.say("Dev", "研发群"), []string{"agent_plan", "agent_code", "agent_review"}},
		pairGroup: {l.say("Pair", "双人群"), []string{"agent_plan", "agent_code"}},
	}
}

// names are those of the cast, in both languages.
var names = func() (all []string) {
	for _, c := range slices.Concat(language{}.cast(), language{chinese: true}.cast()) {
		all = append(all, c.name)
	}
	return all
}()

// groupsFile is the GROUPS_FILE of the sidecars.
func groupsFile(cast []character, chats map[relay.ChatID]group) []byte {
	agents, groups := map[string]any{}, map[relay.ChatID]any{}
	for _, c := range cast {
		agents[c.agent] = map[string]any{"name": c.name, "feishu_open_id": c.openID, "type": "bot", "description": c.role}
	}
	for chat, g := range chats {
		groups[chat] = map[string]any{"name": g.name, "members": g.members}
	}
	data, err := json.Marshal(map[string]any{"agents": agents, "groups": groups})
	if err != nil {
		panic(err) // strings and lists of them are always JSON
	}
	return data
}

// answerUser is what the character says to a person's words, or "" when they
// are not for it. What names nobody is for the first of those who were given it.
func (c *character) answerUser(text string, first bool) string {
	if !has(text, everybody) && !strings.Contains(text, "@"+c.name) && (!first || namesSomebody(text)) {
		return ""
	}
	return pick(c.asked, "", text)
}

// answerBot is what the character says to a bot that addresses it, or "".
func (c *character) answerBot(sender, text string) string {
	return pick(c.told, sender, text)
}

func namesSomebody(text string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, "@"+name) })
}

func pick(lines []line, sender, text string) string {
	for _, l := range lines {
		if l.hears == "" || has(text, l.hears) {
			return strings.NewReplacer("{sender}", sender, "{task}", task(text)).Replace(l.says)
		}
	}
	return ""
}

func has(text, keywords string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(strings.Fields(keywords), func(word string) bool { return strings.Contains(text, word) })
}

// maxTask is the most runes of a task that are handed on; the rest is cut.
const maxTask = 200

// task is text without the names in it: handed on, they would address again.
func task(text string) string {
	for _, name := range names {
		text = strings.ReplaceAll(text, "@"+name, "")
	}
	runes := []rune(strings.TrimRight(strings.Join(strings.Fields(text), " "), "。.!！"))
	return string(runes[:min(maxTask, len(runes))])
}
