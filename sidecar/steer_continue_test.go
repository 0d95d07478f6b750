//go:build unix

package sidecar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// steeredPair starts two sidecars in this process, whose bots know each other.
func steeredPair(t *testing.T, change func(*sidecar.Config)) (n *tenant, apps []feishusim.App, a, b *running, botA, botB *sdkBot) {
	t.Helper()
	n, apps = newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfgA, cfgB := n.steered("agent_a"), n.steered("agent_b")
	change(&cfgA)
	change(&cfgB)
	a, b = n.start(cfgA), n.start(cfgB)
	botA, botB = n.bots(apps, a, b)
	botA.introduce(t)
	botB.introduce(t)
	n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.know(a, b)
	return n, apps, a, b, botA, botB
}

// At defaults events pass byte for byte, over a long connection and a webhook. The sidecars' calls and what their bots
// are given are those of sidecars that steer nothing, but for one reaction on what stopped.
func TestNobodySteers(t *testing.T) {
	t.Parallel()
	run := func(steering bool) (calls, events []string) {
		n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB", EncryptKey: "key of BotB"})
		cfgA, cfgB := n.steered("agent_a"), n.steered("agent_b")
		if !steering {
			cfgA.Steer = sidecar.SteerConfig{AnswerMode: "all", StopNotice: "off"}
			cfgB.Steer = cfgA.Steer
		}
		_, botA := n.behind(apps[0], cfgA, nil)
		b, botB := n.hooked(apps[1], cfgB, nil)
		bots := []*sdkBot{botA, botB}
		var said []string
		say := func(text string) {
			said = append(said, n.says(text))
			for _, bot := range bots {
				n.hears(bot, text)
			}
		}
		botA.introduce(t)
		botB.introduce(t)
		say("hello")
		third := n.discuss(botA, botB, "this")
		n.until("it stops, and is shown where anybody may steer", func() bool {
			return n.stops(b, "max_depth") == 1 && (!steering || len(n.noticeOn(third.ID)) == 1)
		})
		say("thanks")
		for _, r := range n.Requests() {
			path, _, _ := strings.Cut(strings.ReplaceAll(r.URI, n.chat, "CHAT"), "?")
			action := path[strings.LastIndex(path, "/")+1:]
			if r.Method == "POST" && slices.Contains([]string{"reply", "reactions", "messages"}, action) {
				calls = append(calls, action)
			}
		}
		for _, bot := range bots {
			n.asSent(bot, said...)
			bot.mu.Lock()
			for _, h := range bot.all {
				events = append(events, fmt.Sprintf("%s %s %s %s %d", bot.app.Name, h.ChatType, h.SenderType,
					strings.Join(strings.Fields(h.Text), " "), len(h.Mentions)))
			}
			bot.mu.Unlock()
		}
		return calls, events
	}
	plainCalls, plainEvents := run(false)
	calls, events := run(true)
	others := slices.DeleteFunc(slices.Clone(calls), func(call string) bool { return call == "reactions" })
	if len(calls) != len(others)+1 || !slices.Equal(others, plainCalls) {
		t.Errorf("the calls are %q, without steering %q", calls, plainCalls)
	}
	if !slices.Equal(events, plainEvents) {
		t.Errorf("the events are %q, without steering %q", events, plainEvents)
	}
}
