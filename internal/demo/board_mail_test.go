package demo

import (
	"io"
	"strings"
	"testing"
)

// mailBoard is the board of the third act, without a Feishu.
func mailBoard(w io.Writer) *gatewayAct {
	s := &stage{script: language{}.act(3), out: &printer{w: w}}
	s.board = newBoard(s.out, s.script)
	return &gatewayAct{stage: s}
}

// TestTallyOfMail has mail that arrives, twice, and never, and one that is refused.
func TestTallyOfMail(t *testing.T) {
	a := mailBoard(io.Discard)
	b, from, to := a.board, a.script.Cast[0].Agent, a.script.Cast[1].Agent
	arrives := func(text string) {
		a.mailed(1, &incoming{chat: "oc_own", private: true, fromBot: true, text: text})()
	}

	arrives("done") // it may be there before its sender has its answer
	a.mail(taskKind, 0, "done")
	a.gave("task_1")
	if got, _ := b.tally(); got.lost != 1 {
		t.Errorf("a task without an end: got %s", b.sum())
	}
	b.do(func() { b.moved(1, "completed") })
	a.refused(a.mail(messageKind, 0, "one too many"))
	if !b.quiet() {
		t.Error("quiet: got false, want true")
	}
	wantDifference(t, "fates", b.compare(0, map[string][]string{
		from: {"task " + betweenAgents + " delivered", "message RATE_LIMITED"}}), "")
	a.mail(messageKind, 0, "twice")
	arrives("twice")
	arrives("twice")
	a.mail(messageKind, 0, "lost")
	if b.quiet() {
		t.Error("quiet with mail on its way: got true, want false")
	}
	want := "1 tasks given (completed 1), 4 sent, 2 delivered, 1 stopped (RATE_LIMITED 1), 1 doubled, 1 lost"
	if got := b.sum(); got != want {
		t.Errorf("tally: got %q, want %q", got, want)
	}
	_, wrong := b.tally()
	wantDifference(t, "given", wrong, "")
	arrives("said by nobody")
	_, wrong = b.tally()
	wantDifference(t, "given what nobody said to "+to, wrong, "nobody said")
}

// TestMailThatWaitsHoldsUpNothing has the receiver away while others speak.
func TestMailThatWaitsHoldsUpNothing(t *testing.T) {
	var out strings.Builder
	a := mailBoard(&out)
	from := a.script.Cast[0]
	m := a.mail(taskKind, 0, "first")
	a.board.add(&message{id: "om_1", group: "private", name: from.Name, sender: from.Agent, text: "second", to: []string{}})
	if strings.Contains(out.String(), "second") {
		t.Errorf("shown before the fate of the first is known: %s", &out)
	}
	a.board.do(func() { m.waits = true })
	a.mailed(1, &incoming{chat: "oc_own", private: true, fromBot: true, text: "first"})()
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, words[len(words)-1])
	}
	if want := "first second delivered"; strings.Join(got, " ") != want {
		t.Errorf("lines end with %q, want %q", got, want)
	}
}
