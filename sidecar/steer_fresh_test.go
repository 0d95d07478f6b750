//go:build unix

package sidecar_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"feishu-relay/group"
	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// The first word in a group may be a command: its answer knows all bots. Where nothing was
// stopped, a continue says so.
func TestFirstCommandOfAGroup(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB := n.bots(apps, a, b)
	botA.introduce(t)
	botB.introduce(t)
	for group := 1; ; group++ { // a sidecar waits for the others a moment, which a busy machine may take itself
		got := n.answers("/relay mute BotA BotB 5m")
		if strings.Contains(got, "BotA and BotB are muted until") {
			break
		}
		if group == 20 {
			t.Fatalf("in each of %d groups the first answer is as %q", group, got)
		}
		n.chat = n.AddGroup(fmt.Sprint("Group ", group), n.user.ID, apps[0].ID, apps[1].ID).ID
	}
	if got := n.answers("/relay continue"); got != "Nothing was stopped." {
		t.Errorf("the answer is %q", got)
	}
	n.answers("/relay stop")
	if got := n.answers("/relay continue"); got != "The bots continue." {
		t.Errorf("the answer is %q", got)
	}
}

// A command that is not carried out in time reaches no bot all the same.
func TestASlowCommandReachesNoBot(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	release := make(chan struct{})
	var slow atomic.Bool
	a := n.startTraced(n.steered("agent_a"), func(step string) {
		if step == "sending" && slow.Load() {
			<-release
		}
	})
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	n.connected(a)
	n.says("hello")
	n.hears(botA, "hello")
	slow.Store(true)
	id := n.says("/relay status")
	n.until("its event is decided on", func() bool { return n.events(a, "withheld")+n.events(a, "tap_slow") > 0 })
	slow.Store(false)
	close(release)
	n.repliesTo(id)
	n.says("bye")
	n.hears(botA, "bye")
	n.eachOnce(botA, id)
}

// A person's message that is not for a connector's bot is counted once. Who may change things may
// be told by a union_id, over a connector too.
func TestConnectorWithholds(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	cfg := n.steered("agent_c")
	cfg.Gateway, cfg.Connector = sidecar.GatewayConfig{}, true
	cfg.AppID, cfg.AppSecret = apps[0].ID, sidecar.Secret(apps[0].Secret)
	cfg.Steer.AnswerMode, cfg.Steer.By = "named", n.user.UnionID
	c := n.start(cfg)
	n.until("the connector is connected", func() bool {
		st := c.Status()
		return st.Feishu != nil && *st.Feishu && st.Identity.OpenID != ""
	})
	for i := 1; i <= 3; i++ {
		n.says(fmt.Sprintf("for nobody, %d", i))
		n.until("it is withheld", func() bool { return n.stops(c, "not_for_me") >= i })
	}
	if got := n.answers("/relay pause"); !strings.Contains(got, "are paused") {
		t.Errorf("the answer is %q", got)
	}
	if got := n.stops(c, "not_for_me"); got != 3 {
		t.Errorf("3 messages were withheld, and %d are counted", got)
	}
}

// A muted bot is none of those of which one answers.
func TestOneOfThoseThatHear(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	cfg := func(agent string) sidecar.Config {
		cfg := c.config(agent)
		cfg.Steer.AnswerMode = "one"
		return cfg
	}
	a, b := c.start(cfg("agent_a")), c.start(cfg("agent_b"))
	c.agree("members", func(g group.Group) bool { return len(g.Bots) == 2 }, a, b)
	ask := func(want string) {
		t.Helper()
		_, body := c.asks(b, "POST", "/v1/decide", `{"chat_id":"oc_1","content":"who answers?","role":"user","sender":"Ann"}`)
		if !strings.Contains(string(body), want) {
			t.Errorf("agent_b says %s, want %s", body, want)
		}
	}
	ask(`"allow":false`)
	c.asks(a, "PATCH", "/v1/groups/oc_1", `{"muted":{"agent_a":true}}`)
	c.agree("the mute", func(g group.Group) bool { return len(g.Settings.Muted) == 1 }, a, b)
	ask(`"allow":true`)
}
