package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// mailAct is the third act: a bot on Feishu's SDK that a person speaks to in
// private, and a home-made agent that does a job for it.
type mailAct struct {
	*tenant

	// The Researcher thinks with the peer tools of its sidecar; they are all that
	// it knows of other agents.
	tools *mcp.ClientSession
	asked atomic.Value // the chat in which a person spoke to it, a string

	// The Coder is a home-made agent: its sidecar posts to it, and it answers over
	// HTTP. What it does the scenes say.
	coder  *sidecar
	server *http.Server
	inbox  chan letter
}

// mailCast is who plays. Only the first is in Feishu.
var mailCast = []character{
	{agent: "researcher", name: "Researcher", role: "answers people, and hands on what others do better"},
	{agent: "coder", name: "Coder", role: "writes and tests code"},
}

const (
	// maxExchanges is PEER_MAX_EXCHANGES here: two tasks, a thank-you and its answer.
	maxExchanges = 4
	// rateLimited is the code of a message that is one too many.
	rateLimited relay.Reason = "RATE_LIMITED"
	// maxMail is the most mail that the Coder has not looked at; what comes then
	// fails the demo.
	maxMail = 16
	// askedIn is where results belong: the private chat that the person asked in.
	askedIn = "the chat that asked"
)

func newMailAct(s *stage) act {
	s.board = newBoard(s.out, mailCast, nil)
	return &mailAct{tenant: newTenant(s, mailCast[:1]), inbox: make(chan letter, maxMail)}
}

func (a *mailAct) start(ctx context.Context, env []string) {
	a.out.title("Two agents and a mailbox: one on Feishu's SDK with an MCP client, one home-made on plain HTTP, which no group knows.")
	ctx, env = a.open(ctx, append(env, fmt.Sprintf("PEER_MAX_EXCHANGES=%d", maxExchanges)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(wrap(err, "listen for the Coder's mail"))
	a.server = &http.Server{Handler: http.HandlerFunc(a.deliver), ReadTimeout: callWithin}
	a.running.Go(func() {
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.fail(fmt.Errorf("the Coder's mail: %w", err))
		}
	})
	a.coder = newSidecar(a.stage, mailCast[1], env, "INJECT_URL=http://"+l.Addr().String())
	a.startSidecars(ctx, "two", a.front(0, env), a.coder)
	a.tools, err = mcp.NewClient(&mcp.Implementation{Name: mailCast[0].agent, Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: a.sidecars[0].url() + "/mcp", HTTPClient: caller}, nil)
	must(wrap(err, "the Researcher's MCP client"))
	a.startBot(ctx, 0, a.answer, a.received)
}

func (*mailAct) lobby() (relay.ChatID, []string) { return "", nil }

// says lets the user speak to the Researcher alone, whatever the chat.
func (a *mailAct) says(ctx context.Context, _ relay.ChatID, text string) {
	a.post(ctx, feishusim.Utterance{App: a.apps[0].ID, Text: text})
}

func (a *mailAct) leave() {
	if a.server != nil {
		_ = a.server.Close() // it is not needed any more
	}
	a.tenant.leave()
	if a.tools != nil {
		_ = a.tools.Close() // nothing is under way any more
	}
}

// peerResult is the answer to a message for another agent.
type peerResult struct {
	DeliveredTo        []string `json:"delivered_to"`
	UnreachableReasons []string `json:"unreachable_reasons"`
}

func (r *peerResult) check() {
	if len(r.DeliveredTo) != 1 || len(r.UnreachableReasons) > 0 {
		must(fmt.Errorf("a message for another agent: delivered to %q, not reached: %q", r.DeliveredTo, r.UnreachableReasons))
	}
}

// received notes what the SDK gave the Researcher. What another agent said is shown in
// the chat that it belongs in, as if it had been said there.
func (a *mailAct) received(in incoming) (done func()) {
	me := mailCast[0].agent
	if !in.fromBot {
		a.asked.Store(in.chat)
		return a.board.received(me, relay.MessageID(in.id), in.text)
	}
	where := "another chat"
	if a.asked.Load() == in.chat && in.private {
		where = askedIn
	}
	return a.board.arrived(me, mailID(mailCast[1].agent, me, in.text), in.text, where)
}

// answer is what the Researcher says; what it does for that it has done then.
func (a *mailAct) answer(ctx context.Context, in incoming) string {
	switch {
	case in.fromBot && has(in.words, code):
		return "Coder 写好了：\n" + in.words
	case in.fromBot:
		a.giveTask(ctx, in.chat, "请再看看：写一个 Go 排序函数，有空就做。")
		return "Coder 说现在不行，我又请它有空时做。"
	case has(in.words, thanks):
		a.tell(ctx, "用户说谢谢，函数很好用！")
		return "好，已经转告。"
	case has(in.words, "回话 answer"):
		return a.readInbox(ctx)
	}
	if note := a.giveTask(ctx, in.chat, "写一个 Go 排序函数，把代码发回来。"); !strings.Contains(note, "offline") {
		must(fmt.Errorf("send_task notes %q, want that the other is offline", note))
	}
	return "交给 Coder 了；它不在线，回来就做。"
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
	var result peerResult
	err := a.call(ctx, "send_to_peer", object{"to": mailCast[1].agent, "message": text}, &result)
	if no, ok := errors.AsType[refusal](err); ok && strings.HasPrefix(string(no), string(rateLimited)) {
		a.board.refused(m, rateLimited)
		why, _, _ := strings.Cut(string(no), ";")
		a.board.note("send_to_peer refuses: %s", why)
		return
	}
	must(err)
	result.check()
}

// readInbox reads what came outside of any chat, and is too polite not to answer.
func (a *mailAct) readInbox(ctx context.Context) string {
	var inbox struct{ Messages []struct{ From, Text string } }
	must(a.call(ctx, "read_inbox", nil, &inbox))
	answer, me := "它回话说：", mailCast[0].agent
	for _, m := range inbox.Messages {
		a.board.arrived(me, mailID(m.From, me, m.Text), m.Text, "read_inbox")()
		answer += m.Text
	}
	a.tell(ctx, "哪里，该谢你！")
	return answer
}

// refusal is what a tool says that does not do what it was asked to.
type refusal string

func (r refusal) Error() string { return string(r) }

// call calls a tool, and reads what it returns into out.
func (a *mailAct) call(ctx context.Context, name string, args object, out any) error {
	result, err := a.tools.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil && result.IsError {
		err = refusal(result.Content[0].(*mcp.TextContent).Text)
	}
	if err != nil {
		return fmt.Errorf("the tool %s: %w", name, err)
	}
	return json.Unmarshal([]byte(asJSON(result.StructuredContent)), out)
}

// letter is mail as the Coder's sidecar posts it.
type letter struct {
	Content  string
	Session  string `json:"session_key_override"`
	Metadata struct {
		From string              `json:"sender_agent_name"`
		Type string              `json:"mailbox_type"`
		Task struct{ ID string } `json:"mailbox_task"`
	}
}

// deliver takes the Coder's mail: with its answer that counts as delivered.
func (a *mailAct) deliver(w http.ResponseWriter, r *http.Request) {
	var l letter
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&l); err != nil {
		a.fail(fmt.Errorf("what the sidecar posts to the Coder: %w", err))
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	a.board.arrived(a.coder.agent, mailID(l.Metadata.From, a.coder.agent, l.Content), l.Content, l.Session)()
	select {
	case a.inbox <- l:
	default:
		a.fail(errors.New("the Coder gets more mail than there is"))
	}
}

// next is the mail that the Coder looks at next, which has to be of a type.
func (a *mailAct) next(ctx context.Context, kind string) (l letter) {
	ctx, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("a %s for the Coder: not within %s", kind, settledWithin))
	defer cancel()
	select {
	case l = <-a.inbox:
	case <-ctx.Done():
		must(context.Cause(ctx))
	}
	if l.Metadata.Type != kind {
		must(fmt.Errorf("the Coder got a %s, want a %s", l.Metadata.Type, kind))
	}
	return l
}

// step has the Coder say how the n-th task stands, and with text what comes of it, and
// waits until its giver's sidecar knows.
func (a *mailAct) step(ctx context.Context, n int, state, text string) {
	if text != "" {
		a.board.mail(state, &mailCast[1], &mailCast[0], text)
	}
	must(wrap(a.coder.post(ctx, "/v1/mailbox/tasks/"+a.board.job(n), object{"state": state, "text": text}, nil),
		"the Coder tells that the task is %s", state))
	a.awaitState(ctx, n, state, text == "")
}

// awaitState waits until the giver's sidecar has the n-th task in a state; bare is
// that of a step that says nothing.
func (a *mailAct) awaitState(ctx context.Context, n int, state string, bare bool) {
	id := a.board.job(n)
	must(until(ctx, settledWithin, fmt.Sprintf("task %d %s", n, state), func(ctx context.Context) (bool, error) {
		got, err := states(ctx, a.sidecars[0])
		return got[id] == state, err
	}))
	a.board.moved(n, state, bare)
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

// mailStatus is what a sidecar says of its mailbox.
type mailStatus struct {
	Waiting        int // for the bot
	Unacknowledged int // of what it sent
	OpenTasks      int `json:"open_tasks"`
}

// awaitMailbox waits until a sidecar says so of its mailbox.
func awaitMailbox(ctx context.Context, of *sidecar, what string, is func(mailStatus) bool) {
	must(until(ctx, settledWithin, what+" at "+of.name+"'s sidecar", func(ctx context.Context) (bool, error) {
		var answer struct{ Mailbox mailStatus }
		err := of.get(ctx, "/v1/status", &answer)
		return is(answer.Mailbox), err
	}))
}

// nothingLeft checks that no mail waits anywhere, that both sides say the same of
// the tasks, and that nothing stands in a transcript.
func (a *mailAct) nothingLeft(ctx context.Context) {
	for _, sc := range a.sidecars {
		awaitMailbox(ctx, sc, "nothing waits", func(got mailStatus) bool { return got == mailStatus{} })
		got, err := states(ctx, sc)
		must(err)
		if want := a.board.states(); !maps.Equal(got, want) {
			must(fmt.Errorf("tasks at %s's sidecar: got %v, want %v", sc.name, got, want))
		}
		var left struct {
			Dead        []any `json:"dead_letters"`
			Transcripts []any
		}
		must(sc.get(ctx, "/v1/mailbox/dead-letters", &left))
		must(sc.get(ctx, "/v1/transcripts", &left))
		if len(left.Dead)+len(left.Transcripts) > 0 {
			must(fmt.Errorf("%s's sidecar has %d dead letters and %d transcripts, want none", sc.name, len(left.Dead),
				len(left.Transcripts)))
		}
	}
	a.board.note("no mail waits, everything was acknowledged; both sidecars say the same of the tasks; none of it is in a transcript")
}

func (a *mailAct) scenes() []scene {
	const (
		inMailbox = " mailbox:researcher delivered"
		inChat    = " " + askedIn + " delivered"
		words     = "" // for the user, who reads them in the chat; no bot has to hear them
	)
	return []scene{
		{
			title: "a job handed over to an agent that is away, and then has no time", asks: "帮我写个排序函数", play: a.handOver,
			want: []outcome{
				{"researcher", taskKind + inMailbox}, {"researcher", words}, {"coder", "rejected" + inChat},
				{"researcher", taskKind + inMailbox}, {"researcher", words},
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
				{"researcher", messageKind + inMailbox}, {"researcher", words}, {"coder", messageKind + " read_inbox delivered"},
				{"researcher", messageKind + " " + string(rateLimited)}, {"researcher", words},
			},
		},
	}
}

// handOver lets the user ask while the Coder is away. When that comes back it
// refuses, and is asked again.
func (a *mailAct) handOver(ctx context.Context, sc scene) {
	must(a.coder.stop())
	a.board.note("the Coder goes home: its sidecar is stopped")
	a.says(ctx, sc.chat, sc.asks)
	a.idle(ctx, "the task is given", 1)
	must(a.coder.start(ctx))
	a.board.note("the Coder is back")
	a.takes(ctx, 1)
	a.step(ctx, 1, "rejected", "现在不行，手上还有别的活。")
	a.idle(ctx, "the task is given again", 2)
	a.takes(ctx, 2)
}

// takes waits until the Coder has the n-th task, and its giver knows that.
func (a *mailAct) takes(ctx context.Context, n int) {
	if got, want := a.next(ctx, taskKind).Metadata.Task.ID, a.board.job(n); got != want {
		must(fmt.Errorf("the Coder got the task %s, want %s", got, want))
	}
	a.awaitState(ctx, n, "accepted", true)
}

// idle waits until n tasks are given and no bot is at work.
func (a *mailAct) idle(ctx context.Context, what string, n int) {
	a.await(ctx, what, func() bool { return len(a.board.jobs) == n && a.board.busy == 0 })
}

// crash kills the Coder's sidecar between two steps of the task.
func (a *mailAct) crash(ctx context.Context, _ scene) {
	a.step(ctx, 2, "working", "")
	a.coder.kill()
	a.board.note("the sidecar of the Coder is killed (SIGKILL)")
	must(a.coder.start(ctx))
	states, err := states(ctx, a.coder)
	must(err)
	state := states[a.board.job(2)]
	a.board.note("… and is back, and knows that task 2 is %s", state)
	if state != "working" {
		must(fmt.Errorf("the task is %q after the restart, want working", state))
	}
	a.step(ctx, 2, "completed", "```go\nfunc Sort(s []int) { slices.Sort(s) }\n```")
}

// courtesies go back and forth until the Researcher's sidecar sends no more.
func (a *mailAct) courtesies(ctx context.Context, sc scene) {
	a.says(ctx, sc.chat, sc.asks)
	a.next(ctx, messageKind)
	a.idle(ctx, "the thanks are passed on", 2)
	text := "不客气，随时找我！"
	thanks := a.board.mail(messageKind, &mailCast[1], &mailCast[0], text)
	var result peerResult
	must(wrap(a.coder.post(ctx, "/v1/peers/"+mailCast[0].agent+"/messages", object{"message": text}, &result),
		"the Coder writes to the Researcher"))
	result.check()
	awaitMailbox(ctx, a.sidecars[0], "the answer waits", func(got mailStatus) bool { return got.Waiting == 1 })
	a.board.note("what belongs in no chat waits for the Researcher's next turn")
	a.board.waiting(thanks)
	a.says(ctx, sc.chat, "它有回话吗？")
	a.settle(ctx)
	a.nothingLeft(ctx)
}
