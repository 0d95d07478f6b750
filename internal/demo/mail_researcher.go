package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/relay"
)

// researcher is what the bot on the SDK thinks with: the peer tools of its
// sidecar are all that it knows of other agents.
type researcher struct {
	character
	stage *stage
	tools *mcp.ClientSession
	asked atomic.Pointer[string] // the chat in which a person spoke to it
}

func newResearcher(ctx context.Context, s *stage, url string) (*researcher, error) {
	r := &researcher{character: mailCast[0], stage: s}
	client := mcp.NewClient(&mcp.Implementation{Name: r.agent, Version: "1"}, nil)
	var err error
	if r.tools, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: s.client.http}, nil); err != nil {
		return nil, fmt.Errorf("the Researcher's MCP client: %w", err)
	}
	return r, nil
}

func (r *researcher) close() { _ = r.tools.Close() } // nothing is under way any more

// received notes what the SDK gave the bot. What another agent said is shown in
// the chat that it belongs in, as if it had been said there.
func (r *researcher) received(in incoming) (done func()) {
	if !in.fromBot {
		r.asked.Store(&in.chat)
		return r.stage.board.received(r.agent, relay.MessageID(in.id), in.text)
	}
	where := "another chat"
	if asked := r.asked.Load(); asked != nil && *asked == in.chat && in.private {
		where = askedIn
	}
	return r.stage.board.arrived(r.agent, mailID(mailCast[1].agent, r.agent, in.text), in.text, where)
}

// askedIn is where results belong: the private chat that the person asked in.
const askedIn = "the chat that asked"

// answer is what the bot says; what it does for that it has done then.
func (r *researcher) answer(ctx context.Context, in incoming) (string, error) {
	switch {
	case in.fromBot && has(in.words, code):
		return "Coder 写好了：\n" + in.words, nil
	case in.fromBot:
		_, err := r.giveTask(ctx, in.chat, "请再看看：写一个 Go 排序函数，有空就做。")
		return "Coder 说现在不行，我又请它有空时做。", err
	case has(in.words, thanks):
		return "好，已经转告。", r.tell(ctx, "用户说谢谢，函数很好用！")
	case has(in.words, "回话 answer"):
		return r.readInbox(ctx)
	}
	note, err := r.giveTask(ctx, in.chat, "写一个 Go 排序函数，把代码发回来。")
	if err == nil && !strings.Contains(note, "offline") {
		err = fmt.Errorf("send_task notes %q, want that the other is offline", note)
	}
	return "交给 Coder 了；它不在线，回来就做。", err
}

// giveTask gives the Coder a task whose result belongs in chat.
func (r *researcher) giveTask(ctx context.Context, chat, text string) (note string, err error) {
	m := r.stage.board.mail(taskKind, &mailCast[0], &mailCast[1], text)
	var sent struct {
		TaskID string `json:"task_id"`
		Note   string
	}
	if err := r.call(ctx, "send_task", map[string]any{"to": mailCast[1].agent, "task": text,
		"callback_chat_id": chat, "deadline_minutes": 30}, &sent); err != nil {
		return "", err
	}
	r.stage.board.gave(sent.TaskID)
	if sent.Note != "" {
		r.stage.board.note("send_task notes: %s", sent.Note)
		r.stage.board.waiting(m)
	}
	return sent.Note, nil
}

// tell sends the Coder a message.
func (r *researcher) tell(ctx context.Context, text string) error {
	m := r.stage.board.mail(messageKind, &mailCast[0], &mailCast[1], text)
	var result peerResult
	err := r.call(ctx, "send_to_peer", map[string]any{"to": mailCast[1].agent, "message": text}, &result)
	if no, ok := errors.AsType[refusal](err); ok && strings.HasPrefix(string(no), string(rateLimited)) {
		r.stage.board.refused(m, rateLimited)
		why, _, _ := strings.Cut(string(no), ";")
		r.stage.board.note("send_to_peer refuses: %s", why)
		return nil
	}
	if err != nil {
		return err
	}
	return result.err()
}

// readInbox reads what came outside of any chat, and is too polite not to answer.
func (r *researcher) readInbox(ctx context.Context) (string, error) {
	var inbox struct{ Messages []struct{ From, Text string } }
	if err := r.call(ctx, "read_inbox", nil, &inbox); err != nil {
		return "", err
	}
	answer := []string{"它回话说："}
	for _, m := range inbox.Messages {
		r.stage.board.arrived(r.agent, mailID(m.From, r.agent, m.Text), m.Text, "read_inbox")()
		answer = append(answer, m.Text)
	}
	return strings.Join(answer, ""), r.tell(ctx, "哪里，该谢你！")
}

// refusal is what a tool says that does not do what it was asked to.
type refusal string

func (r refusal) Error() string { return string(r) }

// call calls a tool, and reads what it returns into out.
func (r *researcher) call(ctx context.Context, name string, args map[string]any, out any) error {
	result, err := r.tools.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return fmt.Errorf("the tool %s: %w", name, err)
	}
	if result.IsError {
		var says refusal
		for _, c := range result.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				says += refusal(text.Text)
			}
		}
		return fmt.Errorf("the tool %s: %w", name, says)
	}
	data, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return fmt.Errorf("the tool %s: %w", name, err)
	}
	return json.Unmarshal(data, out)
}
