//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// The sidecar that waits for a result is killed while the result comes in. Its
// bot, an SDK behind the gateway, is told once it is back, in the group that
// asked, and can still reply there.
func TestResultSurvivesACrashOfItsReceiver(t *testing.T) {
	verify.Only(t)
	for _, backend := range backends {
		for _, step := range []string{"claimed:2", "noted:2", "inject:1", "delivered:1", "settling:1"} { // what comes before is that the task was accepted
			t.Run(backend+"/killed at "+step, func(t *testing.T) {
				t.Parallel()
				redis := ""
				if backend == "redis" {
					redis = redistest.Start(t).URL()
				}
				n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
				cfg := n.withMailbox(n.config("researcher"), redis)
				cfg.Gateway.Addr = freeAddr(t)
				a := newProcess(t, n.dir, cfg)
				a.start(step)
				researcher := newWorker(t, a.url) // only its calls
				url, err := a.url(limited(t))
				must(t, err)
				bot := n.bot(apps[0], "http://"+cfg.Gateway.Addr, func(b *sdkBot, h heard) {
					if strings.Contains(h.Text, "func sort") {
						a.reply(b, h, "Here it is: func sort")
					}
				})
				must(t, n.WaitConnected(limited(t), apps[0].ID, 1))
				coder := n.homeMade("coder", redis, nil)

				asked := n.says("@Researcher write it", apps[0].ID)
				n.hears(bot, "write it")
				// Its sidecar may be killed before it answers.
				_, _, _ = request(limited(t), http.MethodPost, url+"/v1/mailbox/tasks",
					json.RawMessage(`{"to":"coder","task_id":"t-1",`+
						`"text":"write a sort function","callback":{"channel":"feishu","chat_id":"`+n.chat+`"}}`))
				coder.hears("task", "sort function")
				coder.call(http.MethodPost, "/v1/mailbox/tasks/t-1",
					map[string]string{"state": "completed", "text": "func sort(xs []int)"}, nil)
				a.dies(t)
				a.start("")
				result := n.hears(bot, "func sort")
				if result.Chat != n.chat || !n.mentioned(bot, result) {
					t.Errorf("the result came as %+v, want in the group, for the bot", result)
				}
				if answer := n.sees("Here it is: func sort"); answer.ParentID != asked {
					t.Errorf("the bot's reply is to %q, want to the question %q", answer.ParentID, asked)
				}
				n.until("the task has ended", func() bool {
					var tasks struct{ Tasks []struct{ State string } }
					researcher.call(http.MethodGet, "/v1/mailbox/tasks", nil, &tasks)
					return len(tasks.Tasks) == 1 && tasks.Tasks[0].State == "completed"
				})
				bot.mu.Lock()
				defer bot.mu.Unlock()
				times, ids := 0, map[string]bool{}
				for _, h := range bot.all {
					if strings.Contains(h.Text, "func sort(xs []int)") {
						times++
						ids[h.ID] = true
					}
				}
				doubtful := strings.HasPrefix(step, "inject") || strings.HasPrefix(step, "delivered")
				if len(ids) != 1 || times > 2 || times == 2 && !doubtful {
					t.Errorf("the bot was given the result %d times under %d ids", times, len(ids))
				}
			})
		}
	}
}

// reply has a bot behind p's gateway reply to a message, also when p is killed and started again meanwhile.
func (p *process) reply(b *sdkBot, to heard, text string) {
	for {
		l, next := p.current()
		select {
		case <-l.ready:
		case <-l.exited:
		case <-p.t.Context().Done():
		}
		_, err := larktest.Reply(context.Background(), b.client, to.ID, "text", quoted("text", text), to.ID[:40])
		if err == nil {
			return
		}
		select {
		case <-next:
		case <-p.t.Context().Done():
			return
		}
	}
}
