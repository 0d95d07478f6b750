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
var mailCast = []character{
	{agent: "researcher", name: "Researcher", role: "answers people, and hands on what others do better"},
	{agent: "coder", name: "Coder", role: "writes and tests code"},
}

const (
	// maxExchanges is PEER_MAX_EXCHANGES here: two tasks, a thank-you and its answer.
	maxExchanges = 4
	// rateLimited is the code of a message that is one too many.
	rateLimited relay.Reason = "RATE_LIMITED"
	// askedIn is where results belong: the private chat that the person asked in.
	askedIn = "the chat that asked"
	// betweenAgents is where all else belongs.
	betweenAgents = "a chat of its own"
)

func newMailAct(s *stage) act {
	s.board = newBoard(s.out, mailCast, nil)
	return &mailAct{tenant: newTenant(s, mailCast), thoughts: make(chan string, 1)}
}

func (a *mailAct) start(ctx context.Context, env []string) {
	a.out.title("Two agents and a mailbox: bots on Feishu's SDK, one with an MCP client. What the other gets is a private chat.")
	ctx, env = a.open(ctx, append(env, fmt.Sprintf("PEER_MAX_EXCHANGES=%d", maxExchanges), "MAILBOX_GATEWAY=on"))
	a.startSidecars(ctx, "two", a.front(0, env), a.front(1, env))
	var err error
	a.tools, err = mcp.NewClient(&mcp.Implementation{Name: mailCast[0].agent, Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: a.sidecars[0].url() + "/mcp", HTTPClient: caller}, nil)
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
		return a.board.received(mailCast[0].agent, relay.MessageID(in.id), in.text)
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
	return a.board.arrived(mailCast[i].agent, mailID(mailCast[1-i].agent, mailCast[i].agent, text), text, where)
}

// answer is what the Researcher says; what it does for that it has done then.
func (a *mailAct) answer(ctx context.Context, in incoming) string {
	switch {
	case has(in.words, code):
		return "Coder 写好了：\n" + in.words
	case has(in.words, "现在不行"):
		a.giveTask(ctx, in.chat, "请再看看：写一个 Go 排序函数，有空就做。")
		return "Coder 说现在不行，我又请它有空时做。"
	case has(in.words, thanks):
		a.tell(ctx, "用户说谢谢，函数很好用！")
		return "好，已经转告。"
	case in.fromBot: // it is too polite not to answer
		a.tell(ctx, "哪里，该谢你！")
		return ""
	}
	if note := a.giveTask(ctx, in.chat, "写一个 Go 排序函数，把代码发回来。"); !strings.Contains(note, "offline") {
		must(fmt.Errorf("send_task notes %q, want that the other is offline", note))
	}
	return "交给 Coder 了；它不在线，回来就做。"
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
	m := a.board.mail(taskKind, &mailCast[0], &mailCast[1], text)
	var sent struct {
		TaskID string `json:"task_id"`
		Note   string
	}
	must(a.call(ctx, "send_task", object{"to": mailCast[1].agent, "task": text, "callback_chat_id": chat,
		"deadline_minutes": 30}, &sent))
	a.board.gave(sent.TaskID)
	if sent.Note != "" {
		a.board.note("send_task notes: %s", sent.Note)
		a.board.waiting(m)
	}
	return sent.Note
}

// tell sends the Coder a message.
func (a *mailAct) tell(ctx context.Context, text string) {
	m := a.board.mail(messageKind, &mailCast[0], &mailCast[1], text)
	var result struct {
		DeliveredTo []string `json:"delivered_to"`
	}
	err := a.call(ctx, "send_to_peer", object{"to": mailCast[1].agent, "message": text}, &result)
	if err != nil && strings.Contains(err.Error(), string(rateLimited)) {
		a.board.refused(m, rateLimited)
		why, _, _ := strings.Cut(err.Error(), ";")
		a.board.note("%s", why)
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
	a.board.mail(kind, &mailCast[1], &mailCast[0], text)
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
	a.board.note("no mail waits, everything was acknowledged; both sidecars say the same of the tasks; " +
		"Feishu and the transcripts of its chats have none of this mail")
}

func (a *mailAct) scenes() []scene {
	const (
		inOwn  = " " + betweenAgents + " delivered"
		inChat = " " + askedIn + " delivered"
		words  = "" // for the user, who reads them in the chat; no bot has to hear them
	)
	return []scene{
		{
			title: "a job handed over to an agent that is away, and then has no time", asks: "帮我写个排序函数", play: a.handOver,
			want: []outcome{
				{"researcher", taskKind + inOwn}, {"researcher", words}, {"coder", "failed" + inChat},
				{"researcher", taskKind + inOwn}, {"researcher", words},
			},
			ends: "Feishu has not brought the refusal: the mailbox did, into the private chat that asked",
		},
		{
			title: "its sidecar is killed while it works", play: a.crash,
			want: []outcome{{"coder", "completed" + inChat}, {"researcher", words}},
			ends: "no task lost, none given twice; the answer is where the question was",
		},
		{
			title: "courtesies between agents come to an end", asks: "替我谢谢它", play: a.courtesies,
			want: []outcome{
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
	a.board.note("the Coder is away: its sidecar is stopped")
	a.says(ctx, sc.chat, sc.asks)
	a.await(ctx, "the task is given", func() bool { return len(a.board.jobs) > 0 && a.board.busy == 0 })
	must(a.sidecars[1].start(ctx))
	a.board.note("the Coder is back; its SDK finds the sidecar again by itself")
	a.settle(ctx)
	a.step(ctx, 1, "accepted")
	a.thinks("failed", "现在不行，手上还有别的活。")
	a.step(ctx, 1, "failed")
	a.settle(ctx)
	a.step(ctx, 2, "accepted")
}

// crash kills the Coder's sidecar between two steps of the task. The Coder does not notice.
func (a *mailAct) crash(ctx context.Context, _ scene) {
	a.thoughts <- ""
	a.step(ctx, 2, "working")
	coder := a.sidecars[1]
	coder.kill()
	a.board.note("the sidecar of the Coder is killed (SIGKILL)")
	must(coder.start(ctx))
	states, err := states(ctx, coder)
	must(err)
	state := states[a.board.job(2)]
	a.board.note("… and is back, and knows that task 2 is %s", state)
	if state != "working" {
		must(fmt.Errorf("the task is %q after the restart, want working", state))
	}
	a.thinks("completed", "```go\nfunc Sort(s []int) { slices.Sort(s) }\n```")
	a.step(ctx, 2, "completed")
}

// courtesies go back and forth until the Researcher's sidecar sends no more.
func (a *mailAct) courtesies(ctx context.Context, sc scene) {
	a.says(ctx, sc.chat, sc.asks)
	a.settle(ctx)
	a.thinks(messageKind, "不客气，随时找我！")
	a.settle(ctx)
	a.nothingLeft(ctx)
}
