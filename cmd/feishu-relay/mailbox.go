package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/internal/words"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// mailboxFlags are those of all commands of the mailbox.
type mailboxFlags struct {
	reach
	JSON bool `long:"json"`
}

// askMailbox asks the sidecar.
func askMailbox[T any](
	p *cli, f mailboxFlags, method, path string, body any, show func(*client, *strings.Builder, T),
) error {
	c, err := f.client(p, f.JSON, words.Words{})
	if err != nil {
		return err
	}
	return ask(p.ctx, c, method, path, body, func(b *strings.Builder, answer T) { show(c, b, answer) })
}

type mailboxAgentsCommand struct{ mailboxFlags }

func (c *mailboxAgentsCommand) run(p *cli, _ []string) error {
	return askMailbox(p, c.mailboxFlags, http.MethodGet, "/v1/mailbox/agents", nil, (*client).printAgents)
}

type mailboxInboxCommand struct {
	mailboxFlags
	Limit int  `long:"limit" value-name:"N" default:"50"`
	Drain bool `long:"drain"`
}

func (c *mailboxInboxCommand) run(p *cli, _ []string) error {
	query := "?limit=" + strconv.Itoa(c.Limit)
	if !c.Drain {
		return askMailbox(p, c.mailboxFlags, http.MethodGet, "/v1/mailbox/inbox"+query, nil, (*client).printWaiting)
	}
	m, err := c.client(p, c.JSON, words.Words{})
	if err != nil {
		return err
	}
	const route = "/v1/mailbox/inbox/drain"
	data, err := m.call(p.ctx, http.MethodPost, route+query, nil)
	if err == nil {
		err = display(m, data, m.printDrained)
	}
	if d := (agent.Drained{}); err == nil && json.Unmarshal(data, &d) == nil && d.Cursor != "" {
		_, err = m.call(p.ctx, http.MethodPost, route+"?limit=0&cursor="+url.QueryEscape(d.Cursor), nil)
	}
	return err
}

type mailboxDeadLettersCommand struct{ mailboxFlags }

func (c *mailboxDeadLettersCommand) run(p *cli, _ []string) error {
	return askMailbox(p, c.mailboxFlags, http.MethodGet, "/v1/mailbox/dead-letters", nil, (*client).printDeadLetters)
}

type mailboxReplayCommand struct {
	mailboxFlags
	Args struct {
		ID named `positional-arg-name:"ID" required:"yes"`
	} `positional-args:"yes"`
}

func (c *mailboxReplayCommand) run(p *cli, _ []string) error {
	path := "/v1/mailbox/dead-letters/" + url.PathEscape(string(c.Args.ID)) + "/replay"
	return askMailbox(p, c.mailboxFlags, http.MethodPost, path, nil,
		func(_ *client, b *strings.Builder, _ struct{}) {
			fmt.Fprintf(b, "%s is on its way again\n", neutral(string(c.Args.ID)))
		})
}

type mailboxTasksCommand struct {
	mailboxFlags
	State     string `long:"state" value-name:"STATE"`
	Direction string `long:"direction" value-name:"received|sent"`
}

func (*mailboxTasksCommand) takesArgs() {}

func (c *mailboxTasksCommand) run(p *cli, args []string) error {
	switch {
	case len(args) > 1:
		return p.misused("unexpected argument %q", args[1])
	case len(args) == 1 && (c.State != "" || c.Direction != ""):
		return p.misused("--state and --direction are for the list, not for a single task")
	case len(args) == 1 && args[0] == "":
		return p.misused("which ID? `feishu-relay mailbox tasks` names them")
	case len(args) == 1:
		path := "/v1/mailbox/tasks/" + url.PathEscape(args[0])
		return askMailbox(p, c.mailboxFlags, http.MethodGet, path, nil, (*client).printTask)
	}
	query := url.Values{}
	if c.State != "" {
		query.Set("state", c.State)
	}
	if c.Direction != "" {
		query.Set("direction", c.Direction)
	}
	path := strings.TrimSuffix("/v1/mailbox/tasks?"+query.Encode(), "?")
	return askMailbox(p, c.mailboxFlags, http.MethodGet, path, nil, (*client).printTasks)
}

type mailboxUpdateCommand struct {
	mailboxFlags
	From mailbox.AgentID `long:"from" value-name:"AGENT"`
	Args struct {
		ID    named             `positional-arg-name:"ID" required:"yes"`
		State mailbox.TaskState `positional-arg-name:"STATE" required:"yes"`
		Text  []string          `positional-arg-name:"TEXT"`
	} `positional-args:"yes"`
}

func (c *mailboxUpdateCommand) run(p *cli, _ []string) (err error) {
	update := struct {
		State mailbox.TaskState `json:"state"`
		Text  string            `json:"text,omitempty"`
		From  mailbox.AgentID   `json:"from,omitempty"`
	}{State: c.Args.State, From: c.From}
	if strings.Join(c.Args.Text, "") != "" {
		if update.Text, err = textOf(p.ctx, os.Stdin, c.Args.Text); err != nil {
			return err
		}
	}
	path := "/v1/mailbox/tasks/" + url.PathEscape(string(c.Args.ID))
	return askMailbox(p, c.mailboxFlags, http.MethodPost, path, update, (*client).printStep)
}

type mailboxSendCommand struct {
	mailboxFlags
	Kind        mailbox.Type `long:"type" choice:"message" choice:"question" choice:"notification" choice:"task" default:"message"`
	Priority    int          `long:"priority" value-name:"N" default:"0"`
	Correlation string       `long:"correlation-id" value-name:"ID"`
	Deadline    string       `long:"task-deadline" value-name:"TIME"`
	Callback    string       `long:"callback" value-name:"CONVERSATION"`
	Args        struct {
		Agent mailbox.AgentID `positional-arg-name:"AGENT" required:"yes"`
		Text  []string        `positional-arg-name:"TEXT" required:"1"`
	} `positional-args:"yes"`
}

func (c *mailboxSendCommand) run(p *cli, _ []string) error {
	to, task := c.Args.Agent, agent.TaskDraft{To: c.Args.Agent, Priority: mailbox.Priority(c.Priority)}
	err := c.check()
	if err == nil {
		task.Deadline, err = deadline(c.Deadline, time.Now())
	}
	if err == nil {
		task.Callback, err = callback(c.Callback)
	}
	if err != nil {
		return p.misused("%v", err)
	}
	text, err := textOf(p.ctx, os.Stdin, c.Args.Text)
	if err != nil {
		return err
	}
	show := func(_ *client, b *strings.Builder, sent agent.Sent) { printSent(b, to, sent) }
	switch {
	case to == "*":
		return askMailbox(p, c.mailboxFlags, http.MethodPost, "/v1/peers/*/messages", struct {
			Message       string `json:"message"`
			CorrelationID string `json:"correlation_id,omitempty"`
		}{text, c.Correlation}, (*client).printReached)
	case c.Kind == mailbox.TypeTask:
		task.Text = text
		return askMailbox(p, c.mailboxFlags, http.MethodPost, "/v1/mailbox/tasks", task, show)
	}
	type metadata struct {
		CorrelationID string `json:"correlationId,omitempty"`
	}
	letter := struct { // the rest is filled in
		To       mailbox.AgentID `json:"to"`
		Type     mailbox.Type    `json:"type"`
		Priority int             `json:"priority,omitempty"`
		Content  mailbox.Content `json:"content"`
		Metadata metadata        `json:"metadata,omitzero"`
	}{To: to, Type: c.Kind, Priority: c.Priority, Metadata: metadata{c.Correlation}}
	letter.Content.Parts = []mailbox.Part{{Type: "text", Text: text}}
	return askMailbox(p, c.mailboxFlags, http.MethodPost, "/v1/mailbox/messages", letter, show)
}

// check says which flags do not fit together.
func (c *mailboxSendCommand) check() error {
	switch isTask := c.Kind == mailbox.TypeTask; {
	case c.Args.Agent == "*" && (c.Kind != mailbox.TypeMessage || c.Priority != 0):
		return errors.New("--type and --priority are not for '*': all get a plain message")
	case c.Priority < 0 || c.Priority > 5:
		return fmt.Errorf("--priority: want a number from 1 to 5, got %d", c.Priority)
	case !isTask && (c.Deadline != "" || c.Callback != ""):
		return errors.New("--task-deadline and --callback are for --type task")
	case isTask && c.Correlation != "":
		return errors.New("--correlation-id is not for --type task: what comes back names the task's id")
	}
	return nil
}

// deadline reads a time from now on, or a time; "" is none.
func deadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d).UTC().Truncate(time.Millisecond), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--task-deadline: want a time from now, such as 30m, or a time ahead, such as %s, got %q",
		now.Add(time.Hour).UTC().Format(time.RFC3339), text)
}

// callback reads channel:chat_id, which is also the id of the session.
func callback(text string) (*mailbox.Callback, error) {
	channel, chat, _ := strings.Cut(text, ":")
	switch {
	case text == "":
		return nil, nil
	case channel == "" || chat == "":
		return nil, fmt.Errorf("--callback: want channel:chat_id, such as feishu:oc_x, got %q", text)
	}
	return &mailbox.Callback{Channel: channel, ChatID: chat, SessionID: text}, nil
}

// textOf is the words of the command line, or standard input in the place of "-".
func textOf(ctx context.Context, in io.Reader, words []string) (string, error) {
	text := strings.Join(words, " ")
	if text == "-" {
		limited := io.LimitReader(in, mailbox.MaxBody+1)
		data, err := interruptible(ctx, func() ([]byte, error) { return io.ReadAll(limited) })
		if err != nil {
			return "", fmt.Errorf("read standard input: %w", err)
		}
		text = strings.TrimRight(string(data), "\r\n")
	}
	switch {
	case len(text) > mailbox.MaxBody:
		return "", fmt.Errorf("the text is longer than %d bytes; "+
			"put the rest into a file that both agents can read, and name it", mailbox.MaxBody)
	case !utf8.ValidString(text):
		return "", errors.New("the text is not UTF-8")
	case strings.TrimSpace(text) == "":
		return "", errors.New("the text is empty")
	}
	return text, nil
}
