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
	"feishu-relay/relay"
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

func asIs(*sidecar.Config) {}

// The word is an ordinary message where nothing was stopped, where another bot is named, where a person
// has spoken since, and where the window is over.
func TestContinueThatIsAnOrdinaryMessage(t *testing.T) {
	t.Parallel()
	t.Run("nothing stopped", func(t *testing.T) {
		t.Parallel()
		n, _, _, _, botA, botB := steeredPair(t, asIs)
		n.says("go on")
		n.hears(botA, "go on")
		n.hears(botB, "go on")
	})
	t.Run("another bot, then another round", func(t *testing.T) {
		t.Parallel()
		n, apps, a, b, botA, botB := steeredPair(t, asIs)
		third := n.discuss(botA, botB, "this")
		n.until("it has a notice", func() bool { return len(n.noticeOn(third.ID)) == 1 })
		spoke := n.says("@BotA continue", apps[0].ID) // nothing stopped there; a person has spoken
		n.hears(botA, "continue")
		n.haveRead(spoke, a, b)
		n.says("Continue!")
		n.hears(botA, "Continue!")
		n.hears(botB, "Continue!")
		if botB.given(third.ID) > 0 {
			t.Error("it was released")
		}
	})
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		n, _, _, _, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.Steer.ContinueWindow = time.Millisecond })
		third := n.discuss(botA, botB, "this")
		n.until("it has a notice", func() bool { return len(n.noticeOn(third.ID)) == 1 })
		n.says("continue")
		n.hears(botB, "continue")
		if botB.given(third.ID) > 0 {
			t.Error("it was released")
		}
	})
}

// What stopped at a bot that is muted is not released, and is not once that ends and its sidecar
// takes in the marks again.
func TestContinueReleasesNothingMuted(t *testing.T) {
	t.Parallel()
	n, _, _, b, botA, botB := steeredPair(t, asIs)
	third := n.discuss(botA, botB, "this")
	n.until("it has a notice", func() bool { return len(n.noticeOn(third.ID)) == 1 })
	n.answers("/relay mute BotB")
	n.answers("/relay continue")
	n.answers("/relay unmute BotB")
	b.stop()
	b = n.start(n.steered("agent_b"))
	second := n.bot(botB.app, "http://"+b.Gateway().String(), nil)
	n.connected(b)
	n.says("and now?")
	n.hears(second, "and now?")
	if botB.given(third.ID)+second.given(third.ID) > 0 {
		t.Error("what stopped at a muted bot was released")
	}
}

// At defaults calls and events pass byte for byte, over a long connection and a webhook. The sidecars' calls
// and what their bots are given are those of sidecars that steer nothing, but for one reaction on what stopped.
func TestNobodySteers(t *testing.T) {
	t.Parallel()
	run := func(steering bool) (calls, events []string) {
		n := newWired(t, func(cfg *sidecar.Config) {
			if !steering {
				cfg.Steer = sidecar.SteerConfig{AnswerMode: "all", StopNotice: "off"}
			}
		})
		b, botA, botB := n.b, n.botA, n.botB
		third := n.discuss(botA, botB, "this")
		n.until("it stops", func() bool { return n.stops(b, "max_depth") == 1 })
		if steering {
			n.until("it is shown", func() bool { return len(n.noticeOn(third.ID)) == 1 })
		}
		n.says("thanks")
		n.hears(botA, "thanks")
		n.hears(botB, "thanks")
		n.unchanged(steering)
		names := strings.NewReplacer(n.chat, "CHAT")
		for _, r := range n.Requests() {
			path := names.Replace(strings.SplitN(r.URI, "?", 2)[0])
			if i := strings.Index(path, "/om_"); i >= 0 {
				path = path[:i] + "/MESSAGE" + strings.TrimLeft(path[i+1:], "om_x0123456789abcdef")
			}
			if r.Method == "POST" && (strings.HasSuffix(path, "/reply") || strings.HasSuffix(path, "/reactions") || strings.HasSuffix(path, "/messages")) {
				calls = append(calls, r.Method+" "+path)
			}
		}
		for _, bot := range []*sdkBot{botA, botB} {
			bot.mu.Lock()
			for _, h := range bot.all {
				events = append(events, fmt.Sprintf("%s %s %s %s %d", bot.app.Name, h.ChatType, h.SenderType, strings.Join(strings.Fields(h.Text), " "), len(h.Mentions)))
			}
			bot.mu.Unlock()
		}
		return calls, events
	}
	plainCalls, plainEvents := run(false)
	calls, events := run(true)
	reactions := 0
	var others []string
	for _, call := range calls {
		if strings.HasSuffix(call, "/reactions") {
			reactions++
			continue
		}
		others = append(others, call)
	}
	if reactions != 1 || strings.Join(others, "\n") != strings.Join(plainCalls, "\n") {
		t.Errorf("the calls are\n%s\nwithout steering\n%s", strings.Join(calls, "\n"), strings.Join(plainCalls, "\n"))
	}
	if strings.Join(events, "\n") != strings.Join(plainEvents, "\n") {
		t.Errorf("the events are\n%s\nwithout steering\n%s", strings.Join(events, "\n"), strings.Join(plainEvents, "\n"))
	}
}

// localPair is a group of two bots on the local API, that know each other: what reaches agent_b is in w.
type localPair struct {
	*circle
	a, b *running
	w    *worker
	last int64
}

// newLocalPair starts them; change changes agent_b's settings, at whom each message of a bot stops.
func newLocalPair(t *testing.T, backend string, change func(*sidecar.Config)) *localPair {
	t.Helper()
	p := &localPair{circle: newCircle(t, backend), w: newWorker(t, nil)}
	cfg := p.config("agent_b")
	cfg.InjectURL, cfg.Limits.MaxDepth, cfg.Limits.Threshold = p.w.hook.URL, 1, 0
	change(&cfg)
	p.a, p.b = p.start(p.config("agent_a")), p.start(cfg)
	p.agree("they know each other", withBots(2), p.a, p.b)
	return p
}

// next is a time; no two messages have the same.
func (p *localPair) next() int64 {
	p.last = max(p.last+1, time.Now().UnixMilli())
	return p.last
}

// says has agent_b report what a person said, and returns the answer.
func (p *localPair) says(id, text, thread string) string {
	p.t.Helper()
	return p.heard(p.b, id, text, fmt.Sprintf(`"thread_id":%q,"ts":%d`, thread, p.next()))
}

// heard has a bot report what a person said, with more fields, and returns the answer.
func (p *localPair) heard(s *running, id, text, more string) string {
	p.t.Helper()
	status, body := p.posts(s, "/v1/inbound", fmt.Sprintf(`{"chat_id":"oc_1","content":%q,"sender":"Tom","message_id":%q,%s}`,
		text, id, more))
	if status != http.StatusAccepted {
		p.t.Fatalf("%s is answered %d: %s", text, status, body)
	}
	return body
}

// bot has agent_a say something.
func (p *localPair) bot(id, thread string) {
	p.t.Helper()
	status, body := p.posts(p.a, "/v1/outbound", fmt.Sprintf(`{"chat_id":"oc_1","content":"I say %s","message_id":%q,"thread_id":%q,"ts":%d}`,
		id, id, thread, p.next()))
	if status != http.StatusAccepted {
		p.t.Fatalf("%s is answered %d: %s", id, status, body)
	}
}

// stopped waits until n messages have stopped at agent_b for a reason.
func (p *localPair) stopped(why string, n int) {
	p.t.Helper()
	p.until(fmt.Sprint(n, " stopped with ", why), func() bool { return p.stops(p.b, why) == n })
}

// wanted is how many notices the group is to be shown, or was.
func (p *localPair) wanted() int {
	notices := map[string]bool{}
	for _, r := range p.records() {
		if r.Kind == group.KindNotice && r.Act == group.ActStop {
			notices[r.ID] = true
		}
	}
	return len(notices)
}

// noticed waits until n stops were shown.
func (p *localPair) noticed(n int) {
	p.t.Helper()
	p.until("it has a notice", func() bool {
		return p.wanted() == n
	})
}

// got waits until agent_b is given a message that was released.
func (p *localPair) got(id string) {
	p.t.Helper()
	select {
	case in := <-p.w.heard:
		data, _ := json.Marshal(in.Metadata)
		if string(in.Metadata["message_id"].(string)) != id || !strings.Contains(string(data), `"tier":"released"`) ||
			!strings.Contains(string(data), `"depth":1`) {
			p.t.Errorf("the bot was given %s, want %s", data, id)
		}
	case <-limited(p.t).Done():
		p.t.Fatalf("%s is not released", id)
	}
}

// replied commands something, and waits for an answer with a text.
func (p *localPair) replied(id, command, thread, want string) {
	p.t.Helper()
	p.says(id, command, thread)
	if got := p.answered("agent_b", id); !strings.Contains(got, want) {
		p.t.Errorf("%s is answered %s, want %q", command, got, want)
	}
}

// Each conversation has its own round: a continue in a topic releases what stopped there, and leaves
// what stopped in the chat for another one. What is released says so.
func TestContinueInATopic(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			p := newLocalPair(t, backend, asIs)
			p.says("om_1", "hello", "")
			p.says("om_2", "hello", "omt_1")
			p.bot("om_chat", "")
			p.noticed(1)
			p.bot("om_topic", "omt_1")
			p.noticed(2)
			p.says("om_3", "/relay continue", "omt_1")
			p.got("om_topic")
			if _, body := p.asks(p.b, "POST", "/v1/decide", `{"chat_id":"oc_1","content":"继续！","role":"user","sender":"Tom"}`); !strings.Contains(string(body), `"reason":"continue"`) {
				t.Errorf("decide says of the word %s", body)
			}
			if body := p.says("om_4", "继续！", ""); !strings.Contains(body, `"reason":"continue"`) {
				t.Errorf("the word is answered %s", body)
			}
			p.got("om_chat")
			if body := p.says("om_5", "go on", ""); !strings.Contains(body, `"for_me":true`) {
				t.Errorf("the second word is answered %s", body)
			}
			p.b.stop()
			cfg := p.config("agent_b")
			cfg.InjectURL, cfg.Limits.MaxDepth, cfg.Limits.Threshold = p.w.hook.URL, 1, 0
			p.b = p.start(cfg)
			p.bot("om_later", "")
			p.noticed(3)
			if left := len(p.w.heard); left > 0 {
				t.Errorf("%d messages were released twice", left)
			}
		})
	}
}

// A round has one notice, whether its limit or the budget comes first.
func TestOneNoticeARound(t *testing.T) {
	t.Parallel()
	p := newLocalPair(t, "file", asIs)
	p.says("om_1", "hello", "omt_1")
	p.bot("om_2", "omt_1")
	p.stopped("max_depth", 1)
	p.patch(p.b, `{"budget":1}`)
	p.bot("om_3", "omt_1")
	p.stopped("budget", 1)
	p.noticed(1) // first the limit, then the budget
	p.says("om_4", "hello", "omt_2")
	p.bot("om_5", "omt_2") // the first notice that the budget is spent
	p.stopped("budget", 2)
	p.patch(p.b, `{"budget":0}`)
	p.bot("om_6", "omt_2")
	p.stopped("max_depth", 2)
	p.noticed(2) // first the budget, then the limit
}

// Anybody may let the bots go on, whoever may steer them. It says where it cannot be, and forgets nothing then. It is
// about the conversation that it is said in, and the group is told of the newest stop also without notices.
func TestContinueByAnybody(t *testing.T) {
	t.Parallel()
	p := newLocalPair(t, "file", func(cfg *sidecar.Config) { cfg.Steer.By, cfg.Steer.StopNotice = "ou_boss", "off" })
	p.says("om_1", "hello", "")
	p.bot("om_2", "")
	p.bot("om_3", "")
	p.stopped("max_depth", 2)
	p.until("the newest stop is told", func() bool {
		stop := p.steeredGroup(p.b).LastStop
		return stop != nil && stop.MessageID == "om_3" && stop.Reason == "max_depth" && slices.Equal(stop.Bots, []relay.AgentName{"agent_b"})
	})
	p.patch(p.b, `{"paused":true}`)
	p.replied("om_4", "/relay continue", "", "are paused")
	p.patch(p.b, `{"paused":false,"muted":{"agent_b":true}}`)
	p.replied("om_5", "/relay continue @agent_b", "", "Muted")
	p.replied("om_6", "/中继 continue", "", "已静音")
	p.patch(p.b, `{"muted":{"agent_b":false}}`)
	p.replied("om_7", "/relay continue", "omt_1", "Nothing was stopped")
	if status, body := p.asks(p.b, "POST", "/v1/groups/oc_1/continue", `{"bots":["agent_b"]}`); status != http.StatusOK {
		t.Errorf("over the API: %d %s", status, body)
	}
	p.got("om_2")
	p.got("om_3")

	p.patch(p.b, `{"limit":2,"threshold":1}`)
	p.says("om_8", "hello", "")
	p.says("om_9", "hello", "omt_1")
	for _, thread := range []string{"", "omt_1"} {
		for _, id := range []string{"1", "2"} {
			p.bot("om_c"+thread+id, thread)
		}
	}
	p.stopped("max_depth", 4)
	p.replied("om_10", "/relay continue", "omt_1", "The bots continue")
	p.until("what stopped in the topic is released", func() bool { return p.w.ids()["om_comt_12"] == 1 })
	p.bot("om_11", "")
	p.until("it is decided", func() bool { return p.stops(p.b, "max_depth") == 5 || p.w.ids()["om_11"] > 0 })
	if p.w.ids()["om_11"]+p.w.ids()["om_2"] != 1 {
		t.Error("a continue in a topic let the chat's bots go on")
	}
}
