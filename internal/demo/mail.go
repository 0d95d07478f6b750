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
func (a *gatewayAct) openTools(ctx context.Context) {
	own, name := a.sidecars[0], a.script.Cast[0].Name
	client := mcp.NewClient(&mcp.Implementation{Name: own.Agent, Version: "1"}, nil)
	var err error
	a.tools, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: own.url() + "/mcp", HTTPClient: own.caller()}, nil)
	must(wrap(err, "the MCP client of %s", name))
}

// mailed is received for what another agent wrote to the i-th bot. It is shown in the chat that it belongs in, as if it
// had been said there. In a chat of its own there is a line below it on what comes of an answer.
func (a *gatewayAct) mailed(i int, in *incoming) (done func()) {
	cast := a.script.Cast
	text, where := in.text, askedIn
	if a.asked.Load() != in.chat {
		where = betweenAgents
		text, _, _ = strings.Cut(text, "\n\n")
	}
	id := mailID(cast[1-i].Agent, cast[i].Agent, text)
	a.board.do(func() { a.board.fate(cast[i].Agent, id).where = where })
	done = a.board.received(cast[i].Agent, id, text)
	if cast[i].Told == nil { // it waits for the scene, which goes on meanwhile
		done()
		return func() {}
	}
	return done
}

// thought is what a scene lets a bot do: answer, or react to what it heard, before an answer follows.
type thought struct{ says, reacts string }

// think waits for a bot's answer from the scene.
func (a *gatewayAct) think(ctx context.Context, b *sdkBot, in *incoming) string {
	for {
		select {
		case thought := <-a.thoughts:
			if thought.reacts == "" {
				return thought.says
			}
			b.react(ctx, in.id, thought.reacts)
		case <-ctx.Done():
			must(context.Cause(ctx))
		}
	}
}

// mail notes that the i-th agent is about to send mail to the other.
func (a *gatewayAct) mail(kind string, i int, text string) *message {
	from, to := &a.script.Cast[i], a.script.Cast[1-i].Agent
	m := &message{id: mailID(from.Agent, to, text), ts: relay.MillisOf(time.Now()), group: a.out.word(mailbox),
		sender: from.Agent, name: from.Name, text: text, kind: kind, to: []string{to}}
	a.board.add(m)
	return m
}

// giveTask gives the second agent a task whose result belongs in chat.
func (a *gatewayAct) giveTask(ctx context.Context, chat, text string) {
	m, to := a.mail(taskKind, 0, text), a.sidecars[1]
	var sent struct {
		TaskID string `json:"task_id"`
		Note   string
	}
	must(a.useTool(ctx, "send_task", object{"to": to.Agent, "task": text, "callback_chat_id": chat, "deadline_minutes": 30}, &sent))
	a.gave(sent.TaskID)
	offline := strings.Contains(sent.Note, "offline")
	if offline == to.runs() {
		must(fmt.Errorf("send_task notes %q, and %s runs: %v", sent.Note, to.Agent, to.runs()))
	}
	if offline {
		a.board.note(a.out.say("send_task answers: coder is offline, the task waits for it", "send_task 回答：coder 不在线，任务等它回来"))
		a.board.do(func() { m.waits = true })
	}
}

// gave notes a new task.
func (a *gatewayAct) gave(id string) {
	a.board.do(func() {
		a.board.tasks = append(a.board.tasks, &task{id: id})
		a.board.moved(len(a.board.tasks), "pending")
	})
}

// tell sends the second agent a message.
func (a *gatewayAct) tell(ctx context.Context, text string) {
	m := a.mail(messageKind, 0, text)
	var sent struct {
		DeliveredTo []string `json:"delivered_to"`
	}
	err := a.useTool(ctx, "send_to_peer", object{"to": m.to[0], "message": text}, &sent)
	if err != nil && strings.Contains(err.Error(), string(rateLimited)) {
		a.refused(m)
		return
	}
	must(err)
	if !slices.Equal(sent.DeliveredTo, m.to) {
		must(fmt.Errorf("send_to_peer: delivered to %q, want %q", sent.DeliveredTo, m.to))
	}
}

// refused notes that mail was not sent.
func (a *gatewayAct) refused(m *message) {
	a.board.do(func() { m.fates[m.to[0]].stopped = rateLimited })
}

// useTool calls a tool, and reads what it returns into out.
func (a *gatewayAct) useTool(ctx context.Context, name string, args object, out any) error {
	result, err := a.tools.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil && result.IsError {
		err = errors.New(result.Content[0].(*mcp.TextContent).Text)
	}
	if err != nil {
		return wrap(err, "the tool %s refuses", name)
	}
	return json.Unmarshal([]byte(asJSON(result.StructuredContent)), out)
}

// mailVerbs let the second agent act, and look at tasks: "2 working" is the second task in that state.
func (a *gatewayAct) mailVerbs() map[string]verb {
	says := func(kind, before string) verb {
		return func(_ context.Context, text string) {
			a.mail(kind, 1, text)
			a.thoughts <- thought{says: before + text}
		}
	}
	return map[string]verb{
		"completed":    says("completed", ""),
		"failed":       says("failed", "/fail "),
		"message":      says(messageKind, ""),
		"react":        func(_ context.Context, emoji string) { a.thoughts <- thought{reacts: emoji} },
		"nothing left": a.nothingLeft,
		// At both sidecars: one sends a step before it notes it, so the other can know of one that a kill would undo.
		"task": func(ctx context.Context, object string) {
			n, state, id := a.task(object)
			for _, sc := range a.sidecars {
				until(ctx, fmt.Sprintf("task %d %s at %s's sidecar", n, state, sc.Name), func(ctx context.Context) (bool, error) {
					got, err := sc.tasks(ctx)
					return got[id] == state, err
				})
			}
			a.board.do(func() { a.board.moved(n, state) })
		},
		"known": func(ctx context.Context, object string) {
			n, state, id := a.task(object)
			got, err := a.sidecars[1].tasks(ctx)
			must(err)
			if got[id] != state {
				must(fmt.Errorf("task %d is %q after the restart, want %q", n, got[id], state))
			}
		},
	}
}

// task reads a task's number and a state, and returns the id as well.
func (a *gatewayAct) task(object string) (n int, state, id string) {
	number, state, _ := strings.Cut(object, " ")
	n, err := strconv.Atoi(number)
	must(err)
	a.board.do(func() { id = a.board.tasks[n-1].id })
	return n, state, id
}

// tasks are those that a sidecar knows, and their states.
func (s *sidecar) tasks(ctx context.Context) (map[string]string, error) {
	var answer struct{ Tasks []struct{ ID, State string } }
	err := s.call(ctx, "/v1/mailbox/tasks", nil, &answer)
	states := map[string]string{}
	for _, t := range answer.Tasks {
		states[t.ID] = t.State
	}
	return states, wrap(err, "tasks at %s's sidecar", s.Name)
}

// nothingLeft checks that no mail waits anywhere, that both sides say the same of
// the tasks, that sidecars show nothing but their mail, and that no chat of agents reached Feishu.
func (a *gatewayAct) nothingLeft(ctx context.Context, _ string) {
	want := map[string]string{}
	a.board.do(func() {
		for _, t := range a.board.tasks {
			want[t.id] = t.state
		}
	})
	for _, sc := range a.sidecars {
		until(ctx, "no mail waits at "+sc.Name+"'s sidecar", func(ctx context.Context) (bool, error) {
			var answer struct {
				Mailbox struct {
					Waiting        int // for the bot
					Unacknowledged int // of what it sent
					OpenTasks      int `json:"open_tasks"`
				}
			}
			err := sc.call(ctx, "/v1/status", nil, &answer)
			left := answer.Mailbox
			return left.Waiting+left.Unacknowledged+left.OpenTasks == 0, err
		})
		got, err := sc.tasks(ctx)
		must(err)
		if !maps.Equal(got, want) {
			must(fmt.Errorf("tasks at %s's sidecar: got %v, want %v", sc.Name, got, want))
		}
		var left struct {
			Dead        []any `json:"dead_letters"`
			Transcripts []struct{ Channel string }
		}
		must(sc.call(ctx, "/v1/mailbox/dead-letters", nil, &left))
		must(sc.call(ctx, "/v1/transcripts", nil, &left))
		if len(left.Dead) > 0 || len(left.Transcripts) != 1 || left.Transcripts[0].Channel != relay.MailChannel {
			must(fmt.Errorf("%s's sidecar has %d dead letters and shows the conversations %v, want none, and the mail",
				sc.Name, len(left.Dead), left.Transcripts))
		}
	}
	for _, r := range a.feishu.Requests() {
		if strings.Contains(r.URI+string(r.Body), "relaypeer") {
			must(fmt.Errorf("%s %s reached Feishu", r.Method, r.URI))
		}
	}
}
