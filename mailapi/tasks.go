package mailapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// Tasks is the answer of GET /v1/mailbox/tasks: tasks of this agent and those that it
// gave to others, the newest first.
type Tasks struct {
	Tasks   []agent.TaskRecord `json:"tasks"`
	Earlier string             `json:"earlier,omitempty"`
}

type tasks struct {
	webapi.Paged
	State     mailbox.TaskState `query:"state" enum:"|pending|accepted|working|completed|failed|rejected"`
	Direction agent.Direction   `query:"direction" enum:"|received|sent"`
}

func (a *API) tasks(_ context.Context, in tasks) (Tasks, error) {
	rows := slices.DeleteFunc(slices.Clone(a.Mailbox.Tasks()), func(t agent.TaskRecord) bool {
		return in.State != "" && t.State != in.State || in.Direction != "" && t.Direction != in.Direction
	})
	return page(rows, in.Paged)
}

func page(rows []agent.TaskRecord, p webapi.Paged) (out Tasks, err error) {
	out.Tasks, out.Earlier, err = webapi.Page(rows, p, func(t *agent.TaskRecord) webapi.Place {
		return webapi.Place{At: t.CreatedAt.UnixMilli(), Key: string(t.Direction) + "/" + string(t.Peer) + "/" + t.ID}
	})
	for i := range out.Tasks {
		out.Tasks[i].Trace = web.List(out.Tasks[i].Trace)
	}
	return out, err
}

type oneTask struct {
	ID mailID `path:"id"`
	webapi.Paged
}

// task lists all tasks of an id, which several agents may have given.
func (a *API) task(_ context.Context, in oneTask) (Tasks, error) {
	others := func(t agent.TaskRecord) bool { return t.ID != string(in.ID) }
	rows := slices.DeleteFunc(slices.Clone(a.Mailbox.Tasks()), others)
	if len(rows) == 0 {
		return Tasks{}, mailbox.Refused(mailbox.TaskNotFound, "id", "no such task; GET /v1/mailbox/tasks lists them")
	}
	return page(rows, in.Paged)
}

// Said is what a task or a step of one says: a text, and further parts.
type Said struct {
	Text  text              `json:"text"`
	Parts []json.RawMessage `json:"parts"`
}

// envelope reads what is to be sent about a task: content, which may be nil, where s is empty, and the envelope's other
// fields. An error names the envelope's field.
func (s *Said) envelope(content json.RawMessage, fields map[string]any) (mailbox.Envelope, error) {
	fields["content"] = content
	switch {
	case len(s.Parts) > 0:
		fields["content"] = map[string]any{"parts": s.Parts}
	case s.Text != "":
		fields["content"] = s.Text
	}
	e, err := decode(fields)
	if len(s.Parts) > 0 && s.Text != "" {
		e.Content.Parts = slices.Insert(e.Content.Parts, 0, mailbox.TextPart(string(s.Text)))
	}
	return e, err
}

// newTask is a task to give. It is in Text and Parts, or in Content in any form that an envelope's content may have.
type newTask struct {
	Body struct {
		Said
		To        string          `json:"to"`
		Content   json.RawMessage `json:"content"`
		TaskID    mailID          `json:"task_id"`
		Deadline  json.RawMessage `json:"deadline"` // like an envelope's: ISO 8601, or seconds or milliseconds
		Priority  json.RawMessage `json:"priority"`
		Callback  json.RawMessage `json:"callback"`
		ForwardOf mailID          `json:"forward_of"`
	} `body:"strict"`
}

func (a *API) sendTask(ctx context.Context, in newTask) (agent.Sent, error) {
	b := &in.Body
	given, inParts := len(b.Content) > 0 && string(b.Content) != "null", b.Text != "" || len(b.Parts) > 0
	switch {
	case inParts && given:
		return agent.Sent{}, mailbox.Invalid("content", "give text (and parts), or content")
	case !inParts && !given:
		return agent.Sent{}, mailbox.Invalid("text", "missing: say what is to be done")
	}
	task := map[string]any{"id": b.TaskID, "state": mailbox.Pending, "deadline": b.Deadline}
	if b.TaskID == "" {
		task["id"] = "new" // the mailbox assigns the real one
	}
	e, err := b.envelope(b.Content, map[string]any{"to": b.To, "type": mailbox.TypeTask, "task": task,
		"priority": b.Priority, "callback": b.Callback})
	if err != nil {
		return agent.Sent{}, err
	}
	e.Task.ID = string(b.TaskID)
	return a.Mailbox.Send(ctx, agent.Draft{Envelope: e, ForwardOf: string(b.ForwardOf)})
}

type taskStep struct {
	ID   mailID `path:"id"`
	Body struct {
		Said
		State  mailbox.TaskState `json:"state" enum:"accepted|working|completed|failed|rejected"`
		From   mailID            `json:"from"`
		Result text              `json:"result"` // the text, by its purpose
		Reason text              `json:"reason"` // likewise
	}
}

// updateTask reports a step of a task of this agent.
func (a *API) updateTask(ctx context.Context, in taskStep) (agent.TaskRecord, error) {
	b := &in.Body
	b.Text += b.Result + b.Reason
	u := agent.TaskUpdate{TaskID: string(in.ID), State: b.State, From: mailbox.AgentID(b.From),
		Text: string(b.Text)}
	if len(b.Parts) > 0 {
		e, err := b.envelope(nil, map[string]any{"to": "peer"}) // the mailbox fills in the receiver
		if err != nil {
			return agent.TaskRecord{}, err
		}
		isText := func(p mailbox.Part) bool { return p.Type == mailbox.PartText }
		u.Text, u.Parts = e.Text(), slices.DeleteFunc(e.Content.Parts, isText)
	}
	record, err := a.Mailbox.UpdateTask(ctx, u)
	if e, ok := errors.AsType[*mailbox.Error](err); ok && e.Field == "state" {
		refusal := a.web.Refusal(ctx, "", err)
		refusal.Status = http.StatusConflict
		return record, refusal
	}
	record.Trace = web.List(record.Trace)
	return record, err
}
