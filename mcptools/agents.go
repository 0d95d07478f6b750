package mcptools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// maxPeers is the most agents that list_peers names, those that can be reached first, and maxDescription the
// most bytes of what each says of itself; a note tells when there are more.
const (
	maxPeers       = 200
	maxDescription = 1024
)

func listPeers(s *service, ctx context.Context, _ struct{}) (agent.Peers, error) {
	if s.Mailbox == nil {
		return agent.Peers{Peers: []agent.Peer{}, Note: mailbox.NoDirectory}, nil
	}
	out, err := s.Mailbox.ListPeers(ctx)
	out.Peers = list(out.Peers)
	slices.SortStableFunc(out.Peers, func(x, y agent.Peer) int {
		return cmp.Compare(fmt.Sprint(y.Reachable), fmt.Sprint(x.Reachable)) // true is behind false
	})
	if more := len(out.Peers) - maxPeers; more > 0 {
		out.Peers = out.Peers[:maxPeers]
		out.Note = strings.TrimPrefix(fmt.Sprintf("%s; %d more agents are left out", out.Note, more), "; ")
	}
	for i := range out.Peers {
		out.Peers[i].Description = cut(out.Peers[i].Description, maxDescription)
	}
	return out, err
}

type sendToPeerArguments struct {
	To            name   `json:"to"`
	Message       string `json:"message"`
	CorrelationID name   `json:"correlation_id,omitempty"`
}

// sendToPeer leaves the gates to the mailbox, which has them in the order of docs/protocol.md 6.7.
func sendToPeer(s *service, ctx context.Context, in sendToPeerArguments) (agent.PeerResult, error) {
	return s.Mailbox.SendToPeer(ctx, agent.PeerMessage{
		To: mailbox.AgentID(in.To), Message: in.Message, CorrelationID: string(in.CorrelationID)})
}

// maxDeadline is the most minutes that deadline_minutes takes: thirty days.
const maxDeadline = 30 * 24 * 60

type sendTaskArguments struct {
	To              name    `json:"to"`
	Task            string  `json:"task"`
	Deadline        string  `json:"deadline,omitempty"`
	DeadlineMinutes minutes `json:"deadline_minutes,omitempty"`
	CallbackChatID  name    `json:"callback_chat_id,omitempty"`
	CallbackChannel name    `json:"callback_channel,omitempty"`
	ForwardOf       name    `json:"forward_of,omitempty"`
}

func sendTask(s *service, ctx context.Context, in sendTaskArguments) (agent.Sent, error) {
	e := mailbox.Envelope{To: mailbox.AgentID(strings.TrimSpace(string(in.To))), Type: mailbox.TypeTask,
		Hops: mailbox.DefaultHops, Task: &mailbox.Task{}}
	e.Content.Parts = []mailbox.Part{mailbox.TextPart(in.Task)}
	var err error
	switch {
	case strings.TrimSpace(in.Task) == "":
		return agent.Sent{}, refuse("task: missing: say what is to be done")
	case in.Deadline != "" && in.DeadlineMinutes != 0:
		return agent.Sent{}, refuse("give deadline or deadline_minutes, not both")
	case in.Deadline != "":
		e.Task.Deadline, err = time.Parse(time.RFC3339, in.Deadline)
	case in.DeadlineMinutes != 0:
		e.Task.Deadline = time.Now().Add(time.Duration(in.DeadlineMinutes) * time.Minute)
	}
	switch {
	case err != nil:
		return agent.Sent{}, refuse(
			"deadline: want RFC 3339 with a zone, such as 2026-11-20T15:00:00Z; or give deadline_minutes")
	case in.CallbackChatID != "":
		e.Callback = &mailbox.Callback{Channel: string(cmp.Or(in.CallbackChannel, relay.DefaultChannel)),
			ChatID: string(in.CallbackChatID)}
	case in.CallbackChannel != "":
		return agent.Sent{}, refuse("callback_channel: name the chat, too, in callback_chat_id")
	}
	return s.Mailbox.Send(ctx, agent.Draft{Envelope: e, ForwardOf: string(in.ForwardOf)})
}

type updateTaskArguments struct {
	TaskID name   `json:"task_id,omitempty"`
	State  step   `json:"state"`
	Text   string `json:"text,omitempty"`
	From   name   `json:"from,omitempty"`
}

func updateTask(s *service, ctx context.Context, in updateTaskArguments) (agent.TaskRecord, error) {
	record, err := s.Mailbox.UpdateTask(ctx, agent.TaskUpdate{
		TaskID: string(in.TaskID), From: mailbox.AgentID(in.From), State: mailbox.TaskState(in.State), Text: in.Text})
	return shown(record), err
}

// shown is t without the conversation that another agent wants the result in:
// that is the other's to use, and would be an invitation to speak there (docs/mailbox.md, Rules).
// The result is left out: the caller has just written it.
func shown(t agent.TaskRecord) agent.TaskRecord {
	t.Result = ""
	if t.Direction == agent.Received {
		t.Callback = nil
	}
	return t
}

// How many messages read_inbox hands out, unless told, and at most. A message
// has at most [mailbox.MaxBody] bytes of text.
const (
	usualMail = 20
	maxMail   = 64
)

type readInboxArguments struct {
	Limit inboxCount `json:"limit,omitempty"`
	Goal  name       `json:"goal,omitempty"`
	// Cursor is of an earlier result, whose messages do not come again.
	Cursor name `json:"cursor,omitempty"`
}

// inboxMessage is a message as a model needs it.
type inboxMessage struct {
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
	Messages []inboxMessage `json:"messages"`
	Dropped  int            `json:"dropped"`
	Waiting  int            `json:"waiting"`
	Cursor   string         `json:"cursor,omitempty"`
	Rendered string         `json:"-"`
}

func readInbox(s *service, ctx context.Context, in readInboxArguments) (inbox, error) {
	d, err := s.Mailbox.Drain(ctx, cmp.Or(int(in.Limit), usualMail), string(in.Goal), string(in.Cursor))
	if err != nil {
		return inbox{}, err
	}
	box := inbox{make([]inboxMessage, 0, len(d.Messages)), d.Dropped, d.Waiting, d.Cursor, d.Rendered}
	given := s.Mailbox.Tasks()
	for _, m := range d.Messages {
		box.Messages = append(box.Messages, inboxMessage{
			ID: m.ID, From: m.From, Type: m.Type, SentAt: m.Timestamp, Priority: m.Priority, Text: m.Text(),
			Parts: slices.DeleteFunc(slices.Clone(m.Content.Parts),
				func(p mailbox.Part) bool { return p.Type == mailbox.PartText }),
			Task: m.Task, Callback: resultChat(m.Envelope, given), ReplyTo: m.ReplyTo,
			CorrelationID: m.Metadata.CorrelationID, Goal: m.Goal,
		})
	}
	return box, nil
}

// resultChat is the conversation that this agent itself named when it gave the task
// that e is a result of. What the sender names is not believed (docs/mailbox.md, Rules).
func resultChat(e mailbox.Envelope, given []agent.TaskRecord) *mailbox.Callback {
	if e.Task == nil || !e.Type.Result() {
		return nil
	}
	for _, t := range given {
		if t.Direction == agent.Given && t.Peer == e.From && t.ID == e.Task.ID {
			return t.Callback
		}
	}
	return nil
}

// content is the messages as the mailbox renders them, and after them what a model needs to
// know of them besides: ids, tasks, where results belong.
func (i inbox) content(string) []mcp.Content {
	var b strings.Builder
	if len(i.Messages) == 0 {
		b.WriteString("No messages wait for you.\n")
	} else {
		fmt.Fprintf(&b, "%s\n\n# ABOUT THEM, IN THIS ORDER. They come again until you call read_inbox with cursor %s\n",
			strings.TrimRight(i.Rendered, "\n"), i.Cursor)
	}
	for _, m := range i.Messages {
		task, belongs := "", ""
		if m.Task != nil {
			task = m.Task.ID
		}
		if c := m.Callback; c != nil {
			belongs = c.Channel + "/" + c.Chat()
		}
		openTag(&b, "about", "id", m.ID, "from", string(m.From), "task_id", task, "result_belongs_in", belongs)
		b.WriteString("/>")
		if m.Type.GivesTask() {
			b.WriteString(" report on it with update_task")
		}
		b.WriteString("\n")
	}
	if i.Dropped != 0 {
		fmt.Fprintf(&b, "%d older peer messages were dropped: too many waited.\n", i.Dropped)
	}
	if i.Waiting != 0 {
		fmt.Fprintf(&b, "%d more wait: call read_inbox again.\n", i.Waiting)
	}
	return textContent(b.String())
}
