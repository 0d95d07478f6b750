//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/mailbox"
	"feishu-relay/sidecar"
)

// writes has the researcher write a letter, whose hops are ttl; 0: the default.
func (p *pairByMail) writes(typ, text string, ttl int) {
	p.t.Helper()
	letter := map[string]any{"to": "coder", "type": typ, "content": text}
	if ttl > 0 {
		letter["ttl"] = ttl
	}
	if status := p.asker.call(http.MethodPost, "/v1/mailbox/messages", letter, nil); status != http.StatusAccepted {
		p.t.Fatalf("the letter %q is answered with %d", text, status)
	}
}

// states are the states of the tasks that the researcher gave, by their text.
func (p *pairByMail) states() map[string]string {
	var all struct {
		Tasks []struct{ Text, State string }
	}
	p.asker.call(http.MethodGet, "/v1/mailbox/tasks", nil, &all)
	out := map[string]string{}
	for _, t := range all.Tasks {
		out[t.Text] = t.State
	}
	return out
}

// A bot that answers with messages of its own, not with replies, completes no other task than the one that it answers.
func TestAnswersThatAreNoReplies(t *testing.T) {
	t.Parallel()
	silent := func(*sdkBot, heard) {}
	t.Run("a question while a task is open", func(t *testing.T) {
		t.Parallel()
		p := newPairByMail(t, nil, silent)
		p.gives("write it")
		task := p.hears(p.bot, "write it")
		p.writes("question", "in which language?", 0)
		p.hears(p.bot, "in which language?")
		p.bot.say(t, task.Chat, "in Go")
		p.asker.hears("answer", "in Go")
		p.bot.say(t, task.Chat, "func sort(xs []int)")
		p.asker.hears("task_update", "func sort")
		p.comesTo("completed")
	})
	t.Run("thanks for a note while a task is open", func(t *testing.T) {
		t.Parallel()
		p := newPairByMail(t, nil, silent)
		p.gives("write it")
		task := p.hears(p.bot, "write it")
		for _, note := range []string{"we use tabs", "and no generics"} {
			p.writes("notification", note, 0)
			p.hears(p.bot, note)
		}
		for _, thanks := range []string{"thank you", "thanks again"} {
			p.bot.say(t, task.Chat, thanks)
			p.asker.hears("message", thanks)
		}
		p.bot.say(t, task.Chat, "func sort(xs []int)")
		p.asker.hears("task_update", "func sort")
		p.comesTo("completed")
	})
	t.Run("two tasks", func(t *testing.T) {
		t.Parallel()
		p := newPairByMail(t, nil, silent)
		p.gives("task one")
		one := p.hears(p.bot, "task one")
		p.gives("task two")
		p.writes("question", "in which language?", 0)
		p.hears(p.bot, "in which language?")
		p.bot.say(t, one.Chat, "in Go")
		p.asker.hears("answer", "in Go")
		p.bot.mu.Lock()
		if len(p.bot.all) != 2 {
			t.Errorf("with a task and a question, the bot was given %+v", p.bot.all)
		}
		p.bot.mu.Unlock()
		p.bot.say(t, one.Chat, "the result of one")
		p.asker.hears("task_update", "the result of one")
		if two := p.hears(p.bot, "task two"); p.states()["task one"] != "completed" {
			t.Errorf("the bot was given %+v, and the tasks are %v", two, p.states())
		}
		p.bot.say(t, one.Chat, "the result of two")
		p.asker.hears("task_update", "the result of two")
		p.until("task two is completed", func() bool { return p.states()["task two"] == "completed" })
	})
	t.Run("a reply to a question about the task", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) {
			if strings.Contains(h.Text, "how far") {
				p.reply(b, h, "", "half of it")
			}
		})
		p.gives("write it")
		p.hears(p.bot, "write it")
		var all struct{ Tasks []struct{ ID string } }
		p.asker.call(http.MethodGet, "/v1/mailbox/tasks", nil, &all)
		p.asker.call(http.MethodPost, "/v1/mailbox/messages", map[string]any{"to": "coder", "type": "question",
			"content": "how far are you?", "task": map[string]any{"id": all.Tasks[0].ID}}, nil)
		p.asker.hears("answer", "half of it")
		if s := p.state(); s != "accepted" {
			t.Errorf("the task is %s", s)
		}
	})
	t.Run("a question with the last hop", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) { p.reply(b, h, "", "in Go") })
		p.writes("question", "in which language?", 1)
		p.asker.hears("answer", "in Go")
	})
}

// Which of several open letters a message that is no reply answers: the newest that has no answer, then the next older.
func TestSeveralOpenQuestions(t *testing.T) {
	t.Parallel()
	p := newPairByMail(t, nil, func(*sdkBot, heard) {})
	chat := ""
	var open []any // the ids of the questions, the oldest first
	for _, question := range []string{"the first question", "the second question", "the third question"} {
		var sent struct{ ID string }
		p.asker.call(http.MethodPost, "/v1/mailbox/messages", map[string]any{"to": "coder", "type": "question",
			"content": question}, &sent)
		open = append(open, sent.ID)
		chat = p.hears(p.bot, question).Chat
	}
	for i, says := range []string{"to the third", "to the second", "to the first"} {
		p.bot.say(t, chat, says)
		if got, want := p.asker.hears("answer", says).Metadata["reply_to"], open[len(open)-1-i]; got != want {
			t.Errorf("%q answers %v, want %v", says, got, want)
		}
	}
}

// What a bot says to a task that ends before it is sent comes as a message: the text is not lost, and the task ends once.
func TestAnswerToATaskThatHasJustEnded(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"the late answer", "/fail the late answer"} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Coder"})
			p := &pairByMail{tenant: n, asker: n.homeMade("researcher", "", nil), app: apps[0]}
			ended := sync.OnceFunc(func() {
				tool(t, "http://"+p.coder.Addr().String(), "update_task",
					map[string]any{"state": "completed", "text": "the result"})
			})
			p.coder = n.startTraced(n.byGateway("coder"), func(step string) {
				if step == "answered" {
					ended()
				}
			})
			p.connect(func(b *sdkBot, h heard) { p.reply(b, h, "", says) })
			p.gives("write it")
			p.asker.hears("task_update", "the result")
			if in := p.asker.hears("message", "the late answer"); in.Content != says {
				t.Errorf("the text is %q", in.Content)
			}
			p.comesTo("completed")
		})
	}
}

// Two bots that answer everything, with replies or with messages of their own, come to an end.
func TestBotsThatAnswerEverythingEnd(t *testing.T) {
	t.Parallel()
	for _, replies := range []bool{false, true} {
		t.Run(fmt.Sprintf("replies %t", replies), func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
			var all [2]*running
			var bots [2]*sdkBot
			said := make(chan string, 9)
			for i, name := range []string{"agent_a", "agent_b"} {
				cfg := n.byGateway(name)
				all[i] = n.start(cfg)
				bots[i] = n.bot(apps[i], "http://"+all[i].Gateway().String(), func(b *sdkBot, h heard) {
					says := "thank you for: " + strings.Split(h.Text, "\n")[0]
					if strings.Contains(h.Text, "ask again") {
						says = "the second answer"
					}
					switch {
					case strings.Contains(h.Text, "the second answer"):
					case replies:
						n.reply(b, h, "", says)
					default:
						b.say(t, h.Chat, says)
					}
					said <- says
				})
				n.connected(all[i])
			}
			n.until("the task is given", func() bool {
				status, _ := n.posts(all[0], "/v1/mailbox/tasks", `{"to":"agent_b","text":"write it"}`)
				return status == http.StatusAccepted
			})
			n.hears(bots[0], "thank you for: write it")
			const thanks = "thank you for: thank you for: write it"
			for <-said != thanks { // which stay in the chat
			}
			// What comes behind it comes after anything that was sent.
			n.until("a letter goes", func() bool {
				status, _ := n.posts(all[0], "/v1/mailbox/messages", `{"to":"agent_b","content":"ask again"}`)
				return status == http.StatusAccepted
			})
			n.hears(bots[0], "the second answer")
			bots[1].mu.Lock()
			defer bots[1].mu.Unlock()
			if len(bots[1].all) != 2 {
				t.Errorf("B was given %d letters, want the task and the last letter: %+v", len(bots[1].all), bots[1].all)
			}
		})
	}
}

// The limits of mail hold for what a bot answers in such a chat.
func TestLimitsOfAnswers(t *testing.T) {
	t.Parallel()
	t.Run("a long answer is cut", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) { p.reply(b, h, "", strings.Repeat("长", 30000)) })
		p.writes("question", "in which language?", 0)
		in := p.asker.hears("answer", "长长长")
		if len(in.Content) > 64<<10 || !strings.HasSuffix(in.Content, "长\n[…]") {
			t.Errorf("the answer has %d bytes and ends with %q", len(in.Content), in.Content[len(in.Content)-10:])
		}
	})
	t.Run("an answer over the budget is refused", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, func(c *sidecar.Config) { c.Mailbox.MaxExchanges = 1 },
			func(b *sdkBot, h heard) { p.reply(b, h, "", "an answer") })
		p.writes("message", "good morning", 0)
		p.until("the answer is refused", func() bool {
			return strings.Contains(p.get(p.coder, "/v1/status"), "RATE_LIMITED")
		})
	})
	t.Run("nobody may be written to", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, func(c *sidecar.Config) { c.Mailbox.Delegates = []mailbox.AgentID{"nobody"} },
			func(b *sdkBot, h heard) { p.reply(b, h, "", "an answer") })
		p.writes("message", "good morning", 0)
		p.until("the answer is refused", func() bool {
			return strings.Contains(p.get(p.coder, "/v1/status"), "ALLOWED_DELEGATES")
		})
	})
}
