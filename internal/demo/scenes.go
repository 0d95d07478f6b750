package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// scene is one thing to show: the user says something in a group, and then
// this and nothing else has to happen.
type scene struct {
	title string
	chat  relay.ChatID
	asks  string
	// play replaces the plain way, which is to let the user ask.
	play func(context.Context, scene)
	// want is what bots say, each with its fates at the others in the order of
	// the cast, as fate.String has them. Those of one bot are in order.
	want []outcome
	ends string // what there is to see in it
}

type outcome struct {
	says  string // agent
	fates string // separated by "; "
}

const (
	passed   = "1 threshold delivered"
	judged   = "2 judge delivered"
	refused  = "2 judge judge_no"
	limit    = "3 hard_limit max_depth"
	notThere = "not_a_member"
)

// playScenes plays all scenes, each to its expected end.
func (s *stage) playScenes(ctx context.Context, a act) {
	for i, sc := range a.scenes() {
		s.out.plain("")
		s.out.title(fmt.Sprintf("%d. %s", i+1, sc.title))
		from := s.board.said()
		must(wrap(try(func() {
			if sc.play != nil {
				sc.play(ctx, sc)
			} else {
				a.says(ctx, sc.chat, sc.asks)
			}
			s.settle(ctx)
		}), "scene %d", i+1))
		if diff := s.board.compare(from, sc.want); diff != "" {
			must(fmt.Errorf("scene %d did not come to its expected end: %s", i+1, diff))
		}
		if sc.ends != "" {
			s.board.note("%s", sc.ends)
		}
	}
}

// settle waits for the end of everything that was said.
func (s *stage) settle(ctx context.Context) {
	s.await(ctx, "everything delivered or stopped", s.board.quiet)
}

// await waits until done, which is called with the board's lock held, says so.
func (s *stage) await(ctx context.Context, what string, done func() bool) {
	must(s.board.await(ctx, what, done))
}

func (g group) has(agent string) bool { return slices.Contains(g.members, agent) }

// compare says how what was said since from differs from want; "" is not at all.
func (b *board) compare(from int, want []outcome) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cast {
		var got, wanted []string
		for _, m := range b.messages[from:] {
			if m.sender == c.agent {
				var fates []string
				for _, other := range b.cast {
					if f := m.fates[other.agent]; f != nil {
						fates = append(fates, f.String())
					}
				}
				got = append(got, strings.Join(fates, "; "))
			}
		}
		for _, w := range want {
			if w.says == c.agent {
				wanted = append(wanted, w.fates)
			}
		}
		for i := range max(len(got), len(wanted)) {
			switch {
			case i >= len(got):
				return fmt.Sprintf("%s did not say what was to be %q", c.name, wanted[i])
			case i >= len(wanted):
				return fmt.Sprintf("%s said more than expected, %q", c.name, got[i])
			case got[i] != wanted[i]:
				return fmt.Sprintf("message %d of %s: got %q, want %q", i+1, c.name, got[i], wanted[i])
			}
		}
	}
	return ""
}

// maxLines is the most lines of a chat; then it ends as with /quit. It bounds the board, and is
// far over what anybody types.
const maxLines = 5000

// maxTyped is the most bytes of a line; the rest of a longer one is not read,
// and the chat ends.
const maxTyped = 64 << 10

var errNoChat = errors.New("this act goes by its script; --act 1 and --act 2 let you be the user")

// chat lets whoever is at the other end of Input be the user, until the input
// ends or says /quit. The next line is read when the bots have come to rest.
func (s *stage) chat(ctx context.Context, a act) {
	chat, notes := a.lobby()
	for _, n := range append(notes, "to steer them: /relay help — 继续 or continue lets stopped bots go on — /quit ends") {
		s.out.note(n)
	}
	s.board.do(func() { s.board.steered.shown = true })
	lines := s.read(ctx)
	for range maxLines {
		fmt.Fprint(s.out.w, s.Prompt)
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			must(context.Cause(ctx))
		}
		line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD"))
		if !more || line == "/quit" {
			return
		}
		if line != "" {
			a.says(ctx, chat, line)
			s.settle(ctx)
			must(s.board.atRest(ctx))
		}
	}
	s.out.note(fmt.Sprintf("%d lines: that is all for a demo", maxLines))
}

// read gives the lines of Input. Its goroutine may stay in a Read that nothing
// can end.
func (s *stage) read(ctx context.Context) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		if s.Input == nil {
			return
		}
		scan := bufio.NewScanner(s.Input)
		scan.Buffer(nil, maxTyped)
		for scan.Scan() {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// tally counts what was observed.
type tally struct {
	tasks     map[string]int       // that agents gave each other, by the state they are in
	sent      int                  // by bots
	delivered int                  // to bots
	stopped   map[relay.Reason]int // instead
	doubled   int                  // more than once to the same bot
	lost      int                  // neither delivered nor stopped; of tasks: without an end
}

// String is the summary in one line.
func (t tally) String() string {
	stopped, reasons := counts(t.stopped)
	text := fmt.Sprintf("%d sent, %d delivered, %d stopped", t.sent, t.delivered, stopped)
	if stopped > 0 {
		text += " (" + reasons + ")"
	}
	if given, states := counts(t.tasks); given > 0 {
		text = fmt.Sprintf("%d tasks given (%s), %s", given, states, text)
	}
	return fmt.Sprintf("%s, %d doubled, %d lost", text, t.doubled, t.lost)
}

// counts is the sum of what is counted, and each count with its name.
func counts[K ~string](of map[K]int) (sum int, each string) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		sum += of[name]
		list = append(list, fmt.Sprintf("%s %d", name, of[name]))
	}
	return sum, strings.Join(list, ", ")
}

// tally counts the messages of the bots.
func (b *board) tally() tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := tally{stopped: map[relay.Reason]int{}, tasks: map[string]int{}}
	for _, j := range b.jobs {
		t.tasks[j.state]++
		if !j.ended() {
			t.lost++
		}
	}
	for _, m := range b.messages {
		if m.sender != "" && !b.steered.shows[m.id] {
			t.sent++
		}
		for _, f := range m.fates {
			times := max(f.delivered, f.received)
			switch {
			case f.stopped != "":
				t.stopped[f.stopped]++
				t.doubled += times // stopped and delivered all the same
			case !f.ended():
				t.lost++
			default:
				t.delivered++
				t.doubled += times - 1
			}
		}
		for _, agent := range m.given {
			switch f := b.fate(agent, m.id); {
			case m.command || f.stopped != "": // for another bot, or for none
				t.doubled += f.received
			case f.received == 0:
				t.lost++
			default:
				t.doubled += f.received - 1
			}
		}
	}
	return t
}

// check counts, reads the transcripts of all sidecars, and prints the summary.
// It ends the act with everything that is not as it should be.
func (s *stage) check(ctx context.Context) {
	s.settle(ctx)
	t := s.board.tally()
	var wrong []error
	if t.doubled > 0 || t.lost > 0 {
		wrong = append(wrong, fmt.Errorf("%d doubled, %d lost", t.doubled, t.lost))
	}
	if diff := s.board.compareGiven(); diff != "" {
		wrong = append(wrong, errors.New(diff))
	}
	verdict := "each message once, and only where it belongs"
	for _, sc := range s.sidecars {
		for chat, g := range s.board.chats {
			entries, err := sc.transcript(ctx, chat)
			must(err)
			if diff := s.board.compareTranscript(sc.agent, chat, entries); diff != "" {
				verdict = "not as they should be"
				wrong = append(wrong, fmt.Errorf("transcript of %s at %s's sidecar: %s", g.name, sc.name, diff))
			}
		}
	}
	s.summary(t, verdict)
	must(errors.Join(wrong...))
}

// compareGiven tells of a message that a bot was given in other words than it
// was said in, or that nobody said; "" is of none.
func (b *board) compareGiven() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, of := range b.fates {
		for agent, f := range of {
			switch m := b.byID[id]; {
			case f.received == 0:
			case m == nil:
				return fmt.Sprintf("%s was given %s, which nobody said", agent, id)
			case b.exact && f.text != m.text:
				return fmt.Sprintf("%s was given %s as %q, said was %q", agent, id, f.text, m.text)
			}
		}
	}
	return ""
}

// compareTranscript tells how the entries differ from what was said in a chat,
// as far as agent is in it; "" is not at all.
func (b *board) compareTranscript(agent string, chat relay.ChatID, entries []entry) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.chats[chat].has(agent) {
		if len(entries) > 0 {
			return fmt.Sprintf("shows %d messages of a group that the bot is not in", len(entries))
		}
		return ""
	}
	times := map[relay.MessageID]int{}
	for _, e := range entries {
		if e.Role == transcript.RoleNotice {
			continue // the group was shown it, and no bot
		}
		times[e.MessageID]++
		m := b.byID[e.MessageID]
		switch {
		case m == nil || m.chat != chat:
			return fmt.Sprintf("%s was not said here", e.MessageID)
		case (m.sender == "") != (e.Role == relay.RoleUser):
			return fmt.Sprintf("%s stands with the role %q", e.MessageID, e.Role)
		case b.exact && e.Content != m.text:
			return fmt.Sprintf("%s stands as %q, said was %q", e.MessageID, e.Content, m.text)
		}
	}
	for _, m := range b.messages {
		if m.chat == chat && times[m.id] != 1 && !m.command && !b.steered.shows[m.id] {
			return fmt.Sprintf("%s stands %d times in it", m.id, times[m.id])
		}
	}
	return ""
}

// summary prints the count in a few lines.
func (s *stage) summary(t tally, transcripts string) {
	s.out.plain("")
	s.out.title("summary")
	row := func(name string, n int, what string) { s.out.plain(fmt.Sprintf("  %s%4d  %s", pad(name, 14), n, what)) }
	if given, states := counts(t.tasks); given > 0 {
		row("tasks", given, "given: "+states)
	}
	row("sent", t.sent, "by bots")
	row("delivered", t.delivered, "to other bots")
	for _, why := range slices.Sorted(maps.Keys(t.stopped)) {
		row(string(why), t.stopped[why], "stopped: "+explained[why])
	}
	row("doubled", t.doubled, "delivered to the same bot again")
	row("lost", t.lost, "neither delivered nor stopped for a reason")
	s.out.plain("  " + pad("transcripts", 14) + "      " + transcripts)
	s.out.plain("")
	if s.last && !s.Keep {
		hint := "look further: --keep leaves queue, transcripts and logs there"
		if s.Act != 3 { // which has no --chat
			hint += "; --chat lets you be the user"
		}
		s.out.plain(hint)
	}
}

// explained says in a few words what the reasons mean that the demo can show.
var explained = map[relay.Reason]string{
	relay.MaxDepth:   "MAX_BOT_REPLY_DEPTH messages of bots since a person spoke",
	relay.JudgeNo:    "the judge saw a courtesy or nothing left to do",
	relay.NotAMember: "the bot is not in that group",
	relay.Muted:      "a person muted the bot",
	relay.Paused:     "a person paused bots' messages",
	relay.NotForMe:   "it is for another bot",
	relay.Budget:     "bots said as much this hour as the group's budget allows",

	relay.StoppedByPerson: "a person stopped the bots",
	rateLimited:           "PEER_MAX_EXCHANGES messages between two agents in 10 minutes",
}
