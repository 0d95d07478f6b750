//go:build unix

package sidecar_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
)

// Two bots that nobody changed hold a conversation: a person asks A, A hands
// over to B, B answers with a card that it streams, A thanks, and there it ends.
// It comes out the same whichever way Feishu delivers bots' messages itself, and
// however B gets its events.
func TestConversationOfUnchangedBots(t *testing.T) {
	t.Parallel()
	for _, native := range []string{"off", "on", "first", "last"} {
		for _, transport := range []string{"long connection", "webhook"} {
			t.Run(native+" over "+transport, func(t *testing.T) {
				t.Parallel()
				converse(t, native, transport == "webhook")
			})
		}
	}
}

func converse(t *testing.T, native string, hook bool) {
	apps := []feishusim.App{{Name: "BotA"}, {Name: "BotB"}}
	if native != "off" {
		for i := range apps {
			apps[i].Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeGroupBots)
		}
	}
	if hook {
		apps[1].EncryptKey = "key of BotB"
	}
	n, apps := newTenant(t, feishusim.Options{}, apps...)
	const later = 50 * time.Millisecond
	switch native {
	case "first": // the bots' calls are answered after Feishu's own events
		for _, route := range []string{"POST /open-apis/im/v1/messages", "POST /open-apis/im/v1/messages/*/reply"} {
			n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: route, Applied: true, Delay: later})
		}
	case "last":
		n.Fault(feishusim.Fault{Kind: feishusim.FaultDelay, Delay: later})
	}
	appA, appB := apps[0], apps[1]

	_, botA := n.behind(appA, n.config("agent_a"), func(b *sdkBot, h heard) {
		switch {
		case strings.Contains(h.Text, "sort this"):
			n.reply(b, h, appB.ID, "please write the sort function")
		case strings.Contains(h.Text, "quicksort"):
			n.reply(b, h, appB.ID, "谢谢，那你再检查一下边界情况？")
		}
	})
	answerB := func(b *sdkBot, h heard) {
		if strings.Contains(h.Text, "please write") && n.mentioned(b, h) {
			n.stream(b, h, "Here is ", "quicksort ", "in Go: func sort(xs []int)")
		}
	}
	joins := n.behind
	if hook {
		joins = n.hooked
	}
	b, botB := joins(appB, n.config("agent_b"), answerB)
	botB.introduce(t)

	n.says("@BotA sort this", appA.ID)
	handed := n.hears(botB, "please write")
	if !n.mentioned(botB, handed) {
		t.Errorf("BotB is not mentioned in what it was given: %+v", handed)
	}
	answer := n.hears(botA, "quicksort")
	if !strings.Contains(answer.Text, "in Go: func sort(xs []int)") || strings.Contains(answer.Text, "Thinking") {
		t.Errorf("BotA was given %q, not the final text", answer.Text)
	}
	thanks := n.sees("边界情况")
	n.until("BotB's sidecar stops the third turn", func() bool {
		return n.stops(b, "max_depth") == 1
	})
	n.eachOnce(botA)
	n.eachOnce(botB, thanks.ID)
	n.recorded([]string{"user Tom: ", "please write", "quicksort", "边界情况"})
}

// An injected event has the tenant's key where Feishu's own event has it: in the header, of the sender, of each
// mention; so has the first event of a bot that Feishu sends nothing.
func TestInjectedEventsHaveTheTenantsKey(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"},
		feishusim.App{Name: "BotB", Scopes: []string{"im:message", "im:chat:readonly"}})
	a, b := n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	n.bot(apps[0], "http://"+a.Gateway().String(), func(b *sdkBot, h heard) { n.reply(b, h, apps[1].ID, "please look") })
	botB := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	n.says("@BotA sort this", apps[0].ID)
	n.hears(botB, "please look")
	keys := regexp.MustCompile(`"tenant_key":"([^"]*)"`)
	own := keys.FindStringSubmatch(string(n.Deliveries()[0].Body))[1]
	given := keys.FindAllStringSubmatch(botB.bodies[0], -1)
	if len(given) != 3 || slices.ContainsFunc(given, func(k []string) bool { return k[1] != own }) {
		t.Errorf("got %q, want %q in each: %s", given, own, botB.bodies[0])
	}
}

// connected waits until the bot's SDK is there.
func (n *tenant) connected(s *running) {
	n.t.Helper()
	n.until("the bot is connected", func() bool {
		return s.Status().Door.Name == "gateway" && n.events(s, "connected") > 0
	})
}

func (n *tenant) get(s *running, path string) string {
	return httpGet(n.t, "http://"+s.Addr().String()+path)
}

// eachOnce checks that the bot's SDK was given no message twice, and none of never.
func (n *tenant) eachOnce(b *sdkBot, never ...string) {
	n.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	times := map[string]int{}
	for _, h := range b.all {
		if times[h.ID]++; times[h.ID] == 2 {
			n.t.Errorf("%s was given %q (%s) twice", b.app.Name, h.Text, h.ID)
		}
	}
	for _, id := range never {
		if times[id] > 0 {
			n.t.Errorf("%s was given %s, which the policy stopped", b.app.Name, id)
		}
	}
}

// recorded checks that the group's transcript has these texts, each once and in
// this order.
func (n *tenant) recorded(want []string) {
	n.t.Helper()
	var got []string
	type line struct {
		Role, Content, Sender string
		TS                    int64
	}
	n.until("the transcript is complete", func() bool {
		var lines []line
		data, err := os.ReadFile(filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl"))
		if err != nil {
			return false
		}
		for text := range strings.Lines(string(data)) {
			var e line
			if json.Unmarshal([]byte(text), &e) != nil {
				n.t.Fatalf("a line of the transcript is no JSON: %q", text)
			}
			lines = append(lines, e)
		}
		// What people say comes by another queue than what bots say: the order is that of ts.
		slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.TS, b.TS) })
		got = nil
		for _, e := range lines {
			got = append(got, fmt.Sprintf("%s %s: %s", e.Role, e.Sender, e.Content))
		}
		return len(got) >= len(want)
	})
	if len(got) != len(want) {
		n.t.Fatalf("the transcript has %d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i, text := range want {
		if !strings.Contains(got[i], text) {
			n.t.Errorf("line %d is %q, want one with %q", i+1, got[i], text)
		}
	}
}

func (n *tenant) metrics(s *running) string { return n.get(s, "/metrics") }

// events is how often the gateway or the connector came upon something.
func (n *tenant) events(s *running, event string) float64 {
	return series(n.metrics(s), `feishu_relay_gateway_events_total{event="`+event+`"}`)
}
