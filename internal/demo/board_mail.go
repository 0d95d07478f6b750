package demo

import (
	"fmt"
	"slices"
	"time"

	"feishu-relay/relay"
)

// What mail is called, and where it stands, in the demo's lines.
const (
	mailbox     = "mailbox"
	privateChat = "私聊"
	taskKind    = "task"
	messageKind = "message"
)

// job is a task that was given, as its giver's sidecar says.
type job struct {
	id    string
	state string
}

// finalStates are those that nothing comes after.
var finalStates = []string{"completed", "failed", "rejected"}

// mailID is the id of mail on the board. The agents know no other: who sends a
// step or a message to a peer is told no id, and a bot on the SDK sees one of
// Feishu's form. So nobody says the same to the same twice.
func mailID(from, to, text string) relay.MessageID {
	return relay.MessageID(from + " to " + to + ": " + text)
}

// mail notes that an agent is about to send another one a direct message.
func (b *board) mail(kind string, from, to *character, text string) *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &message{id: mailID(from.agent, to.agent, text), ts: relay.MillisOf(time.Now()), group: mailbox, sender: from.agent,
		name: from.name, text: text, kind: kind, to: []string{to.agent}}
	b.enter(m)
	return m
}

// arrived is received for mail, which the bot got in the conversation where.
func (b *board) arrived(agent string, id relay.MessageID, text, where string) (done func()) {
	b.mu.Lock()
	b.fate(agent, id).where = where
	b.mu.Unlock()
	return b.received(agent, id, text)
}

// refused notes that mail was not sent.
func (b *board) refused(m *message, why relay.Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.fates[m.to[0]].stopped = why
	b.change()
}

// waiting notes that mail waits for its receiver.
func (b *board) waiting(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.waits = true
	b.change()
}

// gave notes a new task.
func (b *board) gave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs = append(b.jobs, &job{id, "pending"})
	b.out.note(fmt.Sprintf("task %d is pending", len(b.jobs)))
	b.change()
}

// moved notes a step of the n-th task, counted from 1. What the step says stands
// on the board; a bare one has this line alone.
func (b *board) moved(n int, state string, bare bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[n-1].state = state
	if bare {
		b.out.note(fmt.Sprintf("task %d is %s", n, state))
	}
}

// job is the id of the n-th task, "" where there is none yet.
func (b *board) job(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > len(b.jobs) {
		return ""
	}
	return b.jobs[n-1].id
}

// states are the tasks' by their ids.
func (b *board) states() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]string{}
	for _, t := range b.jobs {
		all[t.id] = t.state
	}
	return all
}

func (j *job) ended() bool { return slices.Contains(finalStates, j.state) }
