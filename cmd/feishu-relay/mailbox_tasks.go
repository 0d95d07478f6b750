package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

func (m *mailboxCall) tasks(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "update" {
		return m.updateTask(ctx, args[1:])
	}
	f := m.command("tasks [--state STATE] [--direction received|sent] [flags] [ID]\n" +
		"Shows the tasks that this agent took from others and gave to others, the newest first,\n" +
		"or all that is known of one. `feishu-relay mailbox tasks update --help`: how to take a step.")
	state := f.String("state", "", "only tasks in this `state`: pending, accepted, working, completed, failed or rejected")
	direction := f.String("direction", "", "only `those` received from others, or sent to others")
	rest, err := m.parse(args, 1)
	if err != nil {
		return err
	}
	one := len(rest) > 0
	path := "/v1/mailbox/tasks"
	switch {
	case one && (*state != "" || *direction != ""):
		return m.misused("--state and --direction are for the list, not for a single task")
	case one && rest[0] == "":
		return m.misused("which ID? `feishu-relay mailbox tasks` names them")
	case one:
		path += "/" + url.PathEscape(rest[0])
	default:
		query := url.Values{}
		for name, value := range map[string]string{"state": *state, "direction": *direction} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
	}
	type answer struct{ Tasks []agent.TaskRecord }
	return ask(ctx, m, http.MethodGet, path, nil, func(a answer) error {
		if one {
			return m.printTaskDetails(a.Tasks)
		}
		return m.printTasks(a.Tasks)
	})
}

func (m *mailboxCall) updateTask(ctx context.Context, args []string) error {
	f := m.command("tasks update [flags] ID STATE [TEXT…]\n" +
		"Takes a step of a task that this agent took, and tells who gave it. STATE is accepted,\n" +
		"rejected, working, completed or failed; TEXT is the result, the reason or the\n" +
		"progress, and - reads it from standard input.\n" + behindDashes)
	from := f.String("from", "", "the `agent` who gave the task, where two gave one of the same id")
	rest, err := m.parse(args, anyNumber)
	if err != nil {
		return err
	}
	if len(rest) < 2 || rest[0] == "" {
		return m.misused("want ID and STATE; `feishu-relay mailbox tasks` names the tasks")
	}
	update := struct {
		State mailbox.TaskState `json:"state"`
		Text  string            `json:"text,omitempty"`
		From  mailbox.AgentID   `json:"from,omitempty"`
	}{State: mailbox.TaskState(rest[1]), From: mailbox.AgentID(*from)}
	if words := rest[2:]; strings.Join(words, "") != "" {
		if update.Text, err = m.text(ctx, words); err != nil {
			return err
		}
	}
	return ask(ctx, m, http.MethodPost, "/v1/mailbox/tasks/"+url.PathEscape(rest[0]), update, m.printStep)
}
