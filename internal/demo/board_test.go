package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"feishu-relay/relay"
)

func testBoard() *board {
	b := newBoard(&printer{w: io.Discard}, language{}.cast(), language{}.groups())
	b.exact = true
	return b
}

func (b *board) seen(t *testing.T, agent, kind string, id relay.MessageID, more string) {
	t.Helper()
	data := `{"relay_msg_id":"` + string(id) + `"` + more + `}`
	if err := b.observe(agent, event{kind: kind, data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
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

	if got, want := b.tally().String(), "3 sent, 2 delivered, 2 stopped (judge_no 1, max_depth 1), 2 doubled, 2 lost"; got != want {
		t.Errorf("tally: got %q, want %q", got, want)
	}
}

// A person lets go on what was stopped, from outside the chat too: that is one delivery.
func TestReleasedIsNotDoubled(t *testing.T) {
	b := testBoard()
	b.steered.shown = true
	m := b.post("agent_plan", "Planner", devGroup, "go on")
	b.seen(t, "agent_review", "stop", m.id, `,"reason":"not_for_me"`)
	b.seen(t, "agent_code", "stop", m.id, `,"reason":"max_depth"`)
	b.received("agent_code", m.id, m.text)() // before its sidecar's events are read
	if b.quiet() {
		t.Error("quiet before the sidecar says that it delivered")
	}
	b.seen(t, "agent_code", "delivery", m.id, "")
	if got, want := b.tally().String(), "1 sent, 1 delivered, 1 stopped (not_for_me 1), 0 doubled, 0 lost"; got != want || !b.quiet() {
		t.Errorf("tally: got %q, want %q", got, want)
	}
	b.received("agent_code", m.id, m.text)()
	if got := b.tally(); got.doubled != 1 {
		t.Errorf("given twice: got %s", got)
	}
}

// A long chat's transcript is more than one answer of the API.
func TestTranscriptIsReadWhole(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("before") {
		case "":
			_, _ = io.WriteString(w, `{"entries":[{"message_id":"om_3"}],"earlier":"a b"}`)
		case "a b":
			_, _ = io.WriteString(w, `{"entries":[{"message_id":"om_1"},{"message_id":"om_2"}]}`)
		}
	}))
	defer server.Close()
	var s sidecar
	s.addr.Store(new(server.Listener.Addr().String()))
	got, err := s.transcript(t.Context(), devGroup)
	if err != nil || len(got) != 3 || got[0].MessageID != "om_1" || got[2].MessageID != "om_3" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestCompareNamesTheDifference(t *testing.T) {
	b := testBoard()
	from := b.said()
	m := b.post("agent_plan", "Planner", devGroup, "x")
	b.seen(t, "agent_code", "decision", m.id, threshold1)
	b.seen(t, "agent_code", "delivery", m.id, "")
	b.received("agent_code", m.id, m.text)()
	b.seen(t, "agent_review", "stop", m.id, `,"reason":"not_a_member"`)
	right := result{"agent_plan", passed + "; " + notThere}
	for _, tt := range []struct {
		name string
		want []result
		diff string
	}{
		{"as expected", []result{right}, ""},
		{"another fate", []result{{"agent_plan", passed + "; " + passed}}, "message 1 of Planner"},
		{"one is missing", []result{right, right}, "did not say"},
		{"one too many", nil, "more than expected"},
	} {
		got := b.compare(from, tt.want)
		if (got == "") != (tt.diff == "") || !strings.Contains(got, tt.diff) {
			t.Errorf("%s: got %q, want %q in it", tt.name, got, tt.diff)
		}
	}
}

func TestCompareTranscript(t *testing.T) {
	b := testBoard()
	user := b.post("", "user", pairGroup, "x").id
	bot := b.post("agent_plan", "Planner", pairGroup, "y").id
	whole := []entry{{user, "user", "x"}, {bot, "assistant", "y"}}
	for _, tt := range []struct {
		name, agent string
		entries     []entry
		diff        string
	}{
		{"each once", "agent_code", whole, ""},
		{"nothing for a stranger", "agent_review", nil, ""},
		{"a stranger reads it", "agent_review", whole, "not said here"},
		{"one is missing", "agent_code", whole[:1], "missing"},
		{"one stands twice", "agent_code", append(whole, whole[1]), "twice"},
		{"a bot as a person", "agent_code", []entry{{user, "user", "x"}, {bot, "user", "y"}}, "role"},
		{"in other words", "agent_code", []entry{{user, "user", "x"}, {bot, "assistant", "Thinking…"}}, "said was"},
		{"one from nowhere", "agent_code", append(whole, entry{"om_other", "user", "x"}), "not said here"},
	} {
		got := b.compareTranscript(tt.agent, pairGroup, tt.entries)
		if (got == "") != (tt.diff == "") || !strings.Contains(got, tt.diff) {
			t.Errorf("%s: got %q, want %q in it", tt.name, got, tt.diff)
		}
	}
}

// TestShowKeepsMessagesTogether has the second message come to its end first.
func TestShowKeepsMessagesTogether(t *testing.T) {
	var out strings.Builder
	b := newBoard(&printer{w: &out}, language{}.cast(), language{}.groups())
	first := b.post("agent_plan", "Planner", devGroup, "first")
	second := b.post("agent_code", "Coder", devGroup, "second")
	for _, id := range []relay.MessageID{second.id, first.id} {
		for _, c := range b.cast {
			b.seen(t, c.agent, "stop", id, `,"reason":"judge_no"`)
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
	b := newBoard(&printer{w: &out}, language{}.sdkCast(), map[relay.ChatID]group{pairGroup: language{}.groups()[pairGroup]})
	b.seen(t, "agent_a", "delivery", "om_card", "")
	b.received("agent_a", "om_card", "one\ntwo")()
	b.add(&message{id: "om_card", chat: pairGroup, sender: "agent_b", name: "Coder", text: "Thinking…", drafts: []string{"Thinking…"}, streaming: true})
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

// TestWhatBotsWereGiven has a user's message that Feishu gives to both bots.
func TestWhatBotsWereGiven(t *testing.T) {
	b := newBoard(&printer{w: io.Discard}, language{}.sdkCast(), map[relay.ChatID]group{pairGroup: language{}.groups()[pairGroup]})
	b.exact = true
	b.add(&message{id: "om_1", chat: pairGroup, name: "user", text: "hello", given: []string{"agent_a", "agent_b"}})
	b.received("agent_a", "om_1", "hello")()
	if got := b.tally(); got.lost != 1 || b.quiet() {
		t.Errorf("before the second has it: got %s", got)
	}
	b.received("agent_b", "om_1", "hello")()
	if got := b.tally(); got.lost+got.doubled != 0 || !b.quiet() {
		t.Errorf("when both have it: got %s", got)
	}
	if got := b.compareGiven(); got != "" {
		t.Errorf("given: got %q, want nothing", got)
	}
	b.received("agent_b", "om_1", "Thinking…")()
	if got := b.compareGiven(); !strings.Contains(got, "said was") {
		t.Errorf("given in other words: got %q", got)
	}
	if got := b.tally(); got.doubled != 1 {
		t.Errorf("given twice: got %s", got)
	}
	b.exact = false
	b.received("agent_a", "om_2", "boo")()
	if got := b.compareGiven(); !strings.Contains(got, "nobody said") {
		t.Errorf("given what nobody said: got %q", got)
	}
}

func TestMentioning(t *testing.T) {
	names := map[string]string{"ou_a": "BotA", "ou_b": "BotB"}
	if got, want := mentioning("@BotB thanks, @BotC", names, "<at id=%s></at>"), "<at id=ou_b></at> thanks, @BotC"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBoard()
		never := func() bool { return false }
		if err := b.await(t.Context(), "a wonder", never); err == nil || !strings.Contains(err.Error(), "a wonder") {
			t.Errorf("await at its limit: got %v, want an error that says for what", err)
		}
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := b.await(ctx, "a wonder", never); !errors.Is(err, cause) {
			t.Errorf("await when all ends: got %v, want %v", err, cause)
		}
	})
}

func TestEventsAreParsed(t *testing.T) {
	stream := events{io.NopCloser(strings.NewReader("retry: 1000\n\n: still here\n\nevent: message\nid: 7\ndata: {\"a\":1}\n\n" +
		"event: stop\ndata:{}\n\nevent: torn\ndata: {"))}
	var got []event
	var last error
	for e, err := range stream.all {
		if last = err; err == nil {
			got = append(got, e)
		}
	}
	if len(got) != 2 || got[0].kind != "message" || got[0].id != "7" || string(got[0].data) != `{"a":1}` ||
		got[1].kind != "stop" || string(got[1].data) != "{}" {
		t.Errorf("events: got %+v", got)
	}
	if !errors.Is(last, io.EOF) {
		t.Errorf("end: got %v, want %v", last, io.EOF)
	}
}

// TestCastAnswers has who speaks to whom, as the scenes rely on it.
func TestCastAnswers(t *testing.T) {
	cast := language{}.cast()
	plan, coder, review := &cast[0], &cast[1], &cast[2]
	for _, tt := range []struct {
		who        *character
		text, want string
	}{
		{plan, "@Planner write a test.", "@Coder please do this and send it to me: write a test."},
		{coder, "@Planner write a test", ""},
		{plan, "@Coder write it", ""},
		{plan, "nobody is named", "@Coder please do this and send it to me: nobody is named."},
		{coder, "nobody is named", ""},
		{review, "Everyone: ready?", "Any of them. Test the empty slice."},
	} {
		if got := tt.who.answerUser(tt.text, tt.who.agent == cast[0].agent); got != tt.want {
			t.Errorf("%s hears %q: got %q, want %q", tt.who.name, tt.text, got, tt.want)
		}
	}
	said := coder.answerBot("Planner", "@Coder thank you very much!")
	for range 3 { // they would go on
		if said = plan.answerBot("Coder", said); said != "@Coder thank you!" {
			t.Fatalf("Planner says %q", said)
		}
		if said = coder.answerBot("Planner", said); said != "@Planner you are welcome!" {
			t.Fatalf("Coder says %q", said)
		}
	}
}

func TestGroupsFileHasTheCast(t *testing.T) {
	var file struct {
		Agents map[string]struct{ Name string }
		Groups map[relay.ChatID]struct{ Members []string }
	}
	if err := json.Unmarshal(groupsFile(language{}.cast(), language{}.groups()), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Agents) != 3 || file.Agents["agent_plan"].Name != "Planner" ||
		len(file.Groups[devGroup].Members) != 3 || len(file.Groups[pairGroup].Members) != 2 {
		t.Errorf("groups file: got %+v", file)
	}
}
