package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// cellWidth is the most columns of a text in a table; the rest is cut.
const cellWidth = 60

func (m *mailboxCall) printAgents(cards []mailbox.Card) error {
	if len(cards) == 0 {
		_, err := fmt.Fprintln(m.out, "There are no agents: a sidecar registers its own when its mailbox starts.")
		return err
	}
	rows := make([][]string, len(cards))
	for i, c := range cards {
		goals := make([]string, len(c.Goals))
		for i, g := range c.Goals {
			goals[i] = neutral(g)
		}
		rows[i] = []string{
			neutral(string(c.AgentID)), statusOf(c), fmt.Sprintf("%d/%d", len(c.CurrentTasks), c.MaxTasks),
			m.ago(c.LastHeartbeat), cmp.Or(cell(strings.Join(goals, ", ")), "-"), cell(c.Description),
		}
	}
	return writeTable(m.out, "AGENT|STATUS|TASKS|HEARTBEAT|GOALS|DESCRIPTION", rows)
}

// statusOf is a card's status, and that its bot is away though its sidecar is not.
func statusOf(c mailbox.Card) string {
	status := neutral(string(c.Status))
	if c.Status != mailbox.Offline && c.Bot != nil && !c.Bot.Connected {
		status += ", bot not connected since " + moment(c.Bot.Since)
	}
	return status
}

func (m *mailboxCall) printWaiting(list []agent.Mail, total int) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(m.out, "Nothing waits for this bot.")
		return err
	}
	more := ""
	if rest := total - len(list); rest > 0 {
		more = fmt.Sprintf("\n%s; --limit shows more at once\n", counted(rest, "more waits", "more wait"))
	}
	return m.printMail(list, more)
}

func (m *mailboxCall) printDrained(d agent.Drained) error {
	var more strings.Builder
	if d.Dropped > 0 {
		fmt.Fprintf(&more, "\n%s dropped, since the buffer was full\n",
			counted(d.Dropped, "older one was", "older ones were"))
	}
	if d.Waiting > 0 {
		fmt.Fprintf(&more, "\n%s\n", counted(d.Waiting, "more waits", "more wait"))
	}
	if len(d.Messages) == 0 && more.Len() == 0 {
		more.WriteString("Nothing waits for this bot.\n")
	}
	return m.printMail(d.Messages, more.String())
}

// printMail prints messages and what follows them, with one Write.
func (m *mailboxCall) printMail(list []agent.Mail, more string) error {
	var b strings.Builder
	p := m.paint
	for i, mail := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeMail(&b, p, mail)
	}
	b.WriteString(more)
	_, err := io.WriteString(m.out, b.String())
	return err
}

// writeMail writes a message: a line that says what it is, then its text, each
// line of which is marked, so that none passes for another message.
func writeMail(b *strings.Builder, p *paint, mail agent.Mail) {
	fmt.Fprintf(b, "%s  %s  %s  priority %d\n", p.text(dim, clock(mail.Timestamp)),
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
			writeQuoted(b, p, part.Text)
		case "file":
			writeQuoted(b, p, "file: "+part.Path)
		default:
			writeQuoted(b, p, string(part.Data))
		}
	}
}

// field writes a line of a message or task, unless there is nothing to say.
func field(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "    %s %s\n", name, neutral(value))
	}
}

// writeQuoted writes a text of any length.
func writeQuoted(b *strings.Builder, p *paint, text string) {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
		fmt.Fprintf(b, "  %s\n", strings.TrimRight(p.text(dim, "│")+" "+neutral(line), " "))
	}
}

func (m *mailboxCall) printSent(to mailbox.AgentID, s agent.Sent) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is on its way to %s\n", neutral(s.ID), neutral(string(to)))
	field(&b, "task", s.TaskID)
	field(&b, "note", s.Note)
	_, err := io.WriteString(m.out, b.String())
	return err
}

// printReached says into whose inboxes a broadcast was put, and why not into others.
func (m *mailboxCall) printReached(r agent.PeerResult) error {
	var b strings.Builder
	if len(r.DeliveredTo) == 0 {
		b.WriteString("It reached nobody.\n")
	}
	for _, goal := range r.DeliveredTo {
		fmt.Fprintf(&b, "put into the inbox of %s; the bot has it when it takes it from there\n", neutral(goal))
	}
	for _, reason := range r.UnreachableReasons {
		fmt.Fprintf(&b, "not sent: %s\n", neutral(reason))
	}
	_, err := io.WriteString(m.out, b.String())
	return err
}

func (m *mailboxCall) printTasks(list []agent.TaskRecord) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(m.out, "There are no such tasks.")
		return err
	}
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = []string{neutral(r.ID), with(r), stateOf(r), cmp.Or(moment(r.Deadline), "-"),
			m.ago(r.UpdatedAt), cell(r.Text)}
	}
	return writeTable(m.out, "TASK|WITH|STATE|DEADLINE|LAST STEP|WHAT", rows)
}

func (m *mailboxCall) printTaskDetails(list []agent.TaskRecord) error {
	var b strings.Builder
	p := m.paint
	for i, r := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s  %s  %s\n", p.text(bold, neutral(r.ID)), with(r), stateOf(r))
		field(&b, "deadline", moment(r.Deadline))
		field(&b, "given", moment(r.CreatedAt))
		field(&b, "last step", moment(r.UpdatedAt))
		field(&b, "why", r.Reason)
		field(&b, "message", r.MessageID)
		if c := r.Callback; c != nil {
			field(&b, "result for", conversation(c))
		}
		writeQuoted(&b, p, r.Text)
		if r.Result != "" {
			b.WriteString("    result\n")
			writeQuoted(&b, p, r.Result)
		}
	}
	_, err := io.WriteString(m.out, b.String())
	return err
}

func (m *mailboxCall) printStep(r agent.TaskRecord) error {
	_, err := fmt.Fprintf(m.out, "%s %s is %s\n", neutral(r.ID), with(r), stateOf(r))
	return err
}

func (m *mailboxCall) printDeadLetters(list []agent.DeadLetter) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(m.out, "There are no dead letters.")
		return err
	}
	rows := make([][]string, len(list))
	for i, d := range list {
		rows[i] = []string{
			neutral(d.ID), neutral(string(d.Envelope.To)), neutral(string(d.Envelope.Type)), m.ago(d.DeadAt),
			fmt.Sprint(d.Attempts), neutral(string(d.Code)), cell(d.Reason),
		}
	}
	return writeTable(m.out, "MESSAGE|TO|TYPE|DIED|SENT|CODE|REASON", rows)
}

// with names who gave a task, or was given it.
func with(r agent.TaskRecord) string {
	if r.Direction == agent.Given {
		return "to " + neutral(string(r.Peer))
	}
	return "from " + neutral(string(r.Peer))
}

// conversation is what --callback takes.
func conversation(c *mailbox.Callback) string {
	if c.ChatID == "" {
		return c.SessionID
	}
	return c.Channel + ":" + c.ChatID
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

// cell is text in one line, cut to the width of a cell.
func cell(text string) string {
	return runes.Fit(neutral(strings.Join(strings.Fields(text), " ")), cellWidth)
}

// clock is a time as people read it; "-" where none is known.
func clock(t time.Time) string { return cmp.Or(moment(t), "-") }

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// ago says how long ago t is, in the largest unit that tells something.
func (m *mailboxCall) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := m.now.Sub(t)
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}
