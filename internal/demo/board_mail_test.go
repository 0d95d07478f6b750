package demo

import (
	"io"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
)

// mailBoard is the second act, of which nothing is started.
func mailBoard(w io.Writer) *stage {
	s := &stage{script: language{}.act(2), out: &printer{w: w}, feishu: feishusim.New(feishusim.Options{})}
	s.board = newBoard(s.out, s.script)
	return s
}

// coderGets lets a text arrive at the second agent.
func (s *stage) coderGets(text string) {
	p := &player{sidecar: &sidecar{character: s.script.Cast[1], stage: s}}
	p.mailed(&incoming{chat: "oc_own", private: true, fromBot: true, text: text})()
}

// TestTallyOfMail has mail that arrives, twice, and never, and one that is refused.
func TestTallyOfMail(t *testing.T) {
	s := mailBoard(io.Discard)
	b, from, to := s.board, s.script.Cast[0].Agent, s.script.Cast[1].Agent
	s.coderGets("done") // it may be there before its sender has its answer
	s.mail(taskKind, 0, "done")
	s.gave("task_1")
	if got, _ := b.tally(); got.lost != 1 {
		t.Errorf("a task without an end: got %s", b.sum())
	}
	b.do(func() { b.moved(1, "completed") })
	s.refused(s.mail(messageKind, 0, "one too many"))
	if !b.quiet() {
		t.Error("quiet: got false, want true")
	}
	wantDifference(t, "fates", b.compare(0, map[string][]string{
		from: {"task " + betweenAgents + " delivered", "message RATE_LIMITED"}}), "")
	s.mail(messageKind, 0, "twice")
	s.coderGets("twice")
	s.coderGets("twice")
	s.mail(messageKind, 0, "lost")
	if b.quiet() {
		t.Error("quiet with mail on its way: got true, want false")
	}
	want := "1 tasks given (completed 1), 4 sent, 2 delivered, 1 stopped (RATE_LIMITED 1), 1 doubled, 1 lost"
	if got := b.sum(); got != want {
		t.Errorf("tally: got %q, want %q", got, want)
	}
	_, wrong := b.tally()
	wantDifference(t, "given", wrong, "")
	s.coderGets("said by nobody")
	_, wrong = b.tally()
	wantDifference(t, "given what nobody said to "+to, wrong, "nobody said")
}

// TestMailThatWaitsHoldsUpNothing has the receiver away while others speak.
func TestMailThatWaitsHoldsUpNothing(t *testing.T) {
	var out strings.Builder
	s := mailBoard(&out)
	from := s.script.Cast[0]
	m := s.mail(taskKind, 0, "first")
	s.board.add(&message{id: "om_1", group: "private", name: from.Name, sender: from.Agent, text: "second",
		to: []string{}})
	if strings.Contains(out.String(), "second") {
		t.Errorf("shown before the fate of the first is known: %s", &out)
	}
	s.board.do(func() { m.waits = true })
	s.coderGets("first")
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, words[len(words)-1])
	}
	if want := "first second delivered"; strings.Join(got, " ") != want {
		t.Errorf("lines end with %q, want %q", got, want)
	}
}
