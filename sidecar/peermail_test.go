//go:build unix

package sidecar_test

import (
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// byGateway is a configuration whose bot gets its mail in private chats.
func (n *tenant) byGateway(agent string) sidecar.Config {
	cfg := n.withMailbox(n.config(agent), "")
	cfg.Mailbox.Gateway, cfg.InjectSenderType = true, "user"
	return cfg
}

// A person asks A in a private chat, A hands the task to B by MCP, and B, which has nothing but the base URL, is woken
// and answers in its own way. The result comes into the chat of A's person; B's part never reaches Feishu.
func TestMailWakesABotThatNobodyChanged(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"reply", "card"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"}, feishusim.App{Name: "Coder"})
			a := n.start(n.withMailbox(n.config("researcher"), ""))
			b := n.start(n.byGateway("coder"))
			botA := n.bot(apps[0], "http://"+a.Gateway().String(), func(bot *sdkBot, h heard) {
				if strings.Contains(h.Text, "func sort") {
					n.reply(bot, h, "", "Here it is: "+h.Text)
					return
				}
				tool(t, "http://"+a.Addr().String(), "send_task", map[string]any{"to": "coder", "task": "write a sort function",
					"callback_chat_id": h.Chat, "deadline_minutes": 30})
			})
			botB := n.bot(apps[1], "http://"+b.Gateway().String(), func(bot *sdkBot, h heard) {
				if way == "card" {
					n.stream(bot, h, "Here is ", "quicksort: ", "func sort(xs []int)")
					return
				}
				n.reply(bot, h, "", "Here is quicksort: func sort(xs []int)")
			})
			n.connected(a)
			n.connected(b)
			_, err := n.SayPrivate(apps[0].ID, n.user.ID, "write me a sort function")
			must(t, err)

			asked := n.hears(botA, "write me")
			task := n.hears(botB, "write a sort function")
			if task.ChatType != "p2p" || task.SenderType != "user" || !strings.Contains(task.Text, "researcher gives you this task") {
				t.Errorf("B was given %+v", task)
			}
			answer, err := n.Wait(limited(t), func(m feishusim.Message) bool { return strings.Contains(m.Text, "Here it is") })
			must(t, err)
			if answer.ChatID != asked.Chat || !strings.Contains(answer.Text, "Here is quicksort: func sort(xs []int)") {
				t.Errorf("A's person was told %+v, want the result in %s", answer, asked.Chat)
			}
			n.until("the task is completed", func() bool { return strings.Contains(n.get(b, "/v1/mailbox/tasks"), `"completed"`) })
			n.neverSaw("relaypeer")
		})
	}
}

// neverSaw checks that no call to Feishu has a text in it.
func (n *tenant) neverSaw(text string) {
	n.t.Helper()
	for _, r := range n.Requests() {
		if strings.Contains(r.URI+string(r.Body), text) {
			n.t.Errorf("%s %s reached Feishu", r.Method, r.URI)
		}
	}
}
