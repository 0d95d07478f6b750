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

// Anybody may let the bots go on, whoever may steer them. It says where it cannot be, and forgets nothing then.
// The group is told of the newest stop also without notices.
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
}
