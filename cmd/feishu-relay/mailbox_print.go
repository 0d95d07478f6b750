package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

func (c *client) printAgents(b *strings.Builder, answer struct{ Agents []mailbox.Card }) {
	if len(answer.Agents) == 0 {
		b.WriteString("There are no agents: a sidecar registers its own when its mailbox starts.\n")
		return
	}
	var rows [][]string
	for _, card := range answer.Agents {
		status := neutral(string(card.Status))
		if card.Status != mailbox.Offline && card.Bot != nil && !card.Bot.Connected {
			status += ", bot not connected since " + moment(card.Bot.Since)
		}
		rows = append(rows, []string{neutral(string(card.AgentID)), status,
			fmt.Sprintf("%d/%d", len(card.CurrentTasks), card.MaxTasks), c.ago(card.LastHeartbeat),
			cmp.Or(cell(strings.Join(card.Goals, ", ")), "-"), cell(card.Description)})
	}
	writeTable(b, "AGENT|STATUS|TASKS|HEARTBEAT|GOALS|DESCRIPTION", rows)
}

func (c *client) printWaiting(b *strings.Builder, answer struct {
	Messages []agent.Mail
	Total    int
}) {
	c.printMail(b, answer.Messages, answer.Total-len(answer.Messages))
}

func (c *client) printDrained(b *strings.Builder, d agent.Drained) {
	c.printMail(b, d.Messages, d.Waiting)
	if d.Dropped > 0 {
		fmt.Fprintf(b, "\n%s dropped, since the buffer was full\n", counted(d.Dropped, "older one was", "older ones were"))
	}
}

// printMail writes of each message a line that says what it is, then its text, each line of which is marked, so that
// none passes for another message; and how many more wait.
func (c *client) printMail(b *strings.Builder, list []agent.Mail, more int) {
	p := c.paint
	if len(list)+more == 0 {
		b.WriteString("Nothing waits for this bot.\n")
	}
	for i, mail := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s  %s  %s  priority %d\n", p.text(dim, cmp.Or(moment(mail.Timestamp), "-")),
			p.text(p.bot(string(mail.From)), neutral(string(mail.From))), neutral(string(mail.Type)), mail.Priority)
		field(b, "id", mail.ID)
		if mail.Goal != string(mail.To) { // else its standing goal, its name
			field(b, "goal", mail.Goal)
		}
		field(b, "answers", mail.ReplyTo)
		field(b, "correlation", mail.Metadata.CorrelationID)
		if t := mail.Task; t != nil {
			field(b, "task", t.ID)
			field(b, "state", string(t.State))
			field(b, "deadline", moment(t.Deadline))
		}
		for _, part := range mail.Content.Parts {
			switch part.Type {
			case "text":
				c.writeQuoted(b, part.Text)
			case "file":
				c.writeQuoted(b, "file: "+part.Path)
			default:
				c.writeQuoted(b, string(part.Data))
			}
		}
	}
	if more > 0 {
		fmt.Fprintf(b, "\n%s\n", counted(more, "more waits", "more wait"))
	}
}

// field writes a line of a message or task, unless there is nothing to say.
func field(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "    %s %s\n", name, neutral(value))
	}
}

// writeQuoted writes a text of any length.
func (c *client) writeQuoted(b *strings.Builder, text string) {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
		fmt.Fprintf(b, "  %s\n", strings.TrimRight(c.paint.text(dim, "│")+" "+neutral(line), " "))
	}
}

func printSent(b *strings.Builder, to mailbox.AgentID, s agent.Sent) {
	fmt.Fprintf(b, "%s is on its way to %s\n", neutral(s.ID), neutral(string(to)))
	field(b, "task", s.TaskID)
	field(b, "note", s.Note)
}

// printReached says into whose inboxes a broadcast was put, and why not into others.
func (c *client) printReached(b *strings.Builder, r agent.PeerResult) {
	if len(r.DeliveredTo) == 0 {
		b.WriteString("It reached nobody.\n")
	}
	for _, goal := range r.DeliveredTo {
		fmt.Fprintf(b, "put into the inbox of %s; the bot has it when it takes it from there\n", neutral(goal))
	}
	for _, reason := range r.UnreachableReasons {
		fmt.Fprintf(b, "not sent: %s\n", neutral(reason))
	}
}

type taskList struct{ Tasks []agent.TaskRecord }

func (c *client) printTasks(b *strings.Builder, answer taskList) {
	if len(answer.Tasks) == 0 {
		b.WriteString("There are no such tasks.\n")
		return
	}
	var rows [][]string
	for _, r := range answer.Tasks {
		rows = append(rows, []string{neutral(r.ID), with(r), stateOf(r), cmp.Or(moment(r.Deadline), "-"), c.ago(r.UpdatedAt),
			cell(r.Text)})
	}
	writeTable(b, "TASK|WITH|STATE|DEADLINE|LAST STEP|WHAT", rows)
}

// printTask writes all that is known of a task, which several agents may have given under one id.
func (c *client) printTask(b *strings.Builder, answer taskList) {
	for i, r := range answer.Tasks {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s  %s  %s\n", c.paint.text(bold, neutral(r.ID)), with(r), stateOf(r))
		field(b, "deadline", moment(r.Deadline))
		field(b, "given", moment(r.CreatedAt))
		field(b, "last step", moment(r.UpdatedAt))
		field(b, "why", r.Reason)
		field(b, "message", r.MessageID)
		if to := r.Callback; to != nil && to.ChatID != "" {
			field(b, "result for", to.Channel+":"+to.ChatID)
		} else if to != nil {
			field(b, "result for", to.SessionID)
		}
		c.writeQuoted(b, r.Text)
		if r.Result != "" {
			b.WriteString("    result\n")
			c.writeQuoted(b, r.Result)
		}
	}
}

func (c *client) printStep(b *strings.Builder, r agent.TaskRecord) {
	fmt.Fprintf(b, "%s %s is %s\n", neutral(r.ID), with(r), stateOf(r))
}

func (c *client) printDeadLetters(b *strings.Builder, answer struct {
	DeadLetters []agent.DeadLetter `json:"dead_letters"`
}) {
	if len(answer.DeadLetters) == 0 {
		b.WriteString("There are no dead letters.\n")
		return
	}
	var rows [][]string
	for _, d := range answer.DeadLetters {
		rows = append(rows, []string{neutral(d.ID), neutral(string(d.Envelope.To)), neutral(string(d.Envelope.Type)),
			c.ago(d.DeadAt), fmt.Sprint(d.Attempts), neutral(string(d.Code)), cell(d.Reason)})
	}
	writeTable(b, "MESSAGE|TO|TYPE|DIED|SENT|CODE|REASON", rows)
}

// with names who gave a task, or was given it.
func with(r agent.TaskRecord) string {
	if r.Direction == agent.Given {
		return "to " + neutral(string(r.Peer))
	}
	return "from " + neutral(string(r.Peer))
}

func stateOf(r agent.TaskRecord) string {
	state := neutral(string(r.State))
	switch {
	case r.Overdue && r.Deadline.IsZero():
		return state + " (no answer)"
	case r.Overdue:
		return state + " (overdue)"
	}
	return state
}

// cellWidth is the most columns of a text in a table; the rest is cut.
const cellWidth = 60

// cell is text in one line, cut to the width of a cell.
func cell(text string) string {
	return runes.Fit(neutral(strings.Join(strings.Fields(text), " ")), cellWidth)
}

// moment is a time as people read it; "" where none is known.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func (c *client) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return c.age(t) + " ago"
}
