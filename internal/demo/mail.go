package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/relay"
)

// What mail is called, and where it stands, in the demo's lines.
const (
	mailbox     = "mailbox"
	taskKind    = "task"
	messageKind = "message"
	// askedIn is where results belong: the private chat that the person asked in.
	askedIn = "the chat that asked"
	// betweenAgents is where all else belongs.
	betweenAgents = "a chat of its own"
)

// rateLimited is the code of a message that is one too many.
const rateLimited relay.Reason = "RATE_LIMITED"

// openTools connects the first bot to the peer tools of its sidecar.
func (s *stage) openTools(ctx context.Context) {
	own := s.sidecars[0]
	client := mcp.NewClient(&mcp.Implementation{Name: own.Agent, Version: "1"}, nil)
	var err error
	s.tools, err = client.Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: own.url() + "/mcp", HTTPClient: own.caller()}, nil)
	must(wrap(err, "the MCP client of %s", own.Name))
}

// mailed is received for what another agent wrote to the bot. It is shown in the chat that it belongs in, as if it
// had been said there. In a chat of its own there is a line below it on what comes of an answer.
func (p *player) mailed(in *incoming) (done func()) {
	s, text, where := p.stage, in.text, askedIn
	if len(s.feishu.Messages(in.chat)) == 0 { // Feishu has only the chat with the person
		where = betweenAgents
		text, _, _ = strings.Cut(text, "\n\n")
	}
	id := mailID(s.script.Cast[1-s.index(p.Agent)].Agent, p.Agent, text)
	s.board.do(func() { s.board.fate(p.Agent, id).where = where })
	done = s.board.received(p.Agent, id, text)
	if p.Asked == nil { // it waits for the scene, which goes on meanwhile
		done()
		return func() {}
	}
	return done
}

// think waits for the bot's answer from the scene.
func (s *stage) think(ctx context.Context) (answer string) {
	select {
	case answer = <-s.thoughts:
	case <-ctx.Done():
		must(context.Cause(ctx))
	}
	return answer
}

// thinks lets the second agent say what arrives as mail of a kind; before is what it writes before it.
func (s *stage) thinks(kind, before string) verb {
	return func(_ context.Context, text string) {
		s.mail(kind, 1, text)
		s.thoughts <- before + text
	}
}

// mail notes that the i-th agent is about to send mail to the other.
func (s *stage) mail(kind string, i int, text string) *message {
	from, to := &s.script.Cast[i], s.script.Cast[1-i].Agent
	m := &message{id: mailID(from.Agent, to, text), ts: relay.MillisOf(time.Now()), group: s.out.word(mailbox),
		sender: from.Agent, name: from.Name, text: text, kind: kind, to: []string{to}}
	s.board.add(m)
	return m
}

// giveTask gives the second agent a task whose result belongs in chat.
func (s *stage) giveTask(ctx context.Context, chat, text string) {
	m, to := s.mail(taskKind, 0, text), s.sidecars[1]
	var sent struct {
		TaskID string `json:"task_id"`
		Note   string
	}
	must(s.useTool(ctx, "send_task", object{"to": to.Agent, "task": text, "callback_chat_id": chat,
		"deadline_minutes": 30}, &sent))
	s.gave(sent.TaskID)
	offline := strings.Contains(sent.Note, "offline")
	if offline == to.runs() {
		must(fmt.Errorf("send_task notes %q, and %s runs: %v", sent.Note, to.Agent, to.runs()))
	}
	if offline {
		s.board.note(s.out.say("send_task answers: coder is offline, the task waits for it",
			"send_task 回答：coder 不在线，任务等它回来"))
		s.board.do(func() { m.waits = true })
	}
}

// gave notes a new task.
func (s *stage) gave(id string) {
	s.board.do(func() {
		s.board.tasks = append(s.board.tasks, &task{id: id})
		s.board.moved(len(s.board.tasks), "pending")
	})
}

// tell sends the second agent a message.
func (s *stage) tell(ctx context.Context, text string) {
	m := s.mail(messageKind, 0, text)
	var sent struct {
		DeliveredTo []string `json:"delivered_to"`
	}
	err := s.useTool(ctx, "send_to_peer", object{"to": m.to[0], "message": text}, &sent)
	if err != nil && strings.Contains(err.Error(), string(rateLimited)) {
		s.refused(m)
		return
	}
	must(err)
	if !slices.Equal(sent.DeliveredTo, m.to) {
		must(fmt.Errorf("send_to_peer: delivered to %q, want %q", sent.DeliveredTo, m.to))
	}
}

// refused notes that mail was not sent.
func (s *stage) refused(m *message) {
	s.board.do(func() { s.board.fate(m.to[0], m.id).stopped = rateLimited })
}

// useTool calls a tool, and reads what it returns into out.
func (s *stage) useTool(ctx context.Context, name string, args object, out any) error {
	result, err := s.tools.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil && result.IsError {
		err = errors.New(result.Content[0].(*mcp.TextContent).Text)
	}
	if err != nil {
		return wrap(err, "the tool %s refuses", name)
	}
	return json.Unmarshal([]byte(asJSON(result.StructuredContent)), out)
}

// awaitTask waits until a task is in a state at both sidecars: one sends a step before it notes it, so the other can
// know of one that a kill would undo.
func (s *stage) awaitTask(ctx context.Context, object string) {
	n, state, id := s.task(object)
	for _, sc := range s.sidecars {
		what := fmt.Sprintf("task %s at %s's sidecar", object, sc.Name)
		must(await(ctx, what, func(ctx context.Context) (bool, error) {
			got, err := sc.tasks(ctx)
			return got[id] == state, err
		}))
	}
	s.board.do(func() { s.board.moved(n, state) })
}

// knowsTask checks that the second sidecar knows a task in a state.
func (s *stage) knowsTask(ctx context.Context, object string) {
	n, state, id := s.task(object)
	got, err := s.sidecars[1].tasks(ctx)
	must(err)
	if got[id] != state {
		must(fmt.Errorf("task %d is %q after the restart, want %q", n, got[id], state))
	}
}

// task reads a task's number and a state, and returns the id as well.
func (s *stage) task(object string) (n int, state, id string) {
	number, state, _ := strings.Cut(object, " ")
	n, err := strconv.Atoi(number)
	must(err)
	s.board.do(func() { id = s.board.tasks[n-1].id })
	return n, state, id
}

// tasks are those that a sidecar knows, and their states.
func (s *sidecar) tasks(ctx context.Context) (map[string]string, error) {
	var answer struct{ Tasks []struct{ ID, State string } }
	err := s.call(ctx, "/v1/mailbox/tasks", &answer)
	states := map[string]string{}
	for _, t := range answer.Tasks {
		states[t.ID] = t.State
	}
	return states, wrap(err, "tasks at %s's sidecar", s.Name)
}

// nothingLeft checks that no mail waits anywhere, that both sides say the same of
// the tasks, that sidecars show no conversations, and that no chat of agents reached Feishu.
func (s *stage) nothingLeft(ctx context.Context, _ string) {
	want := map[string]string{}
	s.board.do(func() {
		for _, t := range s.board.tasks {
			want[t.id] = t.state
		}
	})
	for _, sc := range s.sidecars {
		var left struct {
			Mailbox struct {
				Waiting        int // for the bot
				Unacknowledged int // of what it sent
				OpenTasks      int `json:"open_tasks"`
			}
			Dead        []any `json:"dead_letters"`
			Transcripts []struct{ Channel string }
		}
		must(await(ctx, "no mail waits at "+sc.Name+"'s sidecar", func(ctx context.Context) (bool, error) {
			err := sc.call(ctx, "/v1/status", &left)
			return left.Mailbox.Waiting+left.Mailbox.Unacknowledged+left.Mailbox.OpenTasks == 0, err
		}))
		got, err := sc.tasks(ctx)
		must(err)
		if !maps.Equal(got, want) {
			must(fmt.Errorf("tasks at %s's sidecar: got %v, want %v", sc.Name, got, want))
		}
		must(sc.call(ctx, "/v1/mailbox/dead-letters", &left))
		must(sc.call(ctx, "/v1/transcripts", &left))
		if len(left.Dead) > 0 || len(left.Transcripts) > 0 {
			must(fmt.Errorf("%s's sidecar has %d dead letters and shows the conversations %v, want none", sc.Name,
				len(left.Dead), left.Transcripts))
		}
	}
	for _, r := range s.feishu.Requests() {
		if strings.Contains(r.URI+string(r.Body), "relaypeer") {
			must(fmt.Errorf("%s %s reached Feishu", r.Method, r.URI))
		}
	}
}
