package demo

import (
	"io"
	"strings"
	"testing"
)

func mailBoard(w io.Writer) *board {
	b := newBoard(&printer{w: w}, language{}.mailCast(), nil)
	b.exact = true
	return b
}

// TestTallyOfMail has mail that arrives, twice, and never, and one that is refused.
func TestTallyOfMail(t *testing.T) {
	b := mailBoard(io.Discard)
	from, to := &b.cast[0], &b.cast[1]
	arrives := func(text string) {
		b.arrived(to.agent, mailID(from.agent, to.agent, text), text, betweenAgents)()
	}

	arrives("done") // it may be there before its sender has its answer
	b.mail(taskKind, from, to, "done")
	b.gave("task_1")
	if got := b.tally(); got.lost != 1 {
		t.Errorf("a task without an end: got %s", got)
	}
	b.moved(1, "completed")
	b.refused(b.mail(messageKind, from, to, "one too many"), rateLimited)
	if !b.quiet() {
		t.Error("quiet: got false, want true")
	}
	if diff := b.compare(0, []result{{from.agent, "task " + betweenAgents + " delivered"}, {from.agent, "message RATE_LIMITED"}}); diff != "" {
		t.Error(diff)
	}
	b.mail(messageKind, from, to, "twice")
	arrives("twice")
	arrives("twice")
	b.mail(messageKind, from, to, "lost")
	if b.quiet() {
		t.Error("quiet with mail on its way: got true, want false")
	}
	want := "1 tasks given (completed 1), 4 sent, 2 delivered, 1 stopped (RATE_LIMITED 1), 1 doubled, 1 lost"
	if got := b.tally().String(); got != want {
		t.Errorf("tally: got %q, want %q", got, want)
	}
	if got := b.compareGiven(); got != "" {
		t.Errorf("given: %s", got)
	}
	arrives("said by nobody")
	if got := b.compareGiven(); !strings.Contains(got, "nobody said") {
		t.Errorf("given: got %q, want the message that nobody said", got)
	}
}

// TestMailThatWaitsHoldsUpNothing has the receiver away while others speak.
func TestMailThatWaitsHoldsUpNothing(t *testing.T) {
	var out strings.Builder
	b := mailBoard(&out)
	from, to := &b.cast[0], &b.cast[1]
	m := b.mail(taskKind, from, to, "first")
	b.add(&message{id: "om_1", group: "private", name: from.name, sender: from.agent, text: "second", to: []string{}})
	if strings.Contains(out.String(), "second") {
		t.Errorf("shown before the fate of the first is known: %s", &out)
	}
	b.waiting(m)
	b.arrived(to.agent, m.id, m.text, betweenAgents)()
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, words[len(words)-1])
	}
	if want := "first second delivered"; strings.Join(got, " ") != want {
		t.Errorf("lines end with %q, want %q", got, want)
	}
}
