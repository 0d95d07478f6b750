//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"feishu-relay/group"
	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// trio is a group of two bots on the official Node SDK behind gateways and one on the local
// API, which is posted its messages and reports what people say.
type trio struct {
	*tenant
	n, m, l    *running // the sidecars
	cfg        [3]sidecar.Config
	botN, botM *program
	botL       *worker
	now        shownGroup // the group when it last was the same at all
	commands   []string   // the ids of those typed
	answers    []string   // their texts
}

func newTrio(t *testing.T, rulesN, rulesM []rule) *trio {
	t.Helper()
	nodeSDK(t)
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotN", Scopes: hearsBots}, feishusim.App{Name: "BotM", Scopes: hearsBots})
	st := &trio{tenant: n}
	st.botL = newWorker(t, func(context.Context) (string, error) { return "http://" + st.l.Addr().String(), nil })
	for i, agent := range []string{"agent_n", "agent_m", "agent_l"} {
		st.cfg[i] = n.steered(agent)
		st.cfg[i].Gateway.Addr = freeAddr(t) // the same after a restart
	}
	st.cfg[2].Gateway, st.cfg[2].BotName, st.cfg[2].InjectURL = sidecar.GatewayConfig{}, "BotL", st.botL.hook.URL
	st.start()
	st.botN = n.nodeBot(apps[0], "http://"+st.cfg[0].Gateway.Addr, nil, rulesN...)
	st.botM = n.nodeBot(apps[1], "http://"+st.cfg[1].Gateway.Addr, nil, rulesM...)
	n.connected(st.n)
	n.connected(st.m)
	return st
}

func (st *trio) start() {
	st.n, st.m, st.l = st.tenant.start(st.cfg[0]), st.tenant.start(st.cfg[1]), st.tenant.start(st.cfg[2])
}

func (st *trio) sidecars() []*running { return []*running{st.n, st.m, st.l} }

// says lets the person say something, which the bot on the local API reports, and returns what
// that was answered.
func (st *trio) says(u feishusim.Utterance) (id string, answer relay.Sent) {
	st.t.Helper()
	u.Chat, u.User = st.chat, st.user.ID
	id, err := st.Post(u)
	must(st.t, err)
	return id, st.told(st.l, id)
}

// told has a bot on the local API report a message of a person, and returns the answer.
func (n *tenant) told(s *running, id string) (answer relay.Sent) {
	n.t.Helper()
	m, _ := n.Message(id)
	body, err := json.Marshal(map[string]any{"chat_id": m.ChatID, "content": m.Text, "sender": m.SenderName, "message_id": id,
		"msg_type": m.Type, "parent_id": m.ParentID, "root_id": m.RootID, "thread_id": m.ThreadID, "ts": m.CreateTime})
	must(n.t, err)
	status, said := n.posts(s, "/v1/inbound", string(body))
	if status != http.StatusAccepted || json.Unmarshal([]byte(said), &answer) != nil {
		n.t.Fatalf("POST /v1/inbound of %q is answered %d: %s", m.Text, status, said)
	}
	return answer
}

// forAll lets the person say something that all bots are given.
func (st *trio) forAll(text string) {
	st.t.Helper()
	if _, answer := st.says(feishusim.Utterance{Text: text}); answer.ForMe == nil || !*answer.ForMe {
		st.t.Errorf("BotL is told of %q: %+v", text, answer)
	}
	st.hears(st.botN.sdkBot, text)
	st.hears(st.botM.sdkBot, text)
}

// agree waits until the group is the same at all sidecars, and as it should be.
func (st *trio) agree(what string, is func(shownGroup) bool) {
	st.t.Helper()
	st.until(what, func() bool {
		version := ""
		for _, s := range st.sidecars() {
			st.now = st.groupAt(s)
			if !is(st.now) || version != "" && version != st.now.Version {
				return false
			}
			version = st.now.Version
		}
		return true
	})
}

// groupAt reads the group, without a check of the answer's form.
func (st *trio) groupAt(s *running) (g shownGroup) {
	st.t.Helper()
	must(st.t, json.Unmarshal([]byte(st.get(s, "/v1/groups/"+st.chat)), &g))
	return g
}

// types lets the person type a command, and waits until it is answered, with want and in its
// language, and until the group is as it should be then; nil: as before.
func (st *trio) types(u feishusim.Utterance, want string, is func(shownGroup) bool) {
	st.t.Helper()
	before := st.now
	id, told := st.says(u)
	typed, _ := st.Message(id)
	if told.ForMe == nil || *told.ForMe || told.Reason != relay.Command {
		st.t.Errorf("BotL is told of %q: %+v", typed.Text, told)
	}
	answer := st.repliesTo(id).Text
	if !strings.Contains(answer, want) || group.HasHan(answer) != group.HasHan(typed.Text) {
		st.t.Errorf("%q is answered %q, want %q in it", typed.Text, answer, want)
	}
	st.commands, st.answers = append(st.commands, id), append(st.answers, answer)
	what := fmt.Sprintf("%q holds everywhere", typed.Text)
	if is == nil {
		if st.agree(what, func(shownGroup) bool { return true }); st.now.Version != before.Version {
			st.t.Errorf("%q has changed %+v to %+v", typed.Text, before, st.now)
		}
		return
	}
	st.agree(what, func(g shownGroup) bool { return g.Version != before.Version && is(g) })
}

// A person steers two bots on the official Node SDK and one on the local API with every command,
// in both languages: each is answered once, in its language, by one bot, and holds at all sidecars;
// no bot is given it or its answer. What stopped goes on with a word, what is recalled is gone
// everywhere, and a picture of one bot is fetched by another.
func TestSteeringStory(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	small := png[:1000] // it is in the bot's environment
	st := newTrio(t,
		[]rule{{When: "discuss", Say: "an apple: what do you think?", To: "BotM"}, {When: "banana", Say: "a cherry: what do you think?", To: "BotM"},
			{When: "paint", Picture: small}, {When: "bake", Say: "kiwi pie: what do you think?", To: "BotM"}},
		[]rule{{When: "apple", Say: "a banana: what do you think?", To: "BotN"}, {When: "cherry", Say: "a damson: what do you think?", To: "BotN"}})
	st.until("the bots are there", func() bool {
		return st.Connections(st.botN.app.ID) > 0 && st.Connections(st.botM.app.ID) > 0
	})
	st.forAll("hello")
	st.agree("all know each other", func(g shownGroup) bool {
		return len(g.Bots) == 3 && g.Bots[0].Online && g.Bots[1].Online && g.Bots[2].Online
	})

	said := st.now // what holds where nobody has set anything
	paused := func(ends bool) func(shownGroup) bool {
		return func(g shownGroup) bool { return g.Settings.Paused != nil && (g.Settings.Paused.Until != nil) == ends }
	}
	goes := func(g shownGroup) bool { return g.Settings.Paused == nil }
	muted := func(ends bool) func(shownGroup) bool {
		return func(g shownGroup) bool {
			m, ok := g.Settings.Muted["agent_m"]
			return ok && len(g.Settings.Muted) == 1 && (m.Until != nil) == ends
		}
	}
	heard := func(g shownGroup) bool { return len(g.Settings.Muted) == 0 }
	answer := func(mode, bot string) func(shownGroup) bool {
		return func(g shownGroup) bool { return g.Settings.Answer == mode && g.Settings.DefaultBot == bot }
	}
	changed := func(shownGroup) bool { return true }
	forgotten := func(g shownGroup) bool {
		return g.Settings.Limit == said.Settings.Limit && g.Settings.Answer == "all" && g.Settings.DefaultBot == "" &&
			g.Settings.Budget == 0 && g.Sources["limit"] == "env" && g.Settings.Judge
	}
	for _, c := range []struct {
		text, answer string
		is           func(shownGroup) bool
	}{
		{"/relay", "Online (3): BotL, BotM and BotN", nil},
		{"/relay status", "Online (3): BotL, BotM and BotN", nil},
		{"/中继 状态", "在线（3）：BotL、BotM、BotN", nil},
		{"/relay help", "/relay pause [30m]: ", nil},
		{"/中继 帮助", "/中继 暂停 [30分钟]：", nil},
		{"/relay pause 30m", "paused until", paused(true)},
		{"/relay resume", "no longer paused", goes},
		{"/中继 暂停 30分钟", "已暂停，", paused(true)},
		{"/中继 恢复", "已恢复", goes},
		{"/中继暂停", "直到有人恢复", paused(false)},
		{"/RELAY Resume.", "no longer paused", goes},
		{"/relay mute @BotM 2h", "BotM is muted until", muted(true)},
		{"/relay unmute BotM", "BotM is no longer muted", heard},
		{"/中继 静音 @BotM 2小时", "BotM 已静音，", muted(true)},
		{"/中继 取消静音 @BotM", "BotM 已取消静音", heard},
		{"/relay answer named", "only when they are mentioned", answer("named", "")},
		{"/relay answer default", "there is no default bot", answer("default", "")},
		{"/relay answer one", "One bot answers", answer("one", "")},
		{"/relay answer all", "All bots answer", answer("all", "")},
		{"/relay answer @BotM", "BotM answers messages that mention no bot", answer("default", "agent_m")},
		{"/中继 回答 点名", "只在被点名时", answer("named", "agent_m")},
		{"/中继 回答 默认", "由 BotM 回答", answer("default", "agent_m")},
		{"/中继 回答 一个", "由 BotM 回答", answer("one", "agent_m")},
		{"/中继 回答 全部", "所有机器人都会回答", answer("all", "agent_m")},
		{"/中继 回答 @BotL", "由 BotL 回答", answer("default", "agent_l")},
		{"/relay limit 5", "The limit is 5", func(g shownGroup) bool { return g.Settings.Limit == 5 }},
		{"/中继 上限 4", "上限为 4", func(g shownGroup) bool { return g.Settings.Limit == 4 }},
		{"/relay limit 11", "from 1 to 10", nil},
		{"/relay threshold 2", "The threshold is 2", func(g shownGroup) bool { return g.Settings.Threshold == 2 }},
		{"/中继 阈值 0", "阈值为 0", func(g shownGroup) bool { return g.Settings.Threshold == 0 }},
		{"/relay judge off", "The judge is off", func(g shownGroup) bool { return !g.Settings.Judge }},
		{"/relay judge on", "The judge is on", func(g shownGroup) bool { return g.Settings.Judge }},
		{"/中继 裁判 关", "裁判已关闭", func(g shownGroup) bool { return !g.Settings.Judge }},
		{"/中继 裁判 开", "裁判已开启", func(g shownGroup) bool { return g.Settings.Judge }},
		{"/relay budget 100", "The budget is 100", func(g shownGroup) bool { return g.Settings.Budget == 100 }},
		{"/中继 预算 50", "预算为每小时 50", func(g shownGroup) bool { return g.Settings.Budget == 50 }},
		{"/relay forget", "the operator's settings apply", forgotten},
		{"/中继 上限 4", "上限为 4", func(g shownGroup) bool { return g.Settings.Limit == 4 }},
		{"/中继 还原", "恢复为运维的设置", forgotten},
		{"/relay stop", "Stopped.", changed},
		{"/relay continue", "The bots continue.", changed},
		{"/中继 停止", "已停止", changed},
		{"/中继 继续 @BotM", "BotM可以继续了", changed},
		{"/relay pasue", "There is no command “pasue”.", nil},
		{"/中继 暂定", "没有“暂定”这个命令", nil},
	} {
		st.types(feishusim.Utterance{Text: c.text}, c.answer, c.is)
	}
	st.types(feishusim.Utterance{Type: "post", Content: fmt.Sprintf(`{"zh_cn":{"title":"","content":[[{"tag":"at","user_id":%q},`+
		`{"tag":"text","text":" "},{"tag":"at","user_id":%q},{"tag":"text","text":" /relay limit 3"}]]}}`, st.botN.app.ID, st.botM.app.ID)},
		"The limit is 3", func(g shownGroup) bool { return g.Settings.Limit == 3 })

	// What stopped is shown, and a person's word has it go on.
	st.says(feishusim.Utterance{Text: "@BotN discuss fruit"})
	cherry := st.sees("cherry")
	st.until("the stop is shown", func() bool { return slices.Equal(st.reactions(cherry.ID), []string{"CrossMark"}) })
	st.until("all know of it", func() bool {
		return !slices.ContainsFunc(st.sidecars(), func(s *running) bool {
			stop := st.groupAt(s).LastStop
			return stop == nil || stop.MessageID != cherry.ID || len(stop.Bots) != 2
		})
	})
	st.types(feishusim.Utterance{Text: "/relay why", ReplyTo: cherry.ID}, "BotM: not delivered: the bots reached the limit of messages in a row", nil)
	st.types(feishusim.Utterance{Text: "/中继 为什么", ReplyTo: cherry.ID}, "BotM：未送达：机器人连续发言已达上限", nil)
	if _, told := st.says(feishusim.Utterance{Text: "继续"}); told.ForMe == nil || *told.ForMe || told.Reason != relay.Continue {
		t.Errorf("BotL is told of the word: %+v", told)
	}
	st.hears(st.botN.sdkBot, "damson")
	st.until("BotL is given what stopped", func() bool { return st.botL.ids()[cherry.ID] == 1 })
	if st.botM.given(cherry.ID) != 1 {
		t.Errorf("BotM was given what stopped %d times", st.botM.given(cherry.ID))
	}

	// A picture of one bot is fetched by another.
	st.says(feishusim.Utterance{Text: "@BotN paint it"})
	picture, err := st.Wait(limited(t), func(m feishusim.Message) bool { return m.Type == "image" && m.Sender == st.botN.app.ID })
	must(t, err)
	st.until("BotM is told of the picture", func() bool { return st.botM.given(picture.ID) == 1 })
	key := st.pictureIn(picture.ID)
	if got := st.filesOf(st.l, picture.ID); !slices.Equal(got, []shownFile{{key, "image", ""}}) {
		t.Errorf("the picture is listed as %v", got)
	}
	if got := st.fetch(st.m, picture.ID, key); got.status != http.StatusOK || !bytes.Equal(got.body, small) {
		t.Errorf("the picture: %d, %d bytes, %v", got.status, len(got.body), got.err)
	}

	// What is recalled is gone for all readers.
	st.says(feishusim.Utterance{Text: "@BotN bake it"})
	st.hears(st.botM.sdkBot, "kiwi")
	kiwi := st.sees("kiwi").ID
	st.until("BotL is given it", func() bool { return st.botL.ids()[kiwi] == 1 })
	must(t, st.Recall(kiwi))
	for _, s := range st.sidecars() {
		st.until("it is recalled", func() bool { return st.shownOf(s, kiwi).Recalled })
		if read := st.readsTranscript(s); strings.Contains(read, "kiwi") || !strings.Contains(read, kiwi) || st.shownOf(s, kiwi).Content != "" {
			t.Errorf("a reader is shown %s", read)
		}
	}
	st.until("no transcript has it", func() bool { return st.holding("kiwi", "transcripts") == nil })

	// A mute survives a restart of the sidecars.
	st.types(feishusim.Utterance{Text: "/中继 静音 @BotM"}, "BotM 已静音", muted(false))
	for _, s := range st.sidecars() {
		s.stop()
	}
	st.start()
	st.connected(st.n)
	st.connected(st.m)
	st.agree("the mute still holds", muted(false))
	st.says(feishusim.Utterance{Text: "only for two"})
	st.hears(st.botN.sdkBot, "only for two")
	st.until("BotM is not given it", func() bool { return st.stops(st.m, "muted") == 1 })
	st.types(feishusim.Utterance{Text: "@BotM /relay unmute BotM"}, "BotM is no longer muted", heard)
	st.forAll("the end")

	for i, id := range st.commands {
		if got := st.replies(id); len(got) != 1 {
			t.Errorf("the command answered %q has the answers %q", st.answers[i], got)
		}
	}
	for _, b := range []*program{st.botN, st.botM} {
		st.eachOnce(b.sdkBot)
		b.sdkBot.mu.Lock()
		for _, h := range b.all {
			st.noSteering(b.app.Name, h.Text)
		}
		b.sdkBot.mu.Unlock()
	}
	for id, times := range st.botL.ids() {
		if times != 1 {
			t.Errorf("BotL was given %s %d times", id, times)
		}
	}
	st.botL.mu.Lock()
	defer st.botL.mu.Unlock()
	for _, in := range st.botL.got {
		st.noSteering("BotL", in.Content)
	}
}

// undecided reports whether a sidecar has logged that it came to no decision on an event in time.
func (n *tenant) undecided() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.logs, func(line string) bool { return strings.Contains(line, "no decision on an event in time") })
}

// noSteering checks that what a bot was given is no command, no answer to one and no continue. On a machine that is so
// busy that a sidecar comes to no decision in its time, the bot comes first and is given the event.
func (st *trio) noSteering(bot, text string) {
	st.t.Helper()
	if st.undecided() {
		return
	}
	if strings.Contains(strings.ToLower(text), "/relay") || strings.Contains(text, "/中继") || text == "继续" || text != "" && slices.Contains(st.answers, text) {
		st.t.Errorf("%s was given %q", bot, text)
	}
}
