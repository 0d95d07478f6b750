package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/words"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

const mailboxHelp = `agents lists the agents; send gives another agent a message or a task, or all of
them ('*') a message; inbox shows what waits for this bot, and with --drain hands it
out; tasks shows the tasks taken and given, and takes a step of one; dead-letters
shows what could not be delivered.

It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN). --json prints the
sidecar's own answer. TEXT may be -, for standard input. A TEXT with a word that begins with
a dash comes after --, as in: mailbox send agent_b -- --help shows it.

  feishu-relay mailbox send --type task agent_b "write the tests"`

func (p *cli) addMailbox(c *flags.Command) {
	p.add(c, "agents", "list the agents", "Tells which agents there are, this one too, and what each can do now.",
		&mailboxAgentsCommand{})
	p.add(c, "send", "send a message or a task", sendHelp, &mailboxSendCommand{})
	p.add(c, "inbox", "show what waits for this bot, or take it",
		"Shows what waits for the bot, in the order of delivery, and leaves it there.", &mailboxInboxCommand{})
	tasks := p.add(c, "tasks", "show the tasks taken and given",
		"Shows the tasks that this agent took from others and gave to others, the newest first,\n"+
			"or all that is known of the one with the ID: feishu-relay mailbox tasks ID", &mailboxTasksCommand{})
	tasks.SubcommandsOptional = true
	p.add(tasks, "update", "take a step of a task", updateHelp, &mailboxUpdateCommand{})
	dead := p.add(c, "dead-letters", "show what could not be delivered",
		"Shows what this agent sent and could not be delivered, the newest first.", &mailboxDeadLettersCommand{})
	dead.SubcommandsOptional = true
	p.add(dead, "list", "show them", "", &mailboxDeadLettersCommand{})
	p.add(dead, "replay", "send one again", "Sends one again, as if for the first time.", &mailboxReplayCommand{})
}

// mailboxFlags are those of all commands of the mailbox.
type mailboxFlags struct {
	reach
	JSON bool `long:"json"`
}

// mailboxCall is one use of the mailbox.
type mailboxCall struct {
	*client
	in io.Reader
}

// call finds the sidecar.
func (f *mailboxFlags) call(p *cli) (*mailboxCall, error) {
	c, err := f.client(p, f.JSON, words.Words{})
	return &mailboxCall{c, os.Stdin}, err
}

type mailboxAgentsCommand struct{ mailboxFlags }

func (c *mailboxAgentsCommand) run(p *cli, _ []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	type answer struct{ Agents []mailbox.Card }
	return ask(p.ctx, m.client, http.MethodGet, "/v1/mailbox/agents", nil,
		func(a answer) error { return m.printAgents(a.Agents) })
}

type mailboxInboxCommand struct {
	mailboxFlags
	Limit int  `long:"limit" value-name:"N" default:"50"`
	Drain bool `long:"drain"`
}

func (c *mailboxInboxCommand) run(p *cli, _ []string) error {
	ctx := p.ctx
	m, err := c.call(p)
	if err != nil {
		return err
	}
	query := "?limit=" + strconv.Itoa(c.Limit)
	if c.Drain {
		const route = "/v1/mailbox/inbox/drain"
		data, err := m.call(ctx, http.MethodPost, route+query, nil)
		if err == nil {
			err = display(m.client, data, m.printDrained)
		}
		if d := (agent.Drained{}); err == nil && json.Unmarshal(data, &d) == nil && d.Cursor != "" {
			_, err = m.call(ctx, http.MethodPost, route+"?limit=0&cursor="+url.QueryEscape(d.Cursor), nil)
		}
		return err
	}
	type waiting struct {
		Messages []agent.Mail
		Total    int
	}
	return ask(ctx, m.client, http.MethodGet, "/v1/mailbox/inbox"+query, nil,
		func(w waiting) error { return m.printWaiting(w.Messages, w.Total) })
}

type mailboxDeadLettersCommand struct{ mailboxFlags }

func (c *mailboxDeadLettersCommand) run(p *cli, _ []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	type answer struct {
		DeadLetters []agent.DeadLetter `json:"dead_letters"`
	}
	return ask(p.ctx, m.client, http.MethodGet, "/v1/mailbox/dead-letters", nil,
		func(a answer) error { return m.printDeadLetters(a.DeadLetters) })
}

type mailboxReplayCommand struct {
	mailboxFlags
	Args struct {
		ID string `positional-arg-name:"ID" required:"yes"`
	} `positional-args:"yes"`
}

func (c *mailboxReplayCommand) run(p *cli, _ []string) error {
	m, err := c.call(p)
	if err != nil {
		return err
	}
	if c.Args.ID == "" {
		return p.misused("which ID? `feishu-relay mailbox dead-letters` names them")
	}
	path := "/v1/mailbox/dead-letters/" + url.PathEscape(c.Args.ID) + "/replay"
	return ask(p.ctx, m.client, http.MethodPost, path, nil, func(struct{}) error {
		_, err := fmt.Fprintf(m.out, "%s is on its way again\n", neutral(c.Args.ID))
		return err
	})
}
