package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

const mailboxUsage = `Usage: feishu-relay mailbox agents
       feishu-relay mailbox send [--type TYPE] [flags] AGENT TEXT…
       feishu-relay mailbox send [flags] '*' TEXT…
       feishu-relay mailbox inbox [--limit 50] [--drain]
       feishu-relay mailbox tasks [--state STATE] [--direction received|sent] [ID]
       feishu-relay mailbox tasks update [--from AGENT] ID STATE [TEXT…]
       feishu-relay mailbox dead-letters [list | replay ID]

agents lists the agents; send gives another agent a message or a task, or all of
them ('*') a message; inbox shows what waits for this bot, and with --drain hands it
out; tasks shows the tasks taken and given, and takes a step of one; dead-letters
shows what could not be delivered.

It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN). All take
--env-file FILE, --addr HOST:PORT, and --json, which prints the sidecar's own answer. TEXT
may be -, for standard input. Flags may come before or after arguments; a TEXT with a word
that begins with a dash comes after --, as in: mailbox send agent_b -- --help shows it.

  feishu-relay mailbox send --type task agent_b "write the tests"

` + "`feishu-relay mailbox SUBCOMMAND --help`" + ` tells more.
`

// runMailbox shows and uses the mailbox of the running sidecar.
func runMailbox(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	m := &mailboxCall{in: os.Stdin, out: stdout, err: stderr, now: time.Now}
	with := func(do func(context.Context, []string) error) func([]string) error {
		return func(args []string) error { return do(ctx, args) }
	}
	return verbs("mailbox", mailboxUsage, args, stdout, stderr, map[string]func([]string) error{
		"agents": with(m.agents), "send": with(m.send), "inbox": with(m.inbox), "tasks": with(m.tasks),
		"dead-letters": with(m.deadLetters),
	})
}

// anyNumber of arguments may be given: they are the words of a text.
const anyNumber = math.MaxInt

// mailboxCall is one use of the mailbox.
type mailboxCall struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time
	flags    *commandLine
	addr     string
	json     bool
	api      *localAPI
}

// command begins a subcommand. Its synopsis names its own flags and arguments,
// and text behind a newline explains them.
func (m *mailboxCall) command(synopsis string) *commandLine {
	usage, more, _ := strings.Cut(synopsis, "\n")
	m.flags = flags("mailbox", "mailbox "+usage+"\n\n"+more+"\n", m.out, m.err)
	m.flags.StringVar(&m.addr, "addr", "", "`host:port` where the sidecar listens (default LISTEN_ADDR)")
	m.flags.BoolVar(&m.json, "json", false, "print the sidecar's answer as it is")
	return m.flags
}

// parse reads the flags and finds the sidecar.
func (m *mailboxCall) parse(args []string, most int) (rest []string, err error) {
	rest, err = m.flags.parse(args, most)
	if err != nil {
		return nil, err
	}
	m.api, err = newLocalAPI(m.addr)
	return rest, err
}

// misused says what is wrong with the arguments.
func (m *mailboxCall) misused(format string, args ...any) error {
	fmt.Fprintf(m.err, format+"\n", args...)
	return errUsage
}

// ask makes a call and displays the answer. A body of nil sends nothing.
func ask[T any](ctx context.Context, m *mailboxCall, method, path string, body any, show func(T) error) error {
	data, err := m.api.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	return display(m, data, show)
}

// display prints an answer: by show, or as it is with --json.
func display[T any](m *mailboxCall, data []byte, show func(T) error) error {
	if m.json {
		_, err := m.out.Write(append(bytes.TrimSuffix(neutralJSON(data), []byte{'\n'}), '\n'))
		return err
	}
	var answer T
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("the sidecar's answer has an unknown form "+
			"(is it one of this version? --json shows it): %w", err)
	}
	return show(answer)
}

func (m *mailboxCall) agents(ctx context.Context, args []string) error {
	m.command("agents [flags]\nTells which agents there are, this one too, and what each can do now.")
	if _, err := m.parse(args, 0); err != nil {
		return err
	}
	type answer struct{ Agents []mailbox.Card }
	return ask(ctx, m, http.MethodGet, "/v1/mailbox/agents", nil,
		func(a answer) error { return m.printAgents(a.Agents) })
}

func (m *mailboxCall) inbox(ctx context.Context, args []string) error {
	f := m.command("inbox [--limit 50] [--drain] [flags]\n" +
		"Shows what waits for the bot, in the order of delivery, and leaves it there.")
	limit := f.Int("limit", 50, "show at most `n` messages, 200 or less")
	drain := f.Bool("drain", false, "take them: once they are printed, the bot is not given them")
	if _, err := m.parse(args, 0); err != nil {
		return err
	}
	query := "?limit=" + strconv.Itoa(*limit)
	if *drain {
		const route = "/v1/mailbox/inbox/drain"
		data, err := m.api.call(ctx, http.MethodPost, route+query, nil)
		if err == nil {
			err = display(m, data, m.printDrained)
		}
		if d := (agent.Drained{}); err == nil && json.Unmarshal(data, &d) == nil && d.Cursor != "" {
			_, err = m.api.call(ctx, http.MethodPost, route+"?limit=0&cursor="+url.QueryEscape(d.Cursor), nil)
		}
		return err
	}
	type waiting struct {
		Messages []agent.Mail
		Total    int
	}
	return ask(ctx, m, http.MethodGet, "/v1/mailbox/inbox"+query, nil,
		func(w waiting) error { return m.printWaiting(w.Messages, w.Total) })
}

func (m *mailboxCall) deadLetters(ctx context.Context, args []string) error {
	m.command("dead-letters [flags] [list | replay ID]\n" +
		"Shows what this agent sent and could not be delivered, the newest first.\n" +
		"replay sends one again, as if for the first time.")
	rest, err := m.parse(args, 2)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 0, len(rest) == 1 && rest[0] == "list":
		type answer struct {
			DeadLetters []agent.DeadLetter `json:"dead_letters"`
		}
		return ask(ctx, m, http.MethodGet, "/v1/mailbox/dead-letters", nil,
			func(a answer) error { return m.printDeadLetters(a.DeadLetters) })
	case rest[0] == "replay" && len(rest) == 2 && rest[1] != "":
		path := "/v1/mailbox/dead-letters/" + url.PathEscape(rest[1]) + "/replay"
		return ask(ctx, m, http.MethodPost, path, nil, func(struct{}) error {
			_, err := fmt.Fprintf(m.out, "%s is on its way again\n", neutral(rest[1]))
			return err
		})
	case rest[0] == "replay":
		return m.misused("which ID? `feishu-relay mailbox dead-letters` names them")
	}
	return m.misused("there is no dead-letters %s; want list, or replay ID", neutral(strings.Join(rest, " ")))
}
