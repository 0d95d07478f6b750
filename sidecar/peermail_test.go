//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/npmtest"
	"feishu-relay/internal/test/verify"
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
				tool(t, "http://"+a.Addr().String(), "send_task", map[string]any{"to": "coder",
					"task": "write a sort function", "callback_chat_id": h.Chat, "deadline_minutes": 30})
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
			if task.ChatType != "p2p" || task.SenderType != "user" ||
				!strings.Contains(task.Text, "researcher gives you this task") {
				t.Errorf("B was given %+v", task)
			}
			answer, err := n.Wait(limited(t), func(m feishusim.Message) bool { return strings.Contains(m.Text, "Here it is") })
			must(t, err)
			if answer.ChatID != asked.Chat || !strings.Contains(answer.Text, "Here is quicksort: func sort(xs []int)") {
				t.Errorf("A's person was told %+v, want the result in %s", answer, asked.Chat)
			}
			n.until("the task is completed", func() bool {
				return strings.Contains(n.get(b, "/v1/mailbox/tasks"), `"completed"`)
			})
			n.neverSaw("relaypeer")
			if all := n.get(a, "/v1/transcripts"); strings.Contains(all, "relaypeer") {
				t.Errorf("with MAILBOX_GATEWAY=off there is %s", all)
			}
		})
	}
}

// The same with bots on the official Node SDK, and with one on Koishi as the one that is woken: they have nothing but
// the base URL, and the first one the peer tools.
func TestMailWakesNodeAndKoishi(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	nodeSDK(t)
	for _, woken := range []string{"node", "koishi"} {
		t.Run(woken, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"}, feishusim.App{Name: "Coder"})
			a := n.start(n.byGateway("researcher"))
			b := n.start(n.byGateway("coder"))
			n.nodeBot(apps[0], "http://"+a.Gateway().String(), nil,
				rule{When: "write me", Hand: "http://" + a.Addr().String() + "/mcp", To: "coder", Say: "write a sort function"},
				rule{When: "func sort", Say: "the coder has written it"})
			var coder *program
			if woken == "node" {
				coder = n.nodeBot(apps[1], "http://"+b.Gateway().String(), nil,
					rule{When: "sort function", Steps: []string{"Here is ", "quicksort: ", "func sort(xs []int)"}})
			} else {
				coder = n.koishiBot(apps[1], "http://"+b.Gateway().String(), "Here is quicksort: func sort(xs []int)")
			}
			n.connected(a)
			n.connected(b)
			_, err := n.SayPrivate(apps[0].ID, n.user.ID, "write me a sort function")
			must(t, err)
			task := n.hears(coder.sdkBot, "write a sort function")
			if task.ChatType != "p2p" {
				t.Errorf("the coder was given %+v", task)
			}
			answer, err := n.Wait(limited(t), func(m feishusim.Message) bool {
				return m.Text == "the coder has written it"
			})
			must(t, err)
			if asked, _ := n.Message(answer.ParentID); asked.Text != "write me a sort function" {
				t.Errorf("A's person was told %+v", answer)
			}
			n.until("the task is completed", func() bool {
				return strings.Contains(n.get(b, "/v1/mailbox/tasks"), `"completed"`)
			})
			n.neverSaw("relaypeer")
		})
	}
}

// koishiBot starts testdata/koishi/bot.mjs, which answers what it hears in private chats, and in groups by rules.
func (n *tenant) koishiBot(app feishusim.App, base, answer string, rules ...rule) *program {
	n.t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", "koishi", "bot.mjs"))
	must(n.t, err)
	settings, err := json.Marshal(map[string]any{"appId": app.ID, "appSecret": app.Secret, "endpoint": base + "/open-apis",
		"answer": answer, "rules": append([]rule{}, rules...)})
	must(n.t, err)
	node := exec.Command("node", script)
	node.Dir = npmtest.Installed(n.t, filepath.Join("testdata", "koishi", "package.json"), "koishi")
	node.Env = append(withoutProxy(), "BOT="+string(settings))
	return n.program(app, node)
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

// pairByMail is a home-made agent "researcher" that gives work to "coder", a bot on Feishu's SDK with nothing but the
// base URL.
type pairByMail struct {
	*tenant
	asker *worker
	coder *running
	bot   *sdkBot
	app   feishusim.App
}

func newPairByMail(t *testing.T, change func(*sidecar.Config), answer func(*sdkBot, heard)) *pairByMail {
	t.Helper()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Coder"})
	p := &pairByMail{tenant: n, asker: n.homeMade("researcher", "", nil), app: apps[0]}
	cfg := n.byGateway("coder")
	if change != nil {
		change(&cfg)
	}
	p.coder = n.start(cfg)
	if answer != nil {
		p.connect(answer)
	}
	return p
}

// connect starts the coder's bot.
func (p *pairByMail) connect(answer func(*sdkBot, heard)) {
	p.bot = p.tenant.bot(p.app, "http://"+p.coder.Gateway().String(), answer)
	p.connected(p.coder)
}

// gives has the researcher give a task.
func (p *pairByMail) gives(text string) {
	p.t.Helper()
	p.until("the task is given", func() bool {
		return p.asker.call(http.MethodPost, "/v1/mailbox/tasks", map[string]any{"to": "coder", "text": text}, nil) ==
			http.StatusAccepted
	})
}

// state is the state of the newest task that the researcher gave.
func (p *pairByMail) state() string {
	var all struct{ Tasks []struct{ State string } }
	p.asker.call(http.MethodGet, "/v1/mailbox/tasks", nil, &all)
	if len(all.Tasks) == 0 {
		return ""
	}
	return all.Tasks[0].State
}

func (p *pairByMail) comesTo(state string) {
	p.t.Helper()
	p.until("the task is "+state, func() bool { return p.state() == state })
}

// say sends a message to a chat, as no answer to one.
func (b *sdkBot) say(t *testing.T, chat, text string) {
	if _, err := larktest.Send(context.Background(), b.client, chat, "text", quoted("text", text), ""); err != nil {
		t.Errorf("%s says nothing: %v", b.app.Name, err)
	}
}

// answers answers a message with one of any type, and returns its id.
func (b *sdkBot) answers(t *testing.T, h heard, msgType, content string) string {
	id, err := b.answer(h.ID, msgType, content)
	if err != nil {
		t.Errorf("%s does not answer: %v", b.app.Name, err)
	}
	return id
}

// A bot ends a task with a command word, or answers it in other ways than by one reply.
func TestAnswersToATask(t *testing.T) {
	t.Parallel()
	t.Run("fail", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) { p.reply(b, h, "", "/fail no compiler here") })
		p.gives("write it")
		if in := p.asker.hears("task_update", "no compiler here"); strings.Contains(in.Content, "/fail") {
			t.Errorf("the reason is %q", in.Content)
		}
		p.comesTo("failed")
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) {
			p.reply(b, h, "", "the first answer")
			p.reply(b, h, "", "a second answer")
		})
		p.gives("write it")
		p.asker.hears("task_update", "the first answer")
		in := p.asker.hears("message", "a second answer")
		if in.Metadata["reply_to"] == nil || in.Metadata["correlation_id"] == nil {
			t.Errorf("the second answer came as %+v", in.Metadata)
		}
		p.comesTo("completed")
	})
	t.Run("with the help of a third", func(t *testing.T) {
		t.Parallel()
		var p *pairByMail
		p = newPairByMail(t, nil, func(b *sdkBot, h heard) {
			if strings.Contains(h.Text, "the tests pass") {
				p.reply(b, h, "", "it is written, and the tests pass")
				return
			}
			tool(t, "http://"+p.coder.Addr().String(), "send_task", map[string]any{"to": "tester", "task": "test it",
				"callback_chat_id": h.Chat})
		})
		tester := p.homeMade("tester", "", nil)
		p.gives("write it")
		job := tester.hears("task", "test it")
		tester.call(http.MethodPost, "/v1/mailbox/tasks/"+taskOf(job), map[string]string{"state": "completed",
			"text": "the tests pass"}, nil)
		p.asker.hears("task_update", "it is written, and the tests pass")
		p.comesTo("completed")
		p.neverSaw("relaypeer")
	})
	t.Run("a picture first", func(t *testing.T) {
		t.Parallel()
		p := newPairByMail(t, nil, func(b *sdkBot, h heard) {
			b.answers(t, h, "image", `{"image_key":"img_v3_x"}`)
			b.answers(t, h, "file", `{"file_key":"f","file_name":"result.txt"}`)
			b.answers(t, h, "sticker", `{"file_key":"s"}`)
			b.answers(t, h, "text", quoted("text", "it is written"))
		})
		p.gives("write it")
		for _, step := range [][2]string{{"[图片]", "working"}, {"result.txt", "working"}, {"[表情]", "working"},
			{"it is written", "completed"}} {
			in := p.asker.hears("task_update", step[0])
			if task, _ := in.Metadata["mailbox_task"].(map[string]any); task["state"] != step[1] {
				t.Errorf("%q makes the task %v, want %s", step[0], task["state"], step[1])
			}
		}
		p.comesTo("completed")
	})
	t.Run("after a placeholder", func(t *testing.T) {
		t.Parallel()
		placed, on := make(chan string, 1), make(chan struct{})
		p := newPairByMail(t, nil, func(b *sdkBot, h heard) {
			id := b.answers(t, h, "text", quoted("text", "Thinking…"))
			placed <- id
			<-on
			edited, err := b.client.Im.Message.Update(context.Background(), larkim.NewUpdateMessageReqBuilder().
				MessageId(id).Body(larkim.NewUpdateMessageReqBodyBuilder().MsgType("text").
				Content(quoted("text", "it is written")).Build()).Build())
			if err != nil || !edited.Success() {
				t.Errorf("%v %+v", err, edited)
			}
		})
		p.gives("write it")
		<-placed
		close(on)
		p.asker.hears("task_update", "it is written")
		p.comesTo("completed")
	})
	t.Run("once it is there", func(t *testing.T) {
		t.Parallel()
		p := newPairByMail(t, nil, nil)
		p.gives("write it")
		p.comesTo("accepted")
		p.connect(func(b *sdkBot, h heard) { p.reply(b, h, "", "it is written") })
		p.asker.hears("task_update", "it is written")
	})
}

// A bot that takes its events at a webhook is woken there.
func TestMailWakesABotWithAWebhook(t *testing.T) {
	t.Parallel()
	const key = "the key of its events"
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Coder", EncryptKey: key})
	p := &pairByMail{tenant: n, asker: n.homeMade("researcher", "", nil), app: apps[0]}
	p.bot = &sdkBot{app: apps[0], heard: make(chan heard, 10)}
	listens := httptest.NewServer(http.HandlerFunc(httpserverext.NewEventHandlerFunc(
		p.bot.dispatcher(func(b *sdkBot, h heard) { n.reply(b, h, "", "it is written") }))))
	t.Cleanup(listens.Close)
	cfg := n.byGateway("coder")
	cfg.BotWebhookURL, cfg.AppID, cfg.EncryptKey = listens.URL, apps[0].ID, key
	cfg.VerificationToken = sidecar.Secret(apps[0].VerificationToken)
	p.coder = n.start(cfg)
	p.bot.client = lark.NewClient(apps[0].ID, apps[0].Secret, lark.WithLogLevel(larkcore.LogLevelError),
		lark.WithOpenBaseUrl("http://"+p.coder.Gateway().String()))
	p.bot.introduce(t)
	p.gives("write it")
	p.asker.hears("task_update", "it is written")
	p.comesTo("completed")
	n.neverSaw("relaypeer")
}

// The coder's sidecar is killed at each step of the delivery and of the answer. Its bot is given the task under one id,
// and the researcher gets the result once.
func TestPeerMailSurvivesKills(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, step := range []string{"claimed", "noted", "shown", "inject", "delivered", "settling", "kept", "answered",
		"mailed"} {
		t.Run("at "+step, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Coder"})
			asker := n.homeMade("researcher", "", nil)
			cfg := n.byGateway("coder")
			cfg.Gateway.Addr = freeAddr(t)
			b := newProcess(t, n.dir, cfg)
			b.start(step + ":1")
			bot := n.bot(apps[0], "http://"+cfg.Gateway.Addr, func(bot *sdkBot, h heard) {
				b.reply(bot, h, "func sort(xs []int)")
			})
			must(t, n.WaitConnected(limited(t), apps[0].ID, 1))
			asker.call(http.MethodPost, "/v1/mailbox/tasks", json.RawMessage(`{"to":"coder","text":"write a sort function"}`),
				nil)
			b.dies(t)
			b.start("")
			asker.hears("task_update", "func sort")
			task := n.hears(bot, "write a sort function")
			n.until("the task is completed", func() bool {
				var all struct{ Tasks []struct{ State string } }
				asker.call(http.MethodGet, "/v1/mailbox/tasks", nil, &all)
				return len(all.Tasks) == 1 && all.Tasks[0].State == "completed"
			})
			b.stop()
			bot.mu.Lock()
			defer bot.mu.Unlock()
			for _, h := range bot.all {
				if h.ID != task.ID {
					t.Errorf("the task came as %s and as %s", task.ID, h.ID)
				}
			}
			results := 0
			asker.mu.Lock()
			defer asker.mu.Unlock()
			for _, in := range asker.got {
				if strings.Contains(in.Content, "func sort") {
					results++
				}
			}
			if results != 1 {
				t.Errorf("the result came %d times", results)
			}
			n.neverSaw("relaypeer")
		})
	}
}
