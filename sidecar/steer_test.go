//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/group"
	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// steered is config with what the program's defaults are for steering.
func (n *tenant) steered(agent string) sidecar.Config {
	cfg := n.config(agent)
	cfg.Steer = sidecar.SteerConfig{AnswerMode: "all", Commands: []string{"/relay", "/中继"}, By: "members", MaxDepth: 10,
		StopNotice: "reaction", ContinueWindow: time.Hour}
	cfg.Mailbox.Dir, cfg.Mailbox.Heartbeat, cfg.Mailbox.HeartbeatTimeout = n.dir+"/mailboxes", time.Second, patience
	return cfg
}

// know waits until each of the sidecars knows that the bots of all are in the group: until then a command may
// name none of the others, and none of them has a turn.
func (n *tenant) know(all ...*running) {
	n.t.Helper()
	n.until("the sidecars know each other", func() bool {
		return !slices.ContainsFunc(all, func(s *running) bool { return len(n.steeredGroup(s).Bots) < len(all) })
	})
}

// haveRead waits until each of the sidecars shows a message in its transcript: what a person said counts only then.
func (n *tenant) haveRead(id string, all ...*running) {
	n.t.Helper()
	n.until("the message is recorded", func() bool {
		return !slices.ContainsFunc(all, func(s *running) bool { return n.shownOf(s, id).Content == "" })
	})
}

// knowStop waits until each of the sidecars knows of the notice that a message stopped. The transcript, which they may
// share, has it once one of them does.
func (n *tenant) knowStop(id string, all ...*running) {
	n.t.Helper()
	for _, s := range all {
		events := n.reads(s, "/v1/events", "0")
		n.until("the sidecar knows of the notice", func() bool {
			events.mu.Lock()
			defer events.mu.Unlock()
			return slices.ContainsFunc(events.lines, func(line string) bool {
				return strings.Contains(line, `"type":"notice"`) && strings.Contains(line, `"act":"stop"`) && strings.Contains(line, id)
			})
		})
		events.leave()
	}
}

// answers waits for what the sidecars answer to a command in the group, and until all in this process have taken in
// what it changed, as the one that answers has: the others read that a moment later. It returns the answer.
func (n *tenant) answers(command string) string {
	n.t.Helper()
	id := n.says(command)
	answer := n.repliesTo(id)
	n.mu.Lock()
	runs := slices.Clone(n.runs)
	n.mu.Unlock()
	n.until("all have taken in what a command changed", func() bool {
		versions := map[string]bool{}
		for _, s := range runs {
			if status, body := n.asks(s, "GET", "/v1/groups/"+n.chat, ""); status == http.StatusOK {
				var g shownGroup
				must(n.t, json.Unmarshal(body, &g))
				versions[g.Version] = true
			}
		}
		return len(versions) <= 1
	})
	return answer.Text
}

func (n *tenant) repliesTo(id string) feishusim.Message {
	n.t.Helper()
	m, err := n.Wait(limited(n.t), func(m feishusim.Message) bool { return m.ParentID == id })
	if err != nil {
		n.t.Fatalf("nobody answered %s: %v", id, err)
	}
	return m
}

// Who asks at once what became of a message hears that it is on its way, and then what became of it.
func TestWhyOfAMessageOnItsWay(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	goes := make(chan struct{})
	a := n.start(n.steered("agent_a"))
	b := n.startTraced(n.steered("agent_b"), func(step string) {
		if step == "arrived" {
			<-goes
		}
	})
	botA, botB := n.bots(apps, a, b)
	n.says("go")
	go_ := n.hears(botA, "go")
	n.hears(botB, "go")
	n.know(a, b)
	n.until("both are online", func() bool {
		return !slices.ContainsFunc(n.steeredGroup(a).Bots, func(b group.Bot) bool { return !b.Online })
	})
	n.reply(botA, go_, apps[1].ID, "are you there?")
	id := n.sees("are you there?").ID
	n.haveRead(id, a)
	why := func() string {
		asked, err := n.Post(feishusim.Utterance{User: n.user.ID, Text: "/relay why", ReplyTo: id})
		must(t, err)
		return n.repliesTo(asked).Text
	}
	if got := why(); !strings.Contains(got, "BotB: on its way") {
		t.Errorf("before it arrives: %q", got)
	}
	close(goes)
	n.hears(botB, "are you there?")
	n.until("it is known to be delivered", func() bool { return strings.Contains(why(), "BotB: delivered at") })
}

// A person's commands are answered once, by one of the bots, reach no bot, and hold at all
// sidecars.
func TestCommandsInTheGroup(t *testing.T) {
	t.Parallel()
	n, apps, _, b, botA, botB := steeredPair(t, asIs)
	if got := n.answers("/relay pause"); !strings.Contains(got, "paused") {
		t.Errorf("the answer is %q", got)
	}
	n.says("go")
	n.hears(botB, "go") // later it is muted
	n.reply(botA, n.hears(botA, "go"), apps[1].ID, "are you there?")
	n.until("BotB is not told", func() bool { return n.stops(b, "paused") == 1 })
	if got := n.answers("/中继 恢复"); !strings.Contains(got, "恢复") {
		t.Errorf("the answer is %q", got)
	}
	n.says("again")
	n.hears(botB, "again")
	n.reply(botA, n.hears(botA, "again"), apps[1].ID, "are you there now?")
	n.hears(botB, "are you there now?")
	if got := n.answers("/relay status"); !strings.Contains(got, "BotA") || !strings.Contains(got, "BotB") {
		t.Errorf("the status is %q", got)
	}
	if got := n.answers("/relay mute @BotB 30m"); !strings.Contains(got, "BotB is muted until") {
		t.Fatalf("the answer is %q", got)
	}
	id := n.says("only for A")
	n.hears(botA, "only for A")
	n.until("BotB is not given it", func() bool { return n.stops(b, "muted") == 1 })
	n.answers("/relay unmute BotB")
	n.says("for both")
	n.hears(botB, "for both")
	if got := n.answers("/relay pasue"); !strings.Contains(got, "pasue") || !strings.Contains(got, "/relay help") {
		t.Errorf("the answer to a slip is %q", got)
	}
	n.eachOnce(botA)
	n.eachOnce(botB)
	var ours []string
	for _, m := range n.Messages(n.chat) {
		if m.ParentID != "" && m.ParentID != id {
			ours = append(ours, m.ParentID)
		}
	}
	slices.Sort(ours)
	if again := slices.Compact(slices.Clone(ours)); len(again) != len(ours) {
		t.Errorf("a command was answered twice: %q", ours)
	}
	for _, bot := range []*sdkBot{botA, botB} {
		bot.mu.Lock()
		for _, h := range bot.all {
			if strings.Contains(h.Text, "/relay") || strings.Contains(h.Text, "/中继") || strings.Contains(h.Text, "paused") {
				t.Errorf("%s was given %q", bot.app.Name, h.Text)
			}
		}
		bot.mu.Unlock()
	}
}

func (n *tenant) reactions(id string) (emojis []string) {
	m, _ := n.Message(id)
	for _, r := range m.Reactions {
		emojis = append(emojis, r.Emoji)
	}
	return emojis
}

// Feishu brings the bots' messages to the other bots itself. What the sidecars write there, a
// notice and an answer, reaches no bot and is in no transcript.
func TestNoticesReachNoBot(t *testing.T) {
	t.Parallel()
	scopes := append(feishusim.DefaultScopes(), feishusim.ScopeGroupBots)
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA", Scopes: scopes},
		feishusim.App{Name: "BotB", Scopes: scopes}, feishusim.App{Name: "BotC", Scopes: scopes})
	var running []*running
	var bots []*sdkBot
	for i, agent := range []string{"agent_a", "agent_b", "agent_c"} {
		cfg := n.steered(agent)
		cfg.Steer.StopNotice, cfg.Limits.MaxDepth = "text", 2
		s := n.start(cfg)
		running, bots = append(running, s), append(bots, n.bot(apps[i], "http://"+s.Gateway().String(), nil))
		n.connected(s)
		bots[i].introduce(t)
	}
	first := n.says("好，开始讨论")
	n.hears(bots[1], "开始")
	n.haveRead(first, running...) // the notice is in its language
	n.reply(bots[0], heard{ID: first}, apps[1].ID, "one, what do you think?")
	n.reply(bots[1], n.hears(bots[1], "one"), apps[0].ID, "two, what do you think?")
	notice := n.sees("继续")
	two := n.sees("two")
	if notice.ParentID != two.ID || !strings.Contains(notice.Text, "BotB") {
		t.Errorf("the notice is %+v", notice)
	}
	answer := n.answers("/relay status")
	// Behind these each bot would have been given the notice and the answer.
	n.says("@BotC say something", apps[2].ID)
	n.reply(bots[2], n.hears(bots[2], "say something"), "", "the end, see you")
	n.hears(bots[0], "the end")
	n.hears(bots[1], "the end")
	for i, bot := range bots {
		n.until("what Feishu brought is dealt with", func() bool {
			return running[i].Status().Queues["outbound"].Unsettled == 0
		})
		bot.mu.Lock()
		for _, h := range bot.all {
			if strings.Contains(h.Text, "继续") || strings.Contains(answer, h.Text) {
				t.Errorf("%s was given %q", bot.app.Name, h.Text)
			}
		}
		bot.mu.Unlock()
	}
	if shown := n.get(running[0], "/v1/transcripts/feishu/"+n.chat); strings.Count(shown, "回复“继续”") != 1 {
		t.Errorf("the transcript shows %s", shown)
	}
	if n := n.stops(running[0], "max_depth"); n != 1 {
		t.Errorf("%d stops at BotA, want 1", n)
	}
}

// A person's message carries what its bot was not given before it, where the group wants that.
func TestContextOfPeoplesMessages(t *testing.T) {
	t.Parallel()
	n, _, _, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.InjectContext = 5 })
	n.answers("/relay mute BotB")
	n.says("the build is red")
	n.hears(botA, "the build is red")
	n.until("BotB is not given it", func() bool { return n.stops(b, "muted") == 1 })
	n.answers("/relay unmute BotB")
	n.says("go on with that")
	h := n.hears(botB, "go on with that")
	if !strings.Contains(h.Text, "Tom: the build is red") || strings.Contains(h.Text, "Tom: hello") || strings.Contains(h.Text, "/relay") {
		t.Errorf("BotB was given %q", h.Text)
	}
	if h := n.hears(botA, "go on with that"); h.Text != "go on with that" {
		t.Errorf("BotA was given %q", h.Text)
	}
	n.says("and then?")
	if h := n.hears(botB, "and then?"); strings.Contains(h.Text, "the build is red") {
		t.Errorf("BotB was given again %q", h.Text)
	}
}

// The operator's budget ends what bots say within an hour, and its end is shown.
func TestBudgetOfAGroup(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfgA, cfgB := n.steered("agent_a"), n.steered("agent_b")
	cfgA.Steer.Budget, cfgB.Steer.Budget = 3, 3
	a, b := n.start(cfgA), n.start(cfgB)
	botA, botB := n.bots(apps, a, b)
	botA.introduce(t)
	botB.introduce(t)
	for i, text := range []string{"first news", "second news", "third news", "fourth news"} {
		ask := fmt.Sprintf("news, please, %d", i)
		n.says(ask)
		n.reply(botA, n.hears(botA, ask), apps[1].ID, text)
		if i < 3 {
			n.hears(botB, text)
		}
	}
	n.until("the fourth stops", func() bool { return n.stops(b, "budget") == 1 })
	fourth := n.sees("fourth news")
	n.until("that is shown", func() bool { return slices.Equal(n.reactions(fourth.ID), []string{"CrossMark"}) })
	n.says("continue")
	n.hears(botB, "fourth news")
	if got := n.answers("/relay budget 2"); !strings.Contains(got, "2") {
		t.Errorf("the answer is %q", got)
	}
	if got := n.answers("/relay budget 50"); !strings.Contains(got, "3") {
		t.Errorf("the answer above the operator's is %q", got)
	}
}
