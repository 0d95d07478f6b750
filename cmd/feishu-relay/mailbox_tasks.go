package main

import (
	"net/http"
	"net/url"
	"strings"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

type mailboxTasksCommand struct {
	mailboxFlags
	State     string `long:"state" value-name:"STATE"`
	Direction string `long:"direction" value-name:"received|sent"`
}

func (*mailboxTasksCommand) takesArgs() {}

func (c *mailboxTasksCommand) run(p *cli, args []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	one := len(args) > 0
	path := "/v1/mailbox/tasks"
	switch {
	case len(args) > 1:
		return p.misused("unexpected argument %q", args[1])
	case one && (c.State != "" || c.Direction != ""):
		return p.misused("--state and --direction are for the list, not for a single task")
	case one && args[0] == "":
		return p.misused("which ID? `feishu-relay mailbox tasks` names them")
	case one:
		path += "/" + url.PathEscape(args[0])
	default:
		query := url.Values{}
		for name, value := range map[string]string{"state": c.State, "direction": c.Direction} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
	}
	type answer struct{ Tasks []agent.TaskRecord }
	return ask(p.ctx, m.client, http.MethodGet, path, nil, func(a answer) error {
		if one {
			return m.printTaskDetails(a.Tasks)
		}
		return m.printTasks(a.Tasks)
	})
}

const updateHelp = `Takes a step of a task that this agent took, and tells who gave it. STATE is accepted,
rejected, working, completed or failed; TEXT is the result, the reason or the
progress, and - reads it from standard input.
A TEXT with a word that begins with a dash goes behind --`

type mailboxUpdateCommand struct {
	mailboxFlags
	From mailbox.AgentID `long:"from" value-name:"AGENT"`
	Args struct {
		ID    string            `positional-arg-name:"ID" required:"yes"`
		State mailbox.TaskState `positional-arg-name:"STATE" required:"yes"`
		Text  []string          `positional-arg-name:"TEXT"`
	} `positional-args:"yes"`
}

func (c *mailboxUpdateCommand) run(p *cli, _ []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	if c.Args.ID == "" {
		return p.misused("which ID? `feishu-relay mailbox tasks` names the tasks")
	}
	update := struct {
		State mailbox.TaskState `json:"state"`
		Text  string            `json:"text,omitempty"`
		From  mailbox.AgentID   `json:"from,omitempty"`
	}{State: c.Args.State, From: c.From}
	if strings.Join(c.Args.Text, "") != "" {
		if update.Text, err = m.text(p.ctx, c.Args.Text); err != nil {
			return err
		}
	}
	return ask(p.ctx, m.client, http.MethodPost, "/v1/mailbox/tasks/"+url.PathEscape(c.Args.ID), update, m.printStep)
}
