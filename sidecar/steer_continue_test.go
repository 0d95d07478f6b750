//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	botA, botB = n.bot(apps[0], "http://"+a.Gateway().String(), nil), n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	n.connected(a)
	n.connected(b)
	botA.introduce(t)
	botB.introduce(t)
	n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.know(a, b)
	return n, apps, a, b, botA, botB
}

func asIs(*sidecar.Config) {}

// released waits until a bot was given a message that had stopped.
func (n *tenant) released(b *sdkBot, m feishusim.Message) {
	n.t.Helper()
	n.until("what stopped is released", func() bool { return b.given(m.ID) == 1 })
}

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

// Without notices the command releases, also over a restart no more than once.
func TestContinueByCommand(t *testing.T) {
	t.Parallel()
	n, _, _, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.Steer.StopNotice = "off" })
	third := n.discuss(botA, botB, "this")
	n.until("it stops", func() bool { return n.stops(b, "max_depth") == 1 })
	n.answers("/relay continue @BotB")
	n.released(botB, third)
	if got := n.reactions(third.ID); len(got) > 0 {
		t.Errorf("the reactions are %q", got)
	}
	b.stop()
	b = n.start(func() sidecar.Config {
		cfg := n.steered("agent_b")
		cfg.Steer.StopNotice = "off"
		return cfg
	}())
	again := n.bot(botB.app, "http://"+b.Gateway().String(), nil)
	n.connected(b)
	n.says("and now?")
	n.hears(again, "and now?")
	if again.given(third.ID) > 0 {
		t.Error("it was released again")
	}
}

// Who spends the group's budget is stopped, which the group is shown once; a person's word releases what
// stopped all the same.
func TestContinueOverTheBudget(t *testing.T) {
	t.Parallel()
	n, apps, _, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) { cfg.Limits.MaxDepth, cfg.Limits.Threshold = 100, 100 })
	n.answers("/relay budget 2")
	var last []feishusim.Message
	for i := range 4 {
		text := fmt.Sprintf("number %d", i+1)
		n.reply(botA, heard{ID: n.says("again")}, apps[1].ID, text)
		last = append(last, n.sees(text))
	}
	n.until("two stop", func() bool { return n.stops(b, "budget") == 2 })
	n.until("it has a notice", func() bool { return len(n.noticeOn(last[2].ID)) == 1 })
	if got := len(n.reactions(last[2].ID)) + len(n.reactions(last[3].ID)); got != 1 {
		t.Errorf("the group was shown %d times that its budget is spent", got)
	}
	n.answers("/relay continue")
	n.released(botB, last[3])
	if botB.given(last[2].ID) > 0 {
		t.Error("what stopped before the last round was released")
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

// Each conversation has its own round: a continue in a topic releases what stopped there, and leaves
// what stopped in the chat for another one. What is released says so.
func TestContinueInATopic(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			c := newCircle(t, backend)
			w := newWorker(t, nil)
			cfg := c.config("agent_b")
			cfg.InjectURL, cfg.Limits.MaxDepth, cfg.Limits.Threshold = w.hook.URL, 1, 0
			a, b := c.start(c.config("agent_a")), c.start(cfg)
			c.agree("they know each other", withBots(2), a, b)
			var last int64
			next := func() int64 { // no two messages have one time
				last = max(last+1, time.Now().UnixMilli())
				return last
			}
			says := func(id, text, thread string) string {
				t.Helper()
				status, body := c.posts(b, "/v1/inbound", fmt.Sprintf(`{"chat_id":"oc_1","content":%q,"sender":"Tom","message_id":%q,"thread_id":%q,"ts":%d}`,
					text, id, thread, next()))
				if status != http.StatusAccepted {
					t.Fatalf("%s is answered %d: %s", text, status, body)
				}
				return body
			}
			bot := func(id, thread string) {
				t.Helper()
				status, body := c.posts(a, "/v1/outbound", fmt.Sprintf(`{"chat_id":"oc_1","content":"I say %s","message_id":%q,"thread_id":%q,"ts":%d}`,
					id, id, thread, next()))
				if status != http.StatusAccepted {
					t.Fatalf("%s is answered %d: %s", id, status, body)
				}
			}
			noticed := func(n int) {
				t.Helper()
				c.until("it has a notice", func() bool {
					data, _ := os.ReadFile(filepath.Join(c.dir, "agent_b", "transcripts", "marks", "feishu_oc_1.jsonl"))
					return strings.Count(string(data), `"kind":"notice","act":"stop"`) == n
				})
			}
			got := func(id string) {
				t.Helper()
				select {
				case in := <-w.heard:
					data, _ := json.Marshal(in.Metadata)
					if string(in.Metadata["message_id"].(string)) != id || !strings.Contains(string(data), `"tier":"released"`) ||
						!strings.Contains(string(data), `"depth":1`) {
						t.Errorf("the bot was given %s, want %s", data, id)
					}
				case <-limited(t).Done():
					t.Fatalf("%s is not released", id)
				}
			}
			says("om_1", "hello", "")
			says("om_2", "hello", "omt_1")
			bot("om_chat", "")
			noticed(1)
			bot("om_topic", "omt_1")
			noticed(2)
			says("om_3", "/relay continue", "omt_1")
			got("om_topic")
			if body := says("om_4", "继续！", ""); !strings.Contains(body, `"reason":"continue"`) {
				t.Errorf("the word is answered %s", body)
			}
			got("om_chat")
			if body := says("om_5", "go on", ""); !strings.Contains(body, `"for_me":true`) {
				t.Errorf("the second word is answered %s", body)
			}
			b.stop()
			b = c.start(cfg)
			bot("om_later", "")
			noticed(3)
			if left := len(w.heard); left > 0 {
				t.Errorf("%d messages were released twice", left)
			}
		})
	}
}
