package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// mailAct is the third act: a bot that a person speaks to in private gives jobs to another one. Both are on Feishu's
// SDK, behind gateways that bring them their mail as private chats.
type mailAct struct {
	*tenant

	// The Researcher thinks with the peer tools of its sidecar; they are all that
	// it knows of other agents.
	tools *mcp.ClientSession
	asked atomic.Value // the chat in which a person spoke to it, a string

	// The Coder knows of no other agent. It answers what it hears with what the scenes put here; "" is a reaction, and
	// an answer follows.
	thoughts chan string
}

// mailCast is who plays.
func (l language) mailCast() []character {
	return []character{
		{agent: "researcher", name: l.say("Researcher", "研究员"), role: l.say("answers people, and hands on what others do better", "回答用户，把别人更擅长的事交出去")},
		{agent: "coder", name: l.say("Coder", "程序员"), role: l.say("writes and tests code", "写代码并测试")},
	}
}

const (
	// maxExchanges is PEER_MAX_EXCHANGES here: two tasks, a thank-you and its answer.
	maxExchanges = 4
	// rateLimited is the code of a message that is one too many.
	rateLimited relay.Reason = "RATE_LIMITED"
	// busy is what the Coder says when it has no time.
	busy = "没空 later"
	// askedIn is where results belong: the private chat that the person asked in.
	askedIn = "the chat that asked"
	// betweenAgents is where all else belongs.
	betweenAgents = "a chat of its own"
)

func newMailAct(s *stage) act {
	cast := s.out.mailCast()
	s.board = newBoard(s.out, cast, nil)
	return &mailAct{tenant: newTenant(s, cast), thoughts: make(chan string, 1)}
}

func (a *mailAct) start(ctx context.Context, env []string) {
	a.out.title(a.out.say("Two agents and their mailboxes: bots on Feishu's SDK. "+
		"One has an MCP client, the other gets its mail as private chats.",
		"两个智能体和它们的信箱：都用飞书 SDK。一个带 MCP 客户端，另一个从私聊里收信。"))
	ctx, env = a.open(ctx, append(env, fmt.Sprintf("PEER_MAX_EXCHANGES=%d", maxExchanges), "MAILBOX_GATEWAY=on"))
	a.startSidecars(ctx, a.out.say("two", "两"), a.front(0, env), a.front(1, env))
	var err error
	a.tools, err = mcp.NewClient(&mcp.Implementation{Name: a.players[0].agent, Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: a.sidecars[0].url() + "/mcp", HTTPClient: a.sidecars[0].caller()}, nil)
	must(wrap(err, "the Researcher's MCP client"))
	a.startBot(ctx, 0, a.answer, a.received)
	a.startBot(ctx, 1, a.work, func(in incoming) func() {
		a.heard(1, in, betweenAgents)()
		return func() {} // it waits for the scene, which goes on meanwhile
	})
}

func (*mailAct) lobby() (relay.ChatID, []string) { return "", nil }

// says lets the user speak to the Researcher alone, whatever the chat.
func (a *mailAct) says(ctx context.Context, _ relay.ChatID, text string) {
	a.post(ctx, feishusim.Utterance{App: a.apps[0].ID, Text: text})
}

func (a *mailAct) leave() {
	a.tenant.leave()
	if a.tools != nil {
		_ = a.tools.Close() // nothing is under way any more
	}
}

// received notes what the SDK gave the Researcher. What another agent said is shown in
// the chat that it belongs in, as if it had been said there.
func (a *mailAct) received(in incoming) (done func()) {
	switch {
	case !in.fromBot:
		a.asked.Store(in.chat)
		return a.board.received(a.players[0].agent, relay.MessageID(in.id), in.text)
	case a.asked.Load() == in.chat:
		return a.heard(0, in, askedIn)
	}
	return a.heard(0, in, betweenAgents)
}

// heard notes what the other agent wrote to the i-th. In a chat of its own there is a line below it on what comes of an
// answer.
func (a *mailAct) heard(i int, in incoming, where string) (done func()) {
	text := in.text
	if where == betweenAgents {
		text, _, _ = strings.Cut(text, "\n\n")
	}
	return a.board.arrived(a.players[i].agent, mailID(a.players[1-i].agent, a.players[i].agent, text), text, where)
}

// answer is what the Researcher says; what it does for that it has done then.
func (a *mailAct) answer(ctx context.Context, in incoming) string {
	say := a.out.say
	switch {
	case has(in.words, code):
		return say("Coder has done it:\n", "程序员写好了：\n") + in.words
	case has(in.words, busy):
		a.giveTask(ctx, in.chat, say("Please write a sort function in Go when you have time.", "请再看看：写一个 Go 排序函数，有空就做。"))
		return say("Coder has no time now; I asked again, for later.", "程序员说现在没空，我又请它有空时做。")
	case has(in.words, thanks) && !in.fromBot:
		a.tell(ctx, say("The user says thank you for the function!", "用户说谢谢，函数很好用！"))
		return say("I passed it on.", "好，已经转告。")
	case in.fromBot: // it is too polite not to answer
		a.tell(ctx, say("Thank you, too!", "哪里，该谢你！"))
		return ""
	}
	task := say("Write a sort function in Go and send me the code.", "写一个 Go 排序函数，把代码发回来。")
	if note := a.giveTask(ctx, in.chat, task); !strings.Contains(note, "offline") {
		must(fmt.Errorf("send_task notes %q, want that the other is offline", note))
	}
	return say("Coder has the task. It is away, and starts when it is back.", "交给程序员了；它不在线，回来就做。")
}

// work is what the Coder says.
func (a *mailAct) work(ctx context.Context, in incoming) string {
	for {
		select {
		case thought := <-a.thoughts:
			if thought != "" {
				return thought
			}
			in.bot.react(ctx, in.id, "OnIt")
		case <-ctx.Done():
			must(context.Cause(ctx))
		}
	}
}

// giveTask gives the Coder a task whose result belongs in chat.
func (a *mailAct) giveTask(ctx context.Context, chat, text string) (note string) {
	m := a.board.mail(taskKind, &a.players[0], &a.players[1], text)
	var sent struct {
		TaskID string `json:"task_id"`
		Note   string
	}
	must(a.call(ctx, "send_task", object{"to": a.players[1].agent, "task": text, "callback_chat_id": chat,
		"deadline_minutes": 30}, &sent))
	a.board.gave(sent.TaskID)
	if sent.Note != "" {
		a.board.note(a.out.say("send_task answers: coder is offline, the task waits for it", "send_task 回答：coder 不在线，任务等它回来"))
		a.board.waiting(m)
	}
	return sent.Note
}

// tell sends the Coder a message.
func (a *mailAct) tell(ctx context.Context, text string) {
	m := a.board.mail(messageKind, &a.players[0], &a.players[1], text)
	var result struct {
		DeliveredTo []string `json:"delivered_to"`
	}
	err := a.call(ctx, "send_to_peer", object{"to": a.players[1].agent, "message": text}, &result)
	if err != nil && strings.Contains(err.Error(), string(rateLimited)) {
		a.board.refused(m, rateLimited)
		a.board.note(a.out.say("send_to_peer refuses: the two exchanged %d messages, the most for 10 minutes here "+
			"(PEER_MAX_EXCHANGES)",
			"send_to_peer 拒绝：两者已往来 %d 条，这里 10 分钟内最多这么多（PEER_MAX_EXCHANGES）", maxExchanges))
		return
	}
	must(err)
	if len(result.DeliveredTo) != 1 {
		must(fmt.Errorf("send_to_peer: delivered to %q, want the Coder", result.DeliveredTo))
	}
}

// call calls a tool, and reads what it returns into out.
func (a *mailAct) call(ctx context.Context, name string, args object, out any) error {
	result, err := a.tools.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil && result.IsError {
		err = errors.New(result.Content[0].(*mcp.TextContent).Text)
	}
	if err != nil {
		return wrap(err, "the tool %s refuses", name)
	}
	return json.Unmarshal([]byte(asJSON(result.StructuredContent)), out)
}

// thinks lets the Coder say what arrives as mail of a kind.
func (a *mailAct) thinks(kind, text string) {
	a.board.mail(kind, &a.players[1], &a.players[0], text)
	if kind == "failed" {
		text = "/fail " + text
	}
	a.thoughts <- text
}

// step waits until the giver's sidecar has the n-th task in a state.
func (a *mailAct) step(ctx context.Context, n int, state string) {
	id := a.board.job(n)
	must(until(ctx, settledWithin, fmt.Sprintf("task %d %s", n, state), func(ctx context.Context) (bool, error) {
		got, err := states(ctx, a.sidecars[0])
		return got[id] == state, err
	}))
	a.board.moved(n, state)
}

// states are the tasks that a sidecar knows, and their states.
func states(ctx context.Context, of *sidecar) (map[string]string, error) {
	var answer struct{ Tasks []struct{ ID, State string } }
	err := of.get(ctx, "/v1/mailbox/tasks", &answer)
	states := map[string]string{}
	for _, t := range answer.Tasks {
		states[t.ID] = t.State
	}
	return states, wrap(err, "tasks at %s's sidecar", of.name)
}

// nothingLeft checks that no mail waits anywhere, that both sides say the same of
// the tasks, that sidecars show nothing but their mail, and that no chat of agents reached Feishu.
func (a *mailAct) nothingLeft(ctx context.Context) {
	for _, sc := range a.sidecars {
		must(until(ctx, settledWithin, "no mail waits at "+sc.name+"'s sidecar", func(ctx context.Context) (bool, error) {
			var answer struct {
				Mailbox struct {
					Waiting        int // for the bot
					Unacknowledged int // of what it sent
					OpenTasks      int `json:"open_tasks"`
				}
			}
			err := sc.get(ctx, "/v1/status", &answer)
			left := answer.Mailbox
			return left.Waiting+left.Unacknowledged+left.OpenTasks == 0, err
		}))
		got, err := states(ctx, sc)
		must(err)
		if want := a.board.states(); !maps.Equal(got, want) {
			must(fmt.Errorf("tasks at %s's sidecar: got %v, want %v", sc.name, got, want))
		}
		var left struct {
			Dead        []any `json:"dead_letters"`
			Transcripts []struct{ Channel string }
		}
		must(sc.get(ctx, "/v1/mailbox/dead-letters", &left))
		must(sc.get(ctx, "/v1/transcripts", &left))
		if len(left.Dead) > 0 || len(left.Transcripts) != 1 || left.Transcripts[0].Channel != relay.MailChannel {
			must(fmt.Errorf("%s's sidecar has %d dead letters and shows the conversations %v, want none, and the mail",
				sc.name, len(left.Dead), left.Transcripts))
		}
	}
	for _, r := range a.feishu.Requests() {
		if strings.Contains(r.URI+string(r.Body), "relaypeer") {
			must(fmt.Errorf("%s %s reached Feishu", r.Method, r.URI))
		}
	}
	a.board.note(a.out.say("no mail waits; both sidecars agree on the tasks; "+
		"none of this mail is in Feishu or in transcripts of its chats",
		"没有信在等；两边的边车对任务的记录一致；飞书和群记录里都没有这些信"))
}

func (a *mailAct) scenes() []scene {
	const (
		inOwn  = " " + betweenAgents + " delivered"
		inChat = " " + askedIn + " delivered"
		words  = "" // for the user, who reads them in the chat; no bot has to hear them
	)
	say := a.out.say
	return []scene{
		{
			title: say("a task for an agent that is away, and then has no time", "把任务交给一个不在线、回来又没空的智能体"),
			asks:  say("Please get me a sort function", "帮我写个排序函数"), play: a.handOver,
			want: []result{
				{"researcher", taskKind + inOwn}, {"researcher", words}, {"coder", "failed" + inChat},
				{"researcher", taskKind + inOwn}, {"researcher", words},
			},
			ends: say("the refusal did not come from Feishu: the mailbox put it into the private chat that asked",
				"拒绝不是飞书送来的：是信箱送进了提问的私聊"),
		},
		{
			title: say("its sidecar is killed while it works", "干活时，它的边车被杀掉了"), play: a.crash,
			want: []result{{"coder", "completed" + inChat}, {"researcher", words}},
			ends: say("no task was lost, none was given twice; the answer is where the question was",
				"任务没丢，也没派两次；答案回到了提问的地方"),
		},
		{
			title: say("agents that thank each other are stopped", "智能体互相道谢，也会被拦下"),
			asks:  say("Please thank it for me", "替我谢谢它"), play: a.courtesies,
			want: []result{
				{"researcher", messageKind + inOwn}, {"researcher", words}, {"coder", messageKind + inOwn},
				{"researcher", messageKind + " " + string(rateLimited)},
			},
		},
	}
}

// handOver lets the user ask while the Coder is away. When that comes back it
// has no time, and is asked again.
func (a *mailAct) handOver(ctx context.Context, sc scene) {
	must(a.sidecars[1].stop())
	a.board.note(a.out.say("the Coder is away: its sidecar is stopped", "程序员不在线：它的边车停了"))
	a.says(ctx, sc.chat, sc.asks)
	a.await(ctx, "the task is given", func() bool { return len(a.board.jobs) > 0 && a.board.busy == 0 })
	must(a.sidecars[1].start(ctx))
	a.board.note(a.out.say("the Coder is back; its SDK reconnects by itself", "程序员回来了；它的 SDK 自己重新连上"))
	a.settle(ctx)
	a.step(ctx, 1, "accepted")
	a.thinks("failed", a.out.say("I have no time now, perhaps later.", "现在没空，手上还有别的活。"))
	a.step(ctx, 1, "failed")
	a.settle(ctx)
	a.step(ctx, 2, "accepted")
}

// crash kills the Coder's sidecar between two steps of the task. The Coder does not notice.
func (a *mailAct) crash(ctx context.Context, _ scene) {
	a.thoughts <- ""
	a.step(ctx, 2, "working")
	coder := a.sidecars[1]
	// Its sidecar sends a step before it notes it, so the giver can know of one that the kill would undo.
	noted := func(ctx context.Context) (bool, error) {
		states, err := states(ctx, coder)
		return states[a.board.job(2)] == "working", err
	}
	must(until(ctx, settledWithin, "the Coder's sidecar notes that task 2 is working", noted))
	coder.kill()
	a.board.note(a.out.say("the sidecar of the Coder is killed (SIGKILL)", "程序员的边车被杀掉（SIGKILL）"))
	must(coder.start(ctx))
	states, err := states(ctx, coder)
	must(err)
	state := states[a.board.job(2)]
	a.board.note(a.out.say("… and is back, and knows that task 2 is %s", "……又回来了，还记得任务 2：%s", a.out.word(state)))
	if state != "working" {
		must(fmt.Errorf("the task is %q after the restart, want working", state))
	}
	a.thinks("completed", sorted)
	a.step(ctx, 2, "completed")
}

// courtesies go back and forth until the Researcher's sidecar sends no more.
func (a *mailAct) courtesies(ctx context.Context, sc scene) {
	a.says(ctx, sc.chat, sc.asks)
	a.settle(ctx)
	a.thinks(messageKind, a.out.say("You are welcome, any time!", "不客气，随时找我！"))
	a.settle(ctx)
	a.nothingLeft(ctx)
}
