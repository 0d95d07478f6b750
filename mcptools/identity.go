package mcptools

import (
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// The most open tasks and conversations that who_am_i names; the rest is left
// out, the oldest tasks and the last of the conversations given.
const (
	maxTasks         = 50
	maxConversations = 200
)

// Identity is the answer of who_am_i. AgentID, Goals and OpenTasks come from the
// [Mailbox] where there is one; the rest is what Options.WhoAmI says.
type Identity struct {
	AgentID       mailbox.AgentID `json:"agent_id"`
	BotName       string          `json:"bot_name,omitempty"` // in the groups; "": not known yet
	Description   string          `json:"description,omitempty"`
	Capabilities  []string        `json:"capabilities"`
	Goals         []string        `json:"goals"`
	OpenTasks     []tasks.Record  `json:"open_tasks"` // the newest first
	Conversations []Conversation  `json:"conversations"`
	Limits        Limits          `json:"limits"`
}

// Conversation is a chat that the bot is in.
type Conversation struct {
	Channel       string    `json:"channel"`
	ChatID        string    `json:"chat_id"`
	ChatType      string    `json:"chat_type"` // "group" or "p2p"
	Name          string    `json:"name,omitempty"`
	LastMessageAt time.Time `json:"last_message_at,omitzero"`
}

// Limits is what this agent is held to.
type Limits struct {
	MaxMessageBytes    int `json:"max_message_bytes"`
	MaxConcurrentTasks int `json:"max_concurrent_tasks"`
	MaxExchanges       int `json:"max_exchanges_per_peer"` // in ten minutes; 0: no limit
}

func whoAmITool() *mcp.Tool {
	taskOf := object(schema{
		"id":        textOf("of the task"),
		"direction": textOf("received: you were given it; sent: you gave it"),
		"peer":      textOf("agent_id of who gave it, or was given it"),
		"state":     textOf("where it stands"),
		"text":      textOf("what is to be done, cut"),
		"deadline":  textOf("until when"),
	}, "id", "direction", "peer", "state")
	return &mcp.Tool{
		Name:  "who_am_i",
		Title: "Who am I?",
		Description: "Your own agent_id and name, the tasks that are open (given to you and by you), the conversations you are in, the newest first, " +
			"and your limits. Call it when you start, or when you do not know what you are in the middle of.",
		Annotations: reads(false),
		InputSchema: arguments(schema{}),
		OutputSchema: object(schema{
			"agent_id":     textOf("your name among agents"),
			"bot_name":     textOf("your name in the groups"),
			"description":  textOf("what you are for"),
			"capabilities": listOf(textOf("one of them"), "what you can do"),
			"goals":        listOf(textOf("an id"), "your live sessions"),
			"open_tasks":   listOf(taskOf, "not yet completed, failed or rejected"),
			"conversations": listOf(object(schema{
				"channel":         textOf("such as feishu"),
				"chat_id":         textOf("what read_transcript (of groups) and callback_chat_id of send_task take"),
				"chat_type":       textOf("group or p2p"),
				"name":            textOf("of the group"),
				"last_message_at": textOf("when somebody last spoke there"),
			}, "channel", "chat_id"), "where you are"),
			"limits": object(schema{
				"max_message_bytes":    countOf("of one message"),
				"max_concurrent_tasks": countOf("that you are given at once"),
				"max_exchanges_per_peer": countOf("messages between you and one agent in ten minutes; " +
					"one result for each task or question is exempt; 0: no limit"),
			}),
		}, "agent_id"),
	}
}

func whoAmI(s *service, ctx context.Context, _ noArguments) (answer, error) {
	me := s.WhoAmI(ctx)
	if s.Mailbox != nil {
		me.AgentID, me.Goals = s.Mailbox.Self(), s.Mailbox.Goals()
		me.OpenTasks = slices.DeleteFunc(slices.Clone(s.Mailbox.Tasks()),
			func(t tasks.Record) bool { return tasks.Terminal(t.State) })
	}
	me.OpenTasks = atMost(me.OpenTasks, maxTasks)
	for i, t := range me.OpenTasks {
		me.OpenTasks[i] = shown(t)
	}
	me.Conversations = atMost(me.Conversations, maxConversations)
	me.Capabilities, me.Goals = append([]string{}, me.Capabilities...), append([]string{}, me.Goals...)
	return answer{value: me}, nil
}

// atMost is the first n of list, and no null in JSON.
func atMost[T any](list []T, n int) []T { return append([]T{}, list[:min(len(list), n)]...) }
