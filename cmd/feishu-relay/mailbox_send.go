package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// everybody is the receiver of a broadcast.
const everybody mailbox.AgentID = "*"

const sendHelp = `Sends TEXT to another agent; TEXT - reads standard input. A task is for work with a
result, which comes back as a message; "feishu-relay mailbox tasks" shows how it stands.
AGENT '*' is all that can be reached.
A TEXT with a word that begins with a dash goes behind --`

// letter is what "mailbox send" is given beside the text.
type letter struct {
	Kind mailbox.Type `long:"type" choice:"message" choice:"question" choice:"notification" choice:"task" default:"message"`

	Priority     int    `long:"priority" value-name:"N" default:"0"`
	Correlation  string `long:"correlation-id" value-name:"ID"`
	TaskDeadline string `long:"task-deadline" value-name:"TIME"`
	Conversation string `long:"callback" value-name:"CONVERSATION"`

	to       mailbox.AgentID
	deadline time.Time         // of TaskDeadline
	callback *mailbox.Callback // of Conversation
}

type mailboxSendCommand struct {
	mailboxFlags
	letter
	Args struct {
		Agent mailbox.AgentID `positional-arg-name:"AGENT" required:"yes"`
		Text  []string        `positional-arg-name:"TEXT" required:"1"`
	} `positional-args:"yes"`
}

func (c *mailboxSendCommand) run(p *cli, _ []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	c.to = c.Args.Agent
	if err := c.check(m.now); err != nil {
		return p.misused("%v", err)
	}
	text, err := m.text(p.ctx, c.Args.Text)
	if err != nil {
		return err
	}
	if c.to == everybody {
		return m.broadcast(p.ctx, c.Correlation, text)
	}
	path, body := c.request(text)
	return ask(p.ctx, m.client, http.MethodPost, path, body, func(sent agent.Sent) error { return m.printSent(c.to, sent) })
}

// broadcast gives all peers a message.
func (m *mailboxCall) broadcast(ctx context.Context, correlation, text string) error {
	return ask(ctx, m.client, http.MethodPost, "/v1/peers/*/messages", struct {
		Message       string `json:"message"`
		CorrelationID string `json:"correlation_id,omitempty"`
	}{text, correlation}, m.printReached)
}

// check reads the flags' values; its error says which is wrong.
func (l *letter) check(now time.Time) (err error) {
	isTask := l.Kind == mailbox.TypeTask
	switch {
	case l.to == everybody && (l.Kind != mailbox.TypeMessage || l.Priority != 0):
		return errors.New("--type and --priority are not for '*': all get a plain message")
	case l.Priority < 0 || l.Priority > 5:
		return fmt.Errorf("--priority: want a number from 1 to 5, got %d", l.Priority)
	case !isTask && (l.TaskDeadline != "" || l.Conversation != ""):
		return errors.New("--task-deadline and --callback are for --type task")
	case isTask && l.Correlation != "":
		return errors.New("--correlation-id is not for --type task: what comes back names the task's id")
	}
	if l.deadline, err = deadline(l.TaskDeadline, now); err != nil {
		return fmt.Errorf("--task-deadline: %w", err)
	}
	if l.callback, err = callback(l.Conversation); err != nil {
		return fmt.Errorf("--callback: %w", err)
	}
	return nil
}

// request is the route and the body by which the sidecar is told.
func (l *letter) request(text string) (path string, body any) {
	if l.Kind == mailbox.TypeTask {
		return "/v1/mailbox/tasks", agent.TaskDraft{
			To: l.to, Text: text, Deadline: l.deadline, Priority: mailbox.Priority(l.Priority), Callback: l.callback,
		}
	}
	type metadata struct {
		CorrelationID string `json:"correlationId,omitempty"`
	}
	return "/v1/mailbox/messages", struct { // the rest is filled in
		To       mailbox.AgentID `json:"to"`
		Type     mailbox.Type    `json:"type"`
		Priority int             `json:"priority,omitempty"`
		Content  mailbox.Content `json:"content"`
		Metadata metadata        `json:"metadata,omitzero"`
	}{l.to, l.Kind, l.Priority, mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: text}}},
		metadata{l.Correlation}}
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
	return time.Time{}, fmt.Errorf("want a time from now, such as 30m, or a time ahead, such as %s, got %q",
		now.Add(time.Hour).UTC().Format(time.RFC3339), text)
}

// callback reads channel:chat_id, which is also the id of the session.
func callback(text string) (*mailbox.Callback, error) {
	if text == "" {
		return nil, nil
	}
	channel, chat, ok := strings.Cut(text, ":")
	if !ok || channel == "" || chat == "" {
		return nil, fmt.Errorf("want channel:chat_id, such as feishu:oc_x, got %q", text)
	}
	return &mailbox.Callback{Channel: channel, ChatID: chat, SessionID: text}, nil
}

// text is the words of the command line, or standard input in the place of "-".
func (m *mailboxCall) text(ctx context.Context, words []string) (string, error) {
	text := strings.Join(words, " ")
	if text == "-" {
		var err error
		if text, err = readText(ctx, m.in); err != nil {
			return "", err
		}
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

// readText reads one byte more than a text may have, so that too long is seen.
// It ends with ctx, though the read goes on until the process ends.
func readText(ctx context.Context, r io.Reader) (string, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, mailbox.MaxBody+1))
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("read standard input: %w", r.err)
		}
		return strings.TrimRight(string(r.data), "\r\n"), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
