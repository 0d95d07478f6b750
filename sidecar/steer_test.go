//go:build unix

package sidecar_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// steered is config with what the program's defaults are for steering.
func (n *tenant) steered(agent string) sidecar.Config {
	cfg := n.config(agent)
	n.steers(&cfg)
	return cfg
}

// steers sets those defaults.
func (n *tenant) steers(cfg *sidecar.Config) {
	cfg.Steer = sidecar.SteerConfig{AnswerMode: "all", Commands: []string{"/relay", "/中继"}, By: "members", MaxDepth: 10,
		StopNotice: "reaction", ContinueWindow: time.Hour}
	cfg.Mailbox.Dir, cfg.Mailbox.Heartbeat, cfg.Mailbox.HeartbeatTimeout = n.dir+"/mailboxes", time.Second, patience
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
		s, bot := n.behind(apps[i], cfg, nil)
		bot.introduce(t)
		running, bots = append(running, s), append(bots, bot)
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

// A person's message carries what its bot was not given before it, where the group wants that, without what was
// recalled, and once.
func TestContextOfPeoplesMessages(t *testing.T) {
	t.Parallel()
	n, _, _, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.InjectContext = 5 })
	n.answers("/relay mute BotB")
	asked := n.says("the build is red")
	n.hears(botA, "the build is red")
	for _, text := range []string{"a cherry", "a fig"} {
		n.reply(botA, heard{ID: asked}, "", text)
	}
	n.until("BotB is not given them", func() bool { return n.stops(b, "muted") == 3 })
	cherry := n.sees("a cherry").ID
	must(t, n.Recall(cherry))
	n.until("it is recalled", func() bool { return n.shownOf(b, cherry).Recalled })
	n.answers("/relay unmute BotB")
	n.says("go on with that")
	text := n.hears(botB, "go on with that").Text
	for part, has := range map[string]bool{"Tom: the build is red": true, "a fig": true, "Tom: hello": false, "/relay": false, "cherry": false} {
		if strings.Contains(text, part) != has {
			t.Errorf("BotB was given %q; %q is in it: want %t", text, part, has)
		}
	}
	if h := n.hears(botA, "go on with that"); h.Text != "go on with that" {
		t.Errorf("BotA was given %q", h.Text)
	}
	n.says("and then?")
	if h := n.hears(botB, "and then?"); strings.Contains(h.Text, "the build is red") {
		t.Errorf("BotB was given again %q", h.Text)
	}
}

// What waits for a bot that is away, what people said, is withdrawn by a mute and by a stop, as what bots said. What
// the bot missed is in front of the next text, and of nothing else.
func TestPeoplesMessagesThatWait(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	c, botC := n.connector(apps[0], func(cfg *sidecar.Config) {
		n.steers(cfg)
		cfg.InjectContext = 5
	})
	var away atomic.Bool
	takes := botC.hook.Config.Handler
	botC.hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		takes.ServeHTTP(w, r)
	})
	n.says("hello")
	botC.gets("hello")
	away.Store(true)
	for _, step := range []struct{ command, reason, back string }{
		{"/relay mute BotC", "muted", "/relay unmute BotC"}, {"/relay stop", "stopped_by_person", "/relay continue"},
	} {
		n.says("this waits")
		n.until("it waits", func() bool { return n.waits(c) == 1 })
		n.answers(step.command)
		n.until("it is withdrawn", func() bool { return n.stops(c, step.reason) == 1 && n.waits(c) == 0 })
		n.answers(step.back)
	}
	away.Store(false)
	n.answers("/relay mute BotC")
	n.says("it misses this")
	n.until("it is withheld", func() bool { return n.stops(c, "muted") == 2 })
	n.answers("/relay unmute BotC")
	n.saysFile(feishusim.Utterance{Chat: n.chat}, "small.png", png[:1000])
	if in := botC.gets("[图片]"); strings.Contains(in.Content, "misses") {
		t.Errorf("in front of a picture: %q", in.Content)
	}
	n.says("and now?")
	if in := botC.gets("and now?"); !strings.Contains(in.Content, "Tom: it misses this\n") {
		t.Errorf("in front of a text: %q", in.Content)
	}
}

// A command that is not carried out in time reaches no bot all the same.
func TestASlowCommandReachesNoBot(t *testing.T) {
	for step, what := range map[string]string{"sending": "the answer", "taken": "the loop"} {
		t.Run(what, func(t *testing.T) { t.Parallel(); slowCommand(t, step) })
	}
}

func slowCommand(t *testing.T, slowStep string) {
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	hangs, release := make(chan struct{}, 8), make(chan struct{})
	var slow atomic.Bool
	a := n.startTraced(n.steered("agent_a"), func(step string) {
		if step == slowStep && slow.Load() {
			hangs <- struct{}{}
			<-release
		}
	})
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	n.connected(a)
	n.says("hello")
	n.hears(botA, "hello")
	slow.Store(true)
	if slowStep == "taken" { // by the loop
		if _, err := a.Send(t.Context(), relay.Outbound{ChatID: relay.ChatID(n.chat), Content: "I wait."}); err != nil {
			t.Fatal(err)
		}
		<-hangs
	}
	id := n.says("/relay status")
	if slowStep == "taken" { // metrics need the loop
		time.Sleep(feishu.AckHold + time.Second)
	} else {
		n.until("it is decided on", func() bool { return n.events(a, "withheld")+n.events(a, "tap_slow") > 0 })
	}
	slow.Store(false)
	close(release)
	n.repliesTo(id)
	n.says("bye")
	n.hears(botA, "bye")
	n.eachOnce(botA, id)
}
