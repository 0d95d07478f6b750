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

const behindDashes = "A TEXT with a word that begins with a dash goes behind --"

// letter is what `mailbox send` is given beside the text.
type letter struct {
	to                         mailbox.AgentID
	kind                       mailbox.Type
	priority                   int
	correlation                string
	taskDeadline, conversation string

	deadline time.Time         // of taskDeadline
	callback *mailbox.Callback // of conversation
}

func (m *mailboxCall) send(ctx context.Context, args []string) error {
	f := m.command("send [flags] AGENT TEXT…\n" +
		"Sends TEXT to another agent; TEXT - reads standard input. A task is for work with a\n" +
		"result, which comes back as a message; `feishu-relay mailbox tasks` shows how it stands.\n" +
		"AGENT '*' is all that can be reached.\n" + behindDashes)
	var l letter
	f.StringVar((*string)(&l.kind), "type", "message", "`type`: message, question, notification or task")
	f.IntVar(&l.priority, "priority", 0, "from 1 (critical) to 5 (background); 0: as usual for the type")
	f.StringVar(&l.correlation, "correlation-id", "",
		"`id` that an answer will carry; not for tasks, which have their own")
	f.StringVar(&l.taskDeadline, "task-deadline", "",
		"when the task ends: a `time` from now, such as 30m, or one such as 2026-11-21T22:00:00Z")
	f.StringVar(&l.conversation, "callback", "", "`conversation` that the task's result belongs in, such as feishu:oc_x")
	rest, err := m.parse(args, anyNumber)
	if err != nil {
		return err
	}
	if len(rest) < 2 {
		return m.misused("want AGENT and TEXT; `feishu-relay mailbox agents` names the agents")
	}
	l.to = mailbox.AgentID(rest[0])
	if err := l.check(m.now()); err != nil {
		return m.misused("%v", err)
	}
	text, err := m.text(ctx, rest[1:])
	if err != nil {
		return err
	}
	if l.to == everybody {
		return m.broadcast(ctx, l.correlation, text)
	}
	path, body := l.request(text)
	return ask(ctx, m, http.MethodPost, path, body, func(sent agent.Sent) error { return m.printSent(l.to, sent) })
}

// broadcast gives all peers a message.
func (m *mailboxCall) broadcast(ctx context.Context, correlation, text string) error {
	return ask(ctx, m, http.MethodPost, "/v1/peers/*/messages", struct {
		Message       string `json:"message"`
		CorrelationID string `json:"correlation_id,omitempty"`
	}{text, correlation}, m.printReached)
}

// check reads the flags' values; its error says which is wrong.
func (l *letter) check(now time.Time) (err error) {
	isTask := l.kind == mailbox.TypeTask
	switch l.kind {
	case mailbox.TypeMessage, mailbox.TypeQuestion, mailbox.TypeNotification, mailbox.TypeTask:
	default:
		return fmt.Errorf("--type: want message, question, notification or task, got %q", l.kind)
	}
	switch {
	case l.to == everybody && (l.kind != mailbox.TypeMessage || l.priority != 0):
		return errors.New("--type and --priority are not for '*': all get a plain message")
	case l.priority < 0 || l.priority > 5:
		return fmt.Errorf("--priority: want a number from 1 to 5, got %d", l.priority)
	case !isTask && (l.taskDeadline != "" || l.conversation != ""):
		return errors.New("--task-deadline and --callback are for --type task")
	case isTask && l.correlation != "":
		return errors.New("--correlation-id is not for --type task: what comes back names the task's id")
	}
	if l.deadline, err = deadline(l.taskDeadline, now); err != nil {
		return fmt.Errorf("--task-deadline: %w", err)
	}
	if l.callback, err = callback(l.conversation); err != nil {
		return fmt.Errorf("--callback: %w", err)
	}
	return nil
}

// request is the route and the body by which the sidecar is told.
func (l *letter) request(text string) (path string, body any) {
	if l.kind == mailbox.TypeTask {
		return "/v1/mailbox/tasks", agent.TaskDraft{
			To: l.to, Text: text, Deadline: l.deadline, Priority: mailbox.Priority(l.priority), Callback: l.callback,
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
	}{l.to, l.kind, l.priority, mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: text}}},
		metadata{l.correlation}}
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
