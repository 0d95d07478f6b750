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
	"unicode/utf8"

	"feishu-relay/internal/words"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// askMailbox asks the sidecar.
func askMailbox[T any](
	p *cli, f asks, method, path string, body any, show func(*client, *strings.Builder, T),
) error {
	c, err := f.client(p, f.JSON, words.Words{})
	if err != nil {
		return err
	}
	return ask(p.ctx, c, method, path, body, func(b *strings.Builder, answer T) { show(c, b, answer) })
}

type mailboxAgentsCommand struct{ asks }

func (c *mailboxAgentsCommand) run(p *cli, _ []string) error {
	return askMailbox(p, c.asks, http.MethodGet, "/v1/mailbox/agents", nil, (*client).printAgents)
}

type mailboxInboxCommand struct {
	asks
	Limit int  `long:"limit" value-name:"N" default:"50"`
	Drain bool `long:"drain"`
}

func (c *mailboxInboxCommand) run(p *cli, _ []string) error {
	query := "?limit=" + strconv.Itoa(c.Limit)
	if !c.Drain {
		return askMailbox(p, c.asks, http.MethodGet, "/v1/mailbox/inbox"+query, nil, (*client).printWaiting)
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

type mailboxDeadLettersCommand struct{ asks }

func (c *mailboxDeadLettersCommand) run(p *cli, _ []string) error {
	return askMailbox(p, c.asks, http.MethodGet, "/v1/mailbox/dead-letters", nil, (*client).printDeadLetters)
}

type mailboxReplayCommand struct {
	asks
	Args struct {
		ID named `positional-arg-name:"ID" required:"yes"`
	} `positional-args:"yes"`
}

func (c *mailboxReplayCommand) run(p *cli, _ []string) error {
	path := "/v1/mailbox/dead-letters/" + url.PathEscape(string(c.Args.ID)) + "/replay"
	return askMailbox(p, c.asks, http.MethodPost, path, nil,
		func(_ *client, b *strings.Builder, _ struct{}) {
			fmt.Fprintf(b, "%s is on its way again\n", neutral(string(c.Args.ID)))
		})
}

type mailboxTasksCommand struct {
	asks
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
		return askMailbox(p, c.asks, http.MethodGet, path, nil, (*client).printTask)
	}
	query := url.Values{}
	if c.State != "" {
		query.Set("state", c.State)
	}
	if c.Direction != "" {
		query.Set("direction", c.Direction)
	}
	path := strings.TrimSuffix("/v1/mailbox/tasks?"+query.Encode(), "?")
	return askMailbox(p, c.asks, http.MethodGet, path, nil, (*client).printTasks)
}

type mailboxUpdateCommand struct {
	asks
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
	return askMailbox(p, c.asks, http.MethodPost, path, update, (*client).printStep)
}

type mailboxSendCommand struct {
	asks
	Kind mailbox.Type `long:"type" choice:"message" choice:"question" choice:"notification" choice:"task" default:"message"`
	Args struct {
		Agent mailbox.AgentID `positional-arg-name:"AGENT" required:"yes"`
		Text  []string        `positional-arg-name:"TEXT" required:"1"`
	} `positional-args:"yes"`
}

func (c *mailboxSendCommand) run(p *cli, _ []string) error {
	to := c.Args.Agent
	if to == "*" && c.Kind != mailbox.TypeMessage {
		return p.misused("--type is not for '*': all get a plain message")
	}
	text, err := textOf(p.ctx, os.Stdin, c.Args.Text)
	if err != nil {
		return err
	}
	show := func(_ *client, b *strings.Builder, sent agent.Sent) { printSent(b, to, sent) }
	switch {
	case to == "*":
		return askMailbox(p, c.asks, http.MethodPost, "/v1/peers/*/messages", map[string]string{"message": text},
			(*client).printReached)
	case c.Kind == mailbox.TypeTask:
		return askMailbox(p, c.asks, http.MethodPost, "/v1/mailbox/tasks", agent.TaskDraft{To: to, Text: text}, show)
	}
	letter := struct { // the rest is filled in
		To      mailbox.AgentID `json:"to"`
		Type    mailbox.Type    `json:"type"`
		Content mailbox.Content `json:"content"`
	}{To: to, Type: c.Kind}
	letter.Content.Parts = []mailbox.Part{{Type: "text", Text: text}}
	return askMailbox(p, c.asks, http.MethodPost, "/v1/mailbox/messages", letter, show)
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
