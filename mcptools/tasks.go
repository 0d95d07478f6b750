package mcptools

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/tasks"
	"feishu-relay/relay"
)

// maxDeadline is the most minutes that deadline_minutes takes: thirty days.
const maxDeadline = 30 * 24 * 60

func sendTaskTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "send_task",
		Title: "Give an agent a task",
		Description: "Give another agent work that you want a result of. The result, or why there is none, comes to your inbox, or into " +
			"the conversation that you name; who_am_i lists the tasks still open. Describe the whole task: the other agent does not see " +
			"your conversation. For a mere question or remark use send_to_peer. When you pass on a task that you were given, " +
			"name its message in forward_of: then it cannot go round in circles.",
		Annotations: acts(),
		InputSchema: arguments(schema{
			"to":               textOf("agent_id of the receiver, as list_peers shows it"),
			"task":             textOf("what is to be done, and what the result should look like, at most 64 KiB"),
			"deadline":         textOf("until when, as RFC 3339 with a zone, such as 2026-11-20T15:00:00Z"),
			"deadline_minutes": numberOf("until when, in minutes from now, instead of deadline", 1, maxDeadline),
			"callback_chat_id": textOf(
				"the chat that the result belongs in, where a person asked for it: a group or a private chat, see who_am_i"),
			"callback_channel": textOf("the channel of that chat (default feishu)"),
			"forward_of":       textOf("id of the message that gave you this work, as read_inbox shows it"),
		}, "to", "task"),
		OutputSchema: object(schema{
			"id":         textOf("of the message"),
			"task_id":    textOf("of the task: updates on it carry it"),
			"expires_at": textOf("until when it can be taken"),
			"note":       textOf("such as: the receiver is offline, and until when the task waits for it"),
		}, "id"),
	}
}

type sendTaskArguments struct {
	To              string `json:"to"`
	Task            string `json:"task"`
	Deadline        string `json:"deadline"`
	DeadlineMinutes *int   `json:"deadline_minutes"`
	CallbackChatID  string `json:"callback_chat_id"`
	CallbackChannel string `json:"callback_channel"`
	ForwardOf       string `json:"forward_of"`
}

func sendTask(s *service, ctx context.Context, in sendTaskArguments) (answer, error) {
	if s.Mailbox == nil {
		return answer{}, errOff
	}
	if err := short("to", in.To, "forward_of", in.ForwardOf,
		"callback_chat_id", in.CallbackChatID, "callback_channel", in.CallbackChannel); err != nil {
		return answer{}, err
	}
	d := agent.TaskDraft{To: mailbox.AgentID(in.To), Text: in.Task, ForwardOf: in.ForwardOf}
	var err error
	if d.Deadline, err = in.deadline(time.Now()); err != nil {
		return answer{}, err
	}
	if d.Callback, err = in.callback(); err != nil {
		return answer{}, err
	}
	if strings.TrimSpace(in.Task) == "" {
		return answer{}, badArgument("task: missing: say what is to be done")
	}
	sent, err := s.Mailbox.SendTask(ctx, d)
	if err != nil {
		return answer{}, err
	}
	return answer{value: sent}, nil
}

// deadline is when the task has to be done, or zero.
func (in *sendTaskArguments) deadline(now time.Time) (time.Time, error) {
	switch {
	case in.Deadline != "" && in.DeadlineMinutes != nil:
		return time.Time{}, badArgument("give deadline or deadline_minutes, not both")
	case in.DeadlineMinutes != nil:
		if *in.DeadlineMinutes < 1 || *in.DeadlineMinutes > maxDeadline {
			return time.Time{}, badArgument("deadline_minutes: want a number from 1 to %d, got %d", maxDeadline,
				*in.DeadlineMinutes)
		}
		return now.Add(time.Duration(*in.DeadlineMinutes) * time.Minute), nil
	case in.Deadline != "":
		at, err := time.Parse(time.RFC3339, in.Deadline)
		if err != nil {
			return time.Time{}, badArgument(
				"deadline: want RFC 3339 with a zone, such as 2026-11-20T15:00:00Z; or give deadline_minutes")
		}
		return at, nil
	}
	return time.Time{}, nil
}

// callback is the conversation that the result belongs in, or nil.
func (in *sendTaskArguments) callback() (*mailbox.Callback, error) {
	if in.CallbackChatID == "" {
		if in.CallbackChannel != "" {
			return nil, badArgument("callback_channel: name the chat, too, in callback_chat_id")
		}
		return nil, nil
	}
	channel := in.CallbackChannel
	if channel == "" {
		channel = relay.DefaultChannel
	}
	return &mailbox.Callback{Channel: channel, ChatID: in.CallbackChatID}, nil
}

// steps are the states that an agent can report on a task that it was given.
var steps = []string{string(mailbox.Accepted), string(mailbox.Working), string(mailbox.Completed),
	string(mailbox.Failed), string(mailbox.Rejected)}

func updateTaskTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "update_task",
		Title: "Report on a task you were given",
		Description: "Tell who gave you a task how it stands. End every task: completed with the result in text, failed with the " +
			"reason, or rejected with the reason if you cannot or will not do it. working is for long tasks, with what is done so far. " +
			"Not for tasks that you gave to others.",
		Annotations: acts(),
		InputSchema: arguments(schema{
			"task_id": textOf("id of the task; may be left out while only one is open"),
			"state":   oneOf("where it stands now", steps...),
			"text":    textOf("the result, the reason or the progress, at most 64 KiB"),
			"from":    textOf("agent_id of who gave it; needed only where two gave tasks with the same id"),
		}, "state"),
		OutputSchema: object(schema{
			"id":    textOf("of the task"),
			"peer":  textOf("agent_id of who gave it"),
			"state": textOf("where it stands now"),
		}, "id", "peer", "state"),
	}
}

type updateTaskArguments struct {
	TaskID string `json:"task_id"`
	State  string `json:"state"`
	Text   string `json:"text"`
	From   string `json:"from"`
}

func updateTask(s *service, ctx context.Context, in updateTaskArguments) (answer, error) {
	if s.Mailbox == nil {
		return answer{}, errOff
	}
	if err := short("task_id", in.TaskID, "from", in.From); err != nil {
		return answer{}, err
	}
	if !slices.Contains(steps, in.State) {
		return answer{}, badArgument("state: want one of %s, got %q", strings.Join(steps, ", "), cut(in.State, maxShown))
	}
	record, err := s.Mailbox.UpdateTask(ctx, agent.TaskUpdate{
		TaskID: in.TaskID, From: mailbox.AgentID(in.From), State: mailbox.TaskState(in.State), Text: in.Text})
	if err != nil {
		return answer{}, err
	}
	return answer{value: shown(record)}, nil
}

// shown is t without the conversation that another agent wants the result in:
// that is the other's to use, and would be an invitation to speak there (docs/mailbox.md, Rules).
func shown(t tasks.Record) tasks.Record {
	if t.Direction == tasks.Received {
		t.Callback = nil
	}
	return t
}
