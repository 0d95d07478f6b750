//go:build unix

package sidecar_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// steered is config with what the program's defaults are for steering.
func (n *tenant) steered(agent string) sidecar.Config {
	cfg := n.config(agent)
	cfg.Steer = sidecar.SteerConfig{AnswerMode: "all", Commands: []string{"/relay", "/中继"}, By: "members", MaxDepth: 10,
		StopNotice: "reaction", StopEmoji: "CrossMark", ContinueWindow: time.Hour}
	cfg.Mailbox.Dir, cfg.Mailbox.Heartbeat, cfg.Mailbox.HeartbeatTimeout = n.dir+"/mailboxes", time.Second, patience
	return cfg
}

// answers waits for what the sidecars answer to a command in the group, and returns it.
func (n *tenant) answers(command string) string {
	n.t.Helper()
	id := n.says(command)
	answer := n.repliesTo(id)
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
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB := n.bot(apps[0], "http://"+a.Gateway().String(), nil), n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	botA.introduce(t)
	botB.introduce(t)
	n.says("hello") // each sidecar has seen the group
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	if got := n.answers("/relay pause"); !strings.Contains(got, "paused") {
		t.Errorf("the answer is %q", got)
	}
	n.reply(botA, heard{ID: n.says("go")}, apps[1].ID, "are you there?")
	n.until("BotB is not told", func() bool { return n.stops(b, "paused") == 1 })
	if got := n.answers("/中继 恢复"); !strings.Contains(got, "恢复") {
		t.Errorf("the answer is %q", got)
	}
	n.reply(botA, heard{ID: n.says("again")}, apps[1].ID, "are you there now?")
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
	if got := n.answers("/relay pasue"); !strings.Contains(got, "pause") {
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

// A round that stops is shown with one reaction, and a person's word releases it.
func TestStopIsShownAndContinued(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB := n.bot(apps[0], "http://"+a.Gateway().String(), nil), n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	botA.introduce(t)
	botB.introduce(t)
	first := n.says("discuss")
	n.hears(botB, "discuss")
	n.reply(botA, heard{ID: first}, apps[1].ID, "one, what do you think?")
	n.reply(botB, n.hears(botB, "one"), apps[0].ID, "two, what do you think?")
	n.reply(botA, n.hears(botA, "two"), apps[1].ID, "three, what do you think?")
	n.until("the third stops", func() bool { return n.stops(b, "max_depth") == 1 })
	third := n.sees("three")
	n.until("it has a reaction", func() bool { return len(n.reactions(third.ID)) > 0 })
	if got := n.reactions(third.ID); len(got) != 1 || got[0] != "CrossMark" {
		t.Errorf("the reactions are %q", got)
	}
	n.says("继续。")
	h := n.hears(botB, "three")
	n.reply(botB, h, apps[0].ID, "four, what do you think?")
	n.hears(botA, "four")
	n.eachOnce(botA)
	n.eachOnce(botB)
	for _, bot := range []*sdkBot{botA, botB} {
		bot.mu.Lock()
		for _, h := range bot.all {
			if strings.Contains(h.Text, "继续") {
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
