package mailapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

var (
	states = mailbox.TaskStates()
	steps  = states[1:] // the states that an agent can report; a new task is pending
)

// tasks serves GET /v1/mailbox/tasks: tasks of this agent and those that it
// gave to others, the newest first.
func (a *API) tasks(r *http.Request) (any, error) {
	state, err := oneOf(r, "state", states...)
	var direction agent.Direction
	if err == nil {
		direction, err = oneOf(r, "direction", agent.Received, agent.Given)
	}
	if err != nil {
		return nil, err
	}
	rows := slices.DeleteFunc(slices.Clone(a.Mailbox.Tasks()), func(t agent.TaskRecord) bool {
		return state != "" && t.State != state || direction != "" && t.Direction != direction
	})
	return taskRows(rows), nil
}

// task serves GET /v1/mailbox/tasks/{id}: all tasks of that id, which several
// agents may have given.
func (a *API) task(r *http.Request) (any, error) {
	id := r.PathValue("id")
	if err := checkMailID("id", id); err != nil {
		return nil, err
	}
	rows := a.Mailbox.Task(id)
	if len(rows) == 0 {
		return nil, &mailbox.Error{Code: mailbox.TaskNotFound, Field: "id",
			Message: "no such task; GET /v1/mailbox/tasks lists them"}
	}
	return taskRows(slices.Clone(rows)), nil
}

func taskRows(rows []agent.TaskRecord) any {
	for i := range rows {
		rows[i].Trace = web.List(rows[i].Trace)
	}
	return map[string][]agent.TaskRecord{"tasks": web.List(rows)}
}

// taskBody is the body of POST /v1/mailbox/tasks. The task is in Text and Parts,
// or in Content in any form that an envelope's content may have.
type taskBody struct {
	To        string            `json:"to"`
	Text      string            `json:"text"`
	Parts     []json.RawMessage `json:"parts"`
	Content   json.RawMessage   `json:"content"`
	TaskID    string            `json:"task_id"`
	Deadline  json.RawMessage   `json:"deadline"` // like an envelope's: ISO 8601, or seconds or milliseconds
	Priority  json.RawMessage   `json:"priority"`
	Callback  json.RawMessage   `json:"callback"`
	ForwardOf string            `json:"forward_of"`
}

func (a *API) sendTask(r *http.Request) (any, error) {
	draft, err := readTask(r)
	if err != nil {
		return nil, err
	}
	sent, err := a.Mailbox.SendTask(r.Context(), draft)
	if err != nil {
		return nil, taskField(err)
	}
	return sent, nil
}

func readTask(r *http.Request) (d agent.TaskDraft, err error) {
	var body taskBody
	if err := readMail(r, &body); err != nil {
		return d, err
	}
	if strings.TrimSpace(body.Text) == "" {
		body.Text = ""
	}
	inParts := body.Text != "" || len(body.Parts) > 0
	switch {
	case inParts && given(body.Content):
		return d, mailbox.Invalid("content", "give text (and parts), or content")
	case inParts:
		if body.Content, err = contentOf(body.Text, body.Parts); err != nil {
			return d, err
		}
	case !given(body.Content):
		return d, mailbox.Invalid("text", "missing: say what is to be done")
	}
	if err := cmp.Or(checkOptional("task_id", body.TaskID), checkOptional("forward_of", body.ForwardOf)); err != nil {
		return d, err
	}
	e, err := taskEnvelope(body)
	if err != nil && inParts {
		err = partField(err, body.Text)
	}
	if err != nil {
		return d, taskField(err)
	}
	d = agent.TaskDraft{To: e.To, TaskID: body.TaskID, Callback: e.Callback, ForwardOf: body.ForwardOf}
	d.Text, d.Data = split(e)
	if given(body.Priority) {
		d.Priority = e.Priority
	}
	if e.Task != nil {
		d.Deadline = e.Task.Deadline
	}
	return d, nil
}

// given reports whether a field of the body is present, and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// taskEnvelope converts the body to its envelope and reads that, so that one
// parser checks both.
func taskEnvelope(body taskBody) (mailbox.Envelope, error) {
	task := map[string]any{"id": body.TaskID, "state": mailbox.Pending}
	if body.TaskID == "" {
		task["id"] = "new" // the mailbox assigns the real one
	}
	if given(body.Deadline) {
		task["deadline"] = body.Deadline
	}
	fields := map[string]json.RawMessage{"content": body.Content}
	for name, value := range map[string]any{"to": body.To, "type": mailbox.TypeTask, "task": task} {
		raw, err := relay.Marshal(value)
		if err != nil {
			return mailbox.Envelope{}, err
		}
		fields[name] = raw
	}
	for name, raw := range map[string]json.RawMessage{"priority": body.Priority, "callback": body.Callback} {
		if given(raw) {
			fields[name] = raw
		}
	}
	return envelope(fields)
}

// contentOf returns the content of a text and further parts.
func contentOf(text string, parts []json.RawMessage) (json.RawMessage, error) {
	if text != "" {
		first, err := relay.Marshal(mailbox.Part{Type: mailbox.PartText, Text: text})
		if err != nil {
			return nil, err
		}
		parts = slices.Concat([]json.RawMessage{first}, parts)
	}
	return relay.Marshal(map[string]any{"parts": parts})
}

// split returns the text of e, and its other parts.
func split(e mailbox.Envelope) (text string, others []mailbox.Part) {
	for _, p := range e.Content.Parts {
		if p.Type != mailbox.PartText {
			others = append(others, p)
		}
	}
	return e.Text(), others
}

// taskField names the field of an error by its name in the body of a task.
func taskField(err error) error {
	e, ok := errors.AsType[*mailbox.Error](err)
	switch {
	case !ok || !strings.HasPrefix(e.Field, "task."):
		return err
	case e.Field == "task.id":
		return inField("task_id", err)
	}
	return inField(strings.TrimPrefix(e.Field, "task."), err)
}

// partField names the field of an error by its name in a body with text and
// parts; see contentOf.
func partField(err error, text string) error {
	e, ok := errors.AsType[*mailbox.Error](err)
	if !ok || e.Field != "content" && !strings.HasPrefix(e.Field, "content.") {
		return err
	}
	number, rest, _ := strings.Cut(strings.TrimPrefix(e.Field, "content.parts."), ".")
	n, notPart := strconv.Atoi(number)
	switch {
	case notPart != nil && text == "":
		return inField("parts", err)
	case notPart != nil || n == 0 && text != "":
		return inField("text", err)
	case text != "":
		n--
	}
	return inField(strings.TrimSuffix("parts."+strconv.Itoa(n)+"."+rest, "."), err)
}

// updateTask serves POST /v1/mailbox/tasks/{id}: a step of a task of this
// agent.
func (a *API) updateTask(r *http.Request) (any, error) {
	update, err := readUpdate(r)
	if err != nil {
		return nil, err
	}
	record, err := a.Mailbox.UpdateTask(r.Context(), update)
	if err != nil {
		return nil, about("state", http.StatusConflict, err)
	}
	record.Trace = web.List(record.Trace)
	return record, nil
}

func readUpdate(r *http.Request) (u agent.TaskUpdate, err error) {
	u.TaskID = r.PathValue("id")
	if err := checkMailID("id", u.TaskID); err != nil {
		return u, err
	}
	var body struct {
		State mailbox.TaskState `json:"state"`
		Text  string            `json:"text"`
		Parts []json.RawMessage `json:"parts"`
		From  mailbox.AgentID   `json:"from"`
		// Other names of the text, by its purpose.
		Result string `json:"result"`
		Reason string `json:"reason"`
	}
	if err := readMail(r, &body); err != nil {
		return u, err
	}
	body.Text = cmp.Or(body.Text, body.Result, body.Reason)
	if !slices.Contains(steps, body.State) {
		return u, mailbox.Invalid("state", "want one of %s", joined(steps))
	}
	u.State, u.From = body.State, body.From
	if err := inField("from", mailbox.CheckAgent(u.From)); u.From != "" && err != nil {
		return u, err
	}
	if strings.TrimSpace(body.Text) == "" {
		body.Text = ""
	}
	if body.Text == "" && len(body.Parts) == 0 {
		return u, nil
	}
	content, err := contentOf(body.Text, body.Parts)
	if err != nil {
		return u, err
	}
	// The mailbox fills in the receiver when it sends this.
	e, err := envelope(map[string]json.RawMessage{
		"to": json.RawMessage(`"somebody"`), "type": json.RawMessage(`"message"`), "content": content})
	if err != nil {
		return u, partField(err, body.Text)
	}
	u.Text, u.Parts = split(e)
	return u, nil
}
