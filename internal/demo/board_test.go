package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/sse"
	"feishu-relay/relay"
)

func testBoard() *board {
	return newBoard(&printer{w: io.Discard}, language{}.act(1))
}

func (b *board) seen(t *testing.T, agent, kind string, id relay.MessageID, more string) {
	t.Helper()
	data := `{"relay_msg_id":"` + string(id) + `"` + more + `}`
	if err := b.observe(agent, sse.Event{Kind: kind, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

// The groups of the first act: the reviewer is not in the second.
const (
	devGroup  relay.ChatID = "oc_demo_dev"
	pairGroup relay.ChatID = "oc_demo_pair"
)

// post puts a message into a group.
func (b *board) post(sender, name string, chat relay.ChatID, text string) *message {
	n := len(b.messages) + 1
	m := &message{id: relay.MessageID(fmt.Sprintf("om_%d", n)), ts: relay.Millis(n), chat: chat, sender: sender, name: name, text: text}
	if sender == "" {
		m.to = []string{} // not of interest
	}
	b.add(m)
	return m
}

// sum is the tally in one line.
func (b *board) sum() string {
	t, _ := b.tally()
	return t.text(language{})
}

const threshold1 = `,"decision":{"allow":true,"tier":"threshold","reason":"r","depth":1}`

// TestTallyFindsWhatIsWrong has one message with each fault.
func TestTallyFindsWhatIsWrong(t *testing.T) {
	b := testBoard()
	b.post("", "user", devGroup, "hello") // is nobody's to deliver

	fine := b.post("agent_plan", "Planner", devGroup, "fine")
	b.seen(t, "agent_code", "decision", fine.id, threshold1)
	b.seen(t, "agent_code", "delivery", fine.id, "")
	b.received("agent_code", fine.id, fine.text)()
	b.seen(t, "agent_review", "stop", fine.id, `,"reason":"judge_no"`)
	b.seen(t, "agent_review", "stop", fine.id, `,"reason":"duplicate"`)
	if !b.quiet() {
		t.Error("quiet: got false, want true")
	}

	again := b.post("agent_plan", "Planner", devGroup, "again")
	b.seen(t, "agent_code", "delivery", again.id, "")
	b.received("agent_code", again.id, again.text)()
	b.received("agent_code", again.id, again.text)()
	b.seen(t, "agent_review", "stop", again.id, `,"reason":"max_depth"`)
	b.received("agent_review", again.id, again.text)() // stopped and delivered

	lost := b.post("agent_code", "Coder", devGroup, "lost")
	b.seen(t, "agent_plan", "delivery", lost.id, "") // says the sidecar; not the bot
	b.seen(t, "agent_review", "stop", lost.id, `,"reason":"duplicate"`)
	if b.quiet() {
		t.Error("quiet: got true, want false")
	}

	if got, want := b.sum(), "3 sent, 2 delivered, 2 stopped (judge_no 1, max_depth 1), 2 doubled, 2 lost"; got != want {
		t.Errorf("tally: got %q, want %q", got, want)
	}
}

// A person lets go on what was stopped, from outside the chat too: that is one delivery.
func TestReleasedIsNotDoubled(t *testing.T) {
	b := testBoard()
	b.chat = true
	m := b.post("agent_plan", "Planner", devGroup, "go on")
	b.seen(t, "agent_review", "stop", m.id, `,"reason":"not_for_me"`)
	b.seen(t, "agent_code", "stop", m.id, `,"reason":"max_depth"`)
	b.received("agent_code", m.id, m.text)() // before its sidecar's events are read
	if b.quiet() {
		t.Error("quiet before the sidecar says that it delivered")
	}
	b.seen(t, "agent_code", "delivery", m.id, "")
	if got, want := b.sum(), "1 sent, 1 delivered, 1 stopped (not_for_me 1), 0 doubled, 0 lost"; got != want || !b.quiet() {
		t.Errorf("tally: got %q, want %q", got, want)
	}
	b.received("agent_code", m.id, m.text)()
	if got, _ := b.tally(); got.doubled != 1 {
		t.Errorf("given twice: got %s", b.sum())
	}
}

// wantDifference checks that err is nil if part is "", and has part in it if not.
func wantDifference(t *testing.T, name string, err error, part string) {
	t.Helper()
	if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
		t.Errorf("%s: got %v, want %q in it", name, err, part)
	}
}

// TestShowKeepsMessagesTogether has the second message come to its end first.
func TestShowKeepsMessagesTogether(t *testing.T) {
	var out strings.Builder
	b := newBoard(&printer{w: &out}, language{}.act(1))
	first := b.post("agent_plan", "Planner", devGroup, "first")
	second := b.post("agent_code", "Coder", devGroup, "second")
	for _, id := range []relay.MessageID{second.id, first.id} {
		for _, c := range b.cast {
			b.seen(t, c.Agent, "stop", id, `,"reason":"judge_no"`)
		}
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, words[0]+" "+words[len(words)-1])
	}
	if len(got) != 6 || !strings.HasSuffix(got[0], "first") || !strings.HasSuffix(got[3], "second") {
		t.Errorf("lines: got %q, want first with two fates, second with two", got)
	}
}

// TestCardsAreShownAsTheyGrow has a sidecar that is faster than the group, too.
func TestCardsAreShownAsTheyGrow(t *testing.T) {
	var out strings.Builder
	b := newBoard(&printer{w: &out}, language{}.act(1))
	b.seen(t, "agent_plan", "delivery", "om_card", "")
	b.received("agent_plan", "om_card", "one\ntwo")()
	b.add(&message{id: "om_card", chat: pairGroup, sender: "agent_code", to: []string{"agent_plan"}, name: "Coder", text: "Thinking…", drafts: []string{"Thinking…"}, streaming: true})
	b.rewrite("om_other", "not said here", false)
	b.rewrite("om_card", "one", true)
	b.rewrite("om_card", "one\ntwo", true)
	if b.quiet() {
		t.Error("quiet while the card grows: got true, want false")
	}
	b.rewrite("om_card", "one\ntwo", false)
	if !b.quiet() {
		t.Error("quiet: got false, want true")
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, strings.Join(words[max(0, len(words)-2):], " "))
	}
	if want := []string{"⋯ Thinking…", "⋯ one", "■ one", "two", "✓ delivered"}; !slices.Equal(got, want) {
		t.Errorf("lines: got %q, want %q", got, want)
	}
}

// TestCastAnswers has who speaks to whom, as the scenes rely on it.
func TestCastAnswers(t *testing.T) {
	s := language{}.act(1)
	plan, coder, review := &s.Cast[0], &s.Cast[1], &s.Cast[2]
	for _, tt := range []struct {
		who        *character
		text, want string
	}{
		{plan, "@Planner write a test.", "@Coder please do this and send it to me: write a test."},
		{review, "Everyone: ready?", "Any of them. Test the empty slice."},
	} {
		if got := s.pick(tt.who.Asked, "", tt.text).Says; got != tt.want {
			t.Errorf("%s hears %q: got %q, want %q", tt.who.Name, tt.text, got, tt.want)
		}
	}
	said := s.pick(coder.Told, "Planner", "@Coder thank you very much!").Says
	for range 3 { // they would go on
		if said = s.pick(plan.Told, "Coder", said).Says; said != "@Coder thank you!" {
			t.Fatalf("Planner says %q", said)
		}
		if said = s.pick(coder.Told, "Planner", said).Says; said != "@Planner you are welcome!" {
			t.Fatalf("Coder says %q", said)
		}
	}
}

// TestScriptIsWhole reads the script in both languages: its verbs are known, its agents and texts are there.
func TestScriptIsWhole(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for act := 1; act <= 2; act++ {
		for _, chinese := range []bool{false, true} {
			s, err := newStage(Options{Chinese: chinese}, act)
			if err != nil {
				t.Fatal(err)
			}
			verbs, agents := s.verbs(), map[string]bool{}
			for _, c := range s.script.Cast {
				agents[c.Agent] = true
				if c.Name == "" || c.Role == "" {
					t.Errorf("act %d, Chinese %v: a character without a name or a role: %+v", act, chinese, c)
				}
			}
			for _, scene := range s.script.Scenes {
				if scene.Title == "" || len(scene.Steps) == 0 || len(scene.Want) == 0 {
					t.Errorf("act %d, Chinese %v: a scene without a title, steps or an end: %+v", act, chinese, scene)
				}
				for _, step := range scene.Steps {
					for verb := range step {
						if verbs[verb] == nil || len(step) != 1 {
							t.Errorf("act %d, %s: the step %v is not one verb that is known", act, scene.Title, step)
						}
					}
				}
				for agent := range scene.Want {
					if !agents[agent] {
						t.Errorf("act %d, %s: nobody is %s", act, scene.Title, agent)
					}
				}
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
	}
}
