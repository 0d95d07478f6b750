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

// maxPeers is the most agents that list_peers names, and maxDescription the
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
	for i := range out.Peers {
		out.Peers[i].Description = cut(out.Peers[i].Description, maxDescription)
	}
	if more := len(out.Peers) - maxPeers; more > 0 {
		// Whom one can reach comes first, else the order stays.
		others := slices.DeleteFunc(slices.Clone(out.Peers), func(p agent.Peer) bool { return p.Reachable })
		out.Peers = slices.DeleteFunc(out.Peers, func(p agent.Peer) bool { return !p.Reachable })
		out.Peers = append(out.Peers, others...)[:maxPeers]
		out.Note = strings.TrimPrefix(fmt.Sprintf("%s; %d more agents are left out", out.Note, more), "; ")
	}
	return out, err
}

type sendToPeerArguments struct {
	To            name   `json:"to" jsonschema:"agent_id of the receiver, as list_peers shows it; \"*\": all"`
	Message       string `json:"message" jsonschema:"what to tell it, at most 64 KiB"`
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
	To              name    `json:"to" jsonschema:"agent_id of the receiver, as list_peers shows it"`
	Task            string  `json:"task"`
	Deadline        string  `json:"deadline,omitempty"`
	DeadlineMinutes minutes `json:"deadline_minutes,omitempty"`
	CallbackChatID  name    `json:"callback_chat_id,omitempty"`
	CallbackChannel name    `json:"callback_channel,omitempty" jsonschema:"the channel of that chat (default feishu)"`
	ForwardOf       name    `json:"forward_of,omitempty"`
}

func sendTask(s *service, ctx context.Context, in sendTaskArguments) (agent.Sent, error) {
	d := agent.TaskDraft{To: mailbox.AgentID(in.To), Text: in.Task, ForwardOf: string(in.ForwardOf)}
	var err error
	if d.Deadline, err = in.deadline(time.Now()); err != nil {
		return agent.Sent{}, err
	}
	if d.Callback, err = in.callback(); err != nil {
		return agent.Sent{}, err
	}
	if strings.TrimSpace(in.Task) == "" {
		return agent.Sent{}, refuse("task: missing: say what is to be done")
	}
	return s.Mailbox.SendTask(ctx, d)
}

// deadline is when the task has to be done, or zero.
func (in *sendTaskArguments) deadline(now time.Time) (time.Time, error) {
	if in.Deadline == "" && in.DeadlineMinutes == 0 {
		return time.Time{}, nil
	}
	if in.Deadline == "" {
		return now.Add(time.Duration(in.DeadlineMinutes) * time.Minute), nil
	}
	if in.DeadlineMinutes != 0 {
		return time.Time{}, refuse("give deadline or deadline_minutes, not both")
	}
	at, err := time.Parse(time.RFC3339, in.Deadline)
	if err != nil {
		return time.Time{}, refuse(
			"deadline: want RFC 3339 with a zone, such as 2026-11-20T15:00:00Z; or give deadline_minutes")
	}
	return at, nil
}

// callback is the conversation that the result belongs in, or nil.
func (in *sendTaskArguments) callback() (*mailbox.Callback, error) {
	if in.CallbackChatID != "" {
		return &mailbox.Callback{Channel: string(cmp.Or(in.CallbackChannel, relay.DefaultChannel)),
			ChatID: string(in.CallbackChatID)}, nil
	}
	if in.CallbackChannel != "" {
		return nil, refuse("callback_channel: name the chat, too, in callback_chat_id")
	}
	return nil, nil
}

type updateTaskArguments struct {
	TaskID name   `json:"task_id,omitempty" jsonschema:"id of the task; may be left out while only one is open"`
	State  step   `json:"state" jsonschema:"where it stands now"`
	Text   string `json:"text,omitempty" jsonschema:"the result, the reason or the progress, at most 64 KiB"`
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
	Limit inboxCount `json:"limit,omitempty" jsonschema:"the most messages to return (default 20)"`
	Goal  name       `json:"goal,omitempty"`
	// Cursor is of an earlier result, whose messages do not come again.
	Cursor name `json:"cursor,omitempty"`
}

// inboxMessage is a message as a model needs it.
type inboxMessage struct {
	ID            string            `json:"id" jsonschema:"of the message; forward_of takes it"`
	From          mailbox.AgentID   `json:"from" jsonschema:"agent_id of the sender"`
	Type          mailbox.Type      `json:"type" jsonschema:"such as message, task, task_update"`
	SentAt        time.Time         `json:"sent_at"`
	Priority      mailbox.Priority  `json:"priority" jsonschema:"1 (critical) to 5 (background)"`
	Text          string            `json:"text"`
	Parts         []mailbox.Part    `json:"parts,omitempty" jsonschema:"what it has besides text"`
	Task          *mailbox.Task     `json:"task,omitempty"`
	Callback      *mailbox.Callback `json:"callback,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty" jsonschema:"id of the message that it answers"`
	CorrelationID string            `json:"correlation_id,omitempty" jsonschema:"give it back in an answer"`
	Goal          string            `json:"goal_id,omitempty" jsonschema:"the session of yours that it is for"`
}

type inbox struct {
	Messages []inboxMessage `json:"messages" jsonschema:"the most urgent first"`
	Dropped  int            `json:"dropped" jsonschema:"older peer messages that there was no room for"`
	Waiting  int            `json:"waiting" jsonschema:"messages besides these: call again"`
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
		b.WriteString("<about")
		mailbox.WriteAttribute(&b, "id", m.ID)
		mailbox.WriteAttribute(&b, "from", string(m.From))
		if m.Task != nil {
			mailbox.WriteAttribute(&b, "task_id", m.Task.ID)
		}
		if c := m.Callback; c != nil {
			mailbox.WriteAttribute(&b, "result_belongs_in", c.Channel+"/"+c.Chat())
		}
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
