//go:build unix

package sidecar_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/verify"
	"feishu-relay/sidecar"
)

// onlyB has Feishu bring what people say to BotB alone.
func (p *pair) onlyB() {
	p.t.Helper()
	_, err := p.UpdateApp(feishusim.App{ID: p.apps[0].ID, Scopes: []string{"im:message", "im:chat:readonly", "bot:basic_info"}})
	must(p.t, err)
}

// answered reports whether a bot replied to a message.
func (n *tenant) answered(b *sdkBot, id string) bool {
	return slices.ContainsFunc(n.Messages(n.chat), func(m feishusim.Message) bool { return m.ParentID == id && m.Sender == b.app.ID })
}

// A sidecar is killed at each step of answering a command: while it is away there is one answer at
// most, and one once it is back. What it has claimed it alone answers.
func TestAnswersUnderKills(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, steps := range [][]string{{"marked"}, {"sending"}, {"shown"}, {"sending", "sending", "shown", "shown"}} {
		t.Run(strings.Join(steps, " "), func(t *testing.T) {
			t.Parallel()
			n := newPair(t, func(*sidecar.Config) {})
			n.onlyB()
			n.again(steps[0] + ":1")
			id := n.says("/relay limit 5")
			for !n.b.isDead() {
				n.until("BotB's sidecar dies, or BotA's answers", func() bool { return n.b.isDead() || n.answered(n.botA, id) })
				if !n.b.isDead() { // it was slow and lost its turn
					id = n.says("/relay limit 5")
				}
			}
			for i, step := range steps {
				n.until("BotB's sidecar dies, or BotA's answers", func() bool { return n.b.isDead() || n.answered(n.botA, id) })
				if !n.b.isDead() { // it was back too late
					break
				}
				if got := n.replies(id); len(got) > 1 || len(got) > 0 && step == "sending" && !n.answered(n.botA, id) {
					t.Errorf("killed at %s number %d, the group was shown %q", step, i+1, got)
				}
				if i+1 < len(steps) {
					n.b.start(steps[i+1] + ":1") // it goes on before its bot is back
					_, err := n.b.url(limited(t))
					must(t, err)
					n.reconnect()
				}
			}
			n.again("")
			n.repliesTo(id)
			n.noted()
			if status := n.answers("/relay status"); !strings.Contains(status, "limit 5") { // what is behind it has been done
				t.Errorf("the status is %q", status)
			}
			want := 1
			if slices.Contains(steps, "shown") && n.answered(n.botA, id) && n.answered(n.botB, id) {
				want = 2 // BotA could not know what was shown
			}
			if got := n.replies(id); len(got) != want || !strings.Contains(got[0], "The limit is 5") {
				t.Errorf("the group was shown %q", got)
			}
			if a, b := n.botA.given(id), n.botB.given(id); a+b > 0 {
				t.Errorf("the command was given to BotA %d times, to BotB %d times", a, b)
			}
		})
	}
}

// Of two bots behind gateways one is given each message of a person, as the event that Feishu sent,
// while the sidecar whose turn it is gets killed. Where that died between the delivery and its note of
// it, the message is given once more, to the other bot or to the same one, whoever claims it first.
func TestOneOfTwoGatewaysUnderKills(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, step := range []string{"claimed", "given", ""} {
		t.Run("at "+step, func(t *testing.T) {
			t.Parallel()
			n := newPair(t, func(*sidecar.Config) {})
			n.answers("/relay answer one")
			n.noted()
			n.reply(n.botB, heard{ID: n.says("@BotB hi there", n.apps[1].ID)}, "", "at your service")
			n.transcribed("hello", "hi there", "at your service") // so BotB has spoken to the person last
			n.again(strings.TrimPrefix(step+":1", ":1"))          // without a step to no point
			first := n.says("who answers?")
			if step == "" { // at any time
				<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
				n.b.kill()
				n.b.dies(t)
			}
			for !n.b.isDead() {
				n.until("BotB's sidecar dies, or BotA is given the message", func() bool {
					return n.b.isDead() || n.botA.given(first) > 0
				})
				if !n.b.isDead() { // it was slow and lost its turn
					first = n.says("who answers now?")
				}
			}
			n.until("a bot is given it", func() bool { return n.botA.given(first)+n.botB.given(first) > 0 })
			n.again("")
			second := n.says("and who this?")
			n.until("a bot is given the second", func() bool { return n.botA.given(second)+n.botB.given(second) > 0 })
			third := n.says("@BotA @BotB the end", n.apps[0].ID, n.apps[1].ID)
			n.hears(n.botA, "the end")
			n.hears(n.botB, "the end")
			a, b := n.botA.given(first), n.botB.given(first)
			switch {
			case a > 1 || a+b > 2, step == "claimed" && (a != 1 || b != 0), step == "given" && b < 1:
				t.Errorf("killed at %q: BotA was given the message %d times, BotB %d times", step, a, b)
			}
			if a, b := n.botA.given(second), n.botB.given(second); a+b != 1 {
				t.Errorf("with all there, BotA was given a message %d times, BotB %d times", a, b)
			}
			for _, bot := range []*sdkBot{n.botA, n.botB} {
				n.asSent(bot, first, second, third)
			}
		})
	}
}
