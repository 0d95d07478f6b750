//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/group"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// twoBots is a group of two bots behind gateways that have both heard its first message.
func twoBots(t *testing.T) (n *tenant, a, b *running, botA, botB *sdkBot, first heard) {
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b = n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB = n.bots(apps, a, b)
	botA.introduce(t)
	botB.introduce(t)
	first = heard{ID: n.says("discuss")}
	n.hears(botA, "discuss")
	n.hears(botB, "discuss")
	n.know(a, b)
	return n, a, b, botA, botB, first
}

// A command is no word to the bots: it ends no count of depth.
func TestCommandsEndNoCount(t *testing.T) {
	t.Parallel()
	n, _, b, botA, botB, first := twoBots(t)
	n.reply(botA, first, botB.app.ID, "one, what do you think?")
	n.reply(botB, n.hears(botB, "one"), botA.app.ID, "two, what do you think?")
	two := n.hears(botA, "two")
	n.answers("/relay status")
	n.reply(botA, two, botB.app.ID, "three, what do you think?")
	n.until("the third stops", func() bool { return n.stops(b, "max_depth") == 1 })
}

// A person's stop holds until a person speaks, and a command is not that.
func TestCommandsEndNoStop(t *testing.T) {
	t.Parallel()
	n, _, b, botA, botB, first := twoBots(t)
	n.answers("/relay stop")
	if got := n.answers("/relay status"); !strings.Contains(got, "Somebody stopped the bots") {
		t.Errorf("the status is %q", got)
	}
	n.reply(botA, first, botB.app.ID, "one, what do you think?")
	n.until("it stops", func() bool { return n.stops(b, "stopped_by_person") == 1 })
	n.says("go on with it, please")
	n.reply(botA, n.hears(botA, "go on with it"), botB.app.ID, "two, what do you think?")
	n.hears(botB, "two")
	if got := n.answers("/中继"); strings.Contains(got, "有人再发消息时才会继续") {
		t.Errorf("the status is %q", got)
	}
}

// A continue lifts a stop that was asked for between.
func TestContinueAfterAStop(t *testing.T) {
	t.Parallel()
	n, a, b, botA, botB, first := twoBots(t)
	n.reply(botA, first, botB.app.ID, "one, what do you think?")
	n.reply(botB, n.hears(botB, "one"), botA.app.ID, "two, what do you think?")
	n.reply(botA, n.hears(botA, "two"), botB.app.ID, "three, what do you think?")
	n.until("the third stops", func() bool { return n.stops(b, "max_depth") == 1 })
	n.knowStop(n.sees("three").ID, a, b)
	n.answers("/relay stop")
	n.says("继续")
	n.hears(botB, "three")
}

// What is recalled in a private chat is nobody else's.
func TestPrivateRecallsStayHere(t *testing.T) {
	t.Parallel()
	n, _, _, botA, _, _ := twoBots(t)
	id, err := n.SayPrivate(botA.app.ID, n.user.ID, "between us")
	must(t, err)
	h := n.hears(botA, "between us")
	must(t, n.Recall(id))
	group := n.says("for all")
	must(t, n.Recall(group))
	marks := filepath.Join(n.dir, "relay", "side", "side.jsonl")
	var data []byte
	n.until("the group's recall is shared", func() bool {
		data, err = os.ReadFile(marks)
		return err == nil && strings.Contains(string(data), group)
	})
	if strings.Contains(string(data), h.Chat) || strings.Contains(string(data), id) {
		t.Errorf("the private chat is shared: %s", data)
	}
}

// An older command that comes late undoes no newer one, and one that is too late for anything
// is in the record all the same. The judge can be switched on where the environment has it off.
func TestCommandsByTheirTime(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	cfg := c.config("agent_a")
	cfg.Limits.Check = false
	a := c.start(cfg)
	c.agree("member", func(g group.Group) bool { return len(g.Bots) == 1 }, a)
	now := time.Now()
	says := func(id, text string, ago time.Duration) {
		t.Helper()
		status, body := c.asks(a, "POST", "/v1/inbound", fmt.Sprintf(`{"chat_id":"oc_1","content":%q,"sender":"Ann","message_id":%q,"ts":%d,
			"mentions":[{"key":"@_user_1","name":"BotZ","open_id":"ou_z","agent_name":"agent_z"}]}`, text, id, now.Add(-ago).UnixMilli()))
		if status != 200 && status != 202 || !strings.Contains(string(body), `"reason":"command"`) {
			t.Errorf("%s: %d %s", text, status, body)
		}
	}
	says("om_2", "/relay resume", time.Second)
	says("om_1", "/relay pause", time.Minute)
	says("om_3", "/relay judge on", 0)
	says("om_0", "/relay limit 2", time.Hour)
	c.agree("the commands", func(g group.Group) bool { return g.Settings.Judge }, a)
	if g := c.steeredGroup(a); g.Settings.Paused != nil || g.Settings.Limit == 2 {
		t.Errorf("late commands hold: %+v", g.Settings)
	}
	if _, body := c.asks(a, "GET", "/v1/transcripts/feishu/oc_1", ""); !strings.Contains(string(body), `"content":"/relay limit 2"`) {
		t.Errorf("the late command is not shown: %s", body)
	}
	// One of a clock that is ahead makes no longer pause; it may be behind a mention of a bot that has no sidecar here.
	says("om_4", "@BotZ /relay pause 7d", -30*24*time.Hour)
	c.agree("the pause", func(g group.Group) bool { return g.Settings.Paused != nil }, a)
	if until := c.steeredGroup(a).Settings.Paused.Until; until == nil || time.Until(until.Time()) > 7*24*time.Hour {
		t.Errorf("it is paused until %v", until)
	}
	_, body := c.asks(a, "POST", "/v1/decide", `{"chat_id":"oc_1","content":"/relay status","role":"user","sender":"Ann"}`)
	if !strings.Contains(string(body), `"reason":"command"`) {
		t.Errorf("decide says %s", body)
	}
	_, body = c.asks(a, "POST", "/v1/inbound", `{"chat_id":"oc_2","content":"hi","sender":"Ann","chat_type":"p2p"}`)
	if !strings.Contains(string(body), `"for_me":true`) {
		t.Errorf("of a private chat: %s", body)
	}
}

// A continue changes nothing where nothing can be released: before anything stopped, once a person
// has spoken since, and for bots at which nothing stopped.
func TestContinueOfNothing(t *testing.T) {
	t.Parallel()
	n, a, b, botA, botB, first := twoBots(t)
	nothing := func(command string) {
		t.Helper()
		if got := n.answers(command); got != "Nothing was stopped." {
			t.Errorf("%s: %q", command, got)
		}
	}
	n.reply(botA, first, botB.app.ID, "one, what do you think?")
	n.reply(botB, n.hears(botB, "one"), botA.app.ID, "two, what do you think?")
	two := n.hears(botA, "two")
	nothing("/relay continue")
	n.reply(botA, two, botB.app.ID, "three, what do you think?")
	n.until("the third stops", func() bool { return n.stops(b, "max_depth") == 1 })
	nothing("/relay continue BotA")
	spoke := n.says("thanks, something else")
	n.hears(botA, "something else")
	n.hears(botB, "something else")
	n.haveRead(spoke, a, b)
	nothing("/relay continue")
	if botB.has("three") {
		t.Error("BotB was given what stopped")
	}
}

// The word is an ordinary one where what stopped was recalled.
func TestContinueOfWhatWasRecalled(t *testing.T) {
	t.Parallel()
	n, _, a, b, botA, botB := steeredPair(t, asIs)
	third := n.discuss(botA, botB, "this")
	n.until("it has a notice", func() bool { return len(n.noticeOn(third.ID)) == 1 })
	must(t, n.Recall(third.ID))
	for _, s := range []*running{a, b} { // the transcript, which they share, shows what one of them knows
		n.forgets(s, third.ID, "three this")
	}
	n.says("continue")
	n.hears(botA, "continue")
	n.hears(botB, "continue")
	if botB.given(third.ID) > 0 {
		t.Error("BotB was given what was recalled")
	}
}

// What people said to a bot that is away is withdrawn by a mute and by a stop, as what bots said. What the bot missed is
// in front of the next text, and of nothing else.
func TestPeoplesMessagesThatWait(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	var away atomic.Bool
	tried, got := make(chan string, 1000), make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var in relay.Inbound
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		if away.Load() {
			tried <- in.Content
			http.Error(rw, "away", http.StatusServiceUnavailable)
			return
		}
		got <- in.Content
	}))
	t.Cleanup(hook.Close)
	cfg := n.steered("agent_c")
	cfg.Gateway, cfg.Connector, cfg.InjectURL, cfg.InjectContext = sidecar.GatewayConfig{}, true, hook.URL, 5
	cfg.AppID, cfg.AppSecret = apps[0].ID, sidecar.Secret(apps[0].Secret)
	c := n.start(cfg)
	n.until("the connector is connected", func() bool {
		st := c.Status()
		return st.Feishu != nil && *st.Feishu && st.Identity.OpenID != ""
	})
	next := func(from chan string, want string) string {
		t.Helper()
		for {
			select {
			case text := <-from:
				if strings.Contains(text, want) {
					return text
				}
				if from == got {
					t.Errorf("the bot was given %q, want %q", text, want)
				}
			case <-limited(t).Done():
				t.Fatalf("nothing with %q came", want)
			}
		}
	}
	n.says("hello")
	next(got, "hello")
	away.Store(true)
	n.says("this waits")
	next(tried, "this waits")
	n.answers("/relay mute BotC")
	n.until("it is withdrawn", func() bool { return n.stops(c, "muted") == 1 })
	n.answers("/relay unmute BotC")
	n.says("this waits, too")
	next(tried, "too")
	n.answers("/relay stop")
	n.until("it is withdrawn", func() bool { return n.stops(c, "stopped_by_person") == 1 })
	away.Store(false)
	n.answers("/relay mute BotC")
	n.says("it misses this")
	n.until("it is withheld", func() bool { return n.stops(c, "muted") == 2 })
	n.answers("/relay unmute BotC")
	n.saysFile(feishusim.Utterance{Chat: n.chat}, "small.png", png[:1000])
	if text := next(got, "[图片]"); strings.Contains(text, "misses") {
		t.Errorf("in front of a picture: %q", text)
	}
	n.says("and now?")
	if text := next(got, "and now?"); !strings.Contains(text, "Tom: it misses this\n") {
		t.Errorf("in front of a text: %q", text)
	}
}
