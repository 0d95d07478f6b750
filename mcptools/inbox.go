package mcptools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/tasks"
)

// How many messages read_inbox hands out, unless told, and at most. A message
// has at most [mailbox.MaxBody] bytes of text.
const (
	usualMail = 20
	maxMail   = 64
)

func readInboxTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "read_inbox",
		Title: "Read your messages",
		Description: "Take the messages, tasks and results that other agents sent you. What it returned counts as delivered and is " +
			"not returned again, so deal with it, or note it, now. Call it when you start, and again when you wait for an answer; " +
			"it does not wait for new messages itself.",
		Annotations: acts(),
		InputSchema: arguments(schema{
			"limit": numberOf(fmt.Sprintf("at most so many messages (default %d)", usualMail), 1, maxMail),
			"goal":  textOf("only what is for this session (goal_id) of yours; left out: everything, each message once"),
		}),
		OutputSchema: object(schema{
			"messages": listOf(object(schema{
				"id":       textOf("of the message; forward_of takes it"),
				"from":     textOf("agent_id of the sender"),
				"type":     textOf("such as message, task, task_update"),
				"sent_at":  textOf("when"),
				"priority": countOf("1 (critical) to 5 (background)"),
				"text":     textOf("what it says"),
				"parts":    listOf(object(schema{"type": textOf("data or file")}, "type"), "what it has besides text"),
				"task": object(schema{"id": textOf("task_id"), "state": textOf("where it stands"),
					"deadline": textOf("until when")}),
				"callback": object(schema{"channel": textOf("such as feishu"),
					"chat_id": textOf("the group that you said the result belongs in")}),
				"reply_to":       textOf("id of the message that it answers"),
				"correlation_id": textOf("give it back in an answer"),
				"goal_id":        textOf("the session of yours that it is for"),
			}, "id", "from", "type", "text"), "the most urgent first"),
			"dropped": countOf("older peer messages that there was no room for"),
			"waiting": countOf("messages still there: call again"),
		}, "messages", "dropped", "waiting"),
	}
}

type readInboxArguments struct {
	Limit int    `json:"limit"`
	Goal  string `json:"goal"`
}

// letter is a message as a model needs it.
type letter struct {
	ID            string            `json:"id"`
	From          mailbox.AgentID   `json:"from"`
	Type          mailbox.Type      `json:"type"`
	SentAt        time.Time         `json:"sent_at"`
	Priority      mailbox.Priority  `json:"priority"`
	Text          string            `json:"text"`
	Parts         []mailbox.Part    `json:"parts,omitempty"`
	Task          *mailbox.Task     `json:"task,omitempty"`
	Callback      *mailbox.Callback `json:"callback,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Goal          string            `json:"goal_id,omitempty"`
}

type inbox struct {
	Messages []letter `json:"messages"`
	Dropped  int      `json:"dropped"`
	Waiting  int      `json:"waiting"`
}

func readInbox(s *service, ctx context.Context, in readInboxArguments) (answer, error) {
	if s.Mailbox == nil {
		return answer{}, errOff
	}
	if err := short("goal", in.Goal); err != nil {
		return answer{}, err
	}
	limit, err := limited(in.Limit, usualMail, maxMail)
	if err != nil {
		return answer{}, err
	}
	d, err := s.Mailbox.Drain(ctx, limit, in.Goal)
	if err != nil {
		return answer{}, err
	}
	box := inbox{Messages: make([]letter, 0, len(d.Messages)), Dropped: d.Dropped, Waiting: d.Waiting}
	given := s.Mailbox.Tasks()
	for i := range d.Messages {
		l := letterOf(&d.Messages[i])
		l.Callback = belongs(&l, given)
		box.Messages = append(box.Messages, l)
	}
	return answer{value: box, text: box.text(d.Rendered)}, nil
}

func letterOf(m *agent.Mail) letter {
	return letter{
		ID: m.ID, From: m.From, Type: m.Type, SentAt: m.Timestamp, Priority: m.Priority, Text: m.Text(),
		Parts: slices.DeleteFunc(slices.Clone(m.Content.Parts),
			func(p mailbox.Part) bool { return p.Type == mailbox.PartText }),
		Task: m.Task, ReplyTo: m.ReplyTo, CorrelationID: m.Metadata.CorrelationID, Goal: m.Goal,
	}
}

// belongs is the conversation that this agent itself named when it gave the task
// that l is a result of. What the sender names is not believed (docs/mailbox.md, Rules).
func belongs(l *letter, given []tasks.Record) *mailbox.Callback {
	if l.Task == nil || !l.Type.Result() {
		return nil
	}
	for _, t := range given {
		if t.Direction == tasks.Sent && t.Peer == l.From && t.ID == l.Task.ID {
			return t.Callback
		}
	}
	return nil
}

// text is the rendering of the messages, and behind it what a model needs to
// know of them besides: ids, tasks, where results belong.
func (b *inbox) text(rendered string) string {
	var w strings.Builder
	if len(b.Messages) == 0 {
		w.WriteString("No messages wait for you.\n")
	} else {
		w.WriteString(strings.TrimRight(rendered, "\n"))
		w.WriteString("\n\n# ABOUT THEM, IN THIS ORDER\n")
	}
	for i := range b.Messages {
		b.Messages[i].describe(&w)
	}
	if b.Dropped > 0 {
		fmt.Fprintf(&w, "%d older peer messages were dropped: too many waited.\n", b.Dropped)
	}
	if b.Waiting > 0 {
		fmt.Fprintf(&w, "%d more wait: call read_inbox again.\n", b.Waiting)
	}
	return w.String()
}

// describe adds what the rendering has no place for.
func (l *letter) describe(w *strings.Builder) {
	fmt.Fprintf(w, `<about id="%s" from="%s"`, mailbox.EscapeValue(l.ID), mailbox.EscapeValue(string(l.From)))
	if l.Task != nil {
		fmt.Fprintf(w, ` task_id="%s"`, mailbox.EscapeValue(l.Task.ID))
	}
	if c := l.Callback; c != nil {
		fmt.Fprintf(w, ` result_belongs_in="%s"`, mailbox.EscapeValue(c.Channel+"/"+c.Chat()))
	}
	w.WriteString("/>")
	if l.Type.GivesTask() {
		w.WriteString(" report on it with update_task")
	}
	w.WriteString("\n")
}
