package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/outcome"
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
	want []result
	ends string // what there is to see in it
}

type result struct {
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
			s.board.note(sc.ends)
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
func (b *board) compare(from int, want []result) string {
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
	for _, n := range append(notes, s.out.say("to steer them: /relay help — continue lets stopped bots go on — /quit ends",
		"管住它们：/中继 帮助 —“继续”让停下的接着说 — /quit 结束")) {
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
	s.out.note(s.out.say("%d lines: the chat ends here", "%d 行了，到此为止", maxLines))
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

func (t tally) String() string { return t.text(language{}) }

// text is the summary in one line.
func (t tally) text(l language) string {
	stopped, reasons := counts(t.stopped, language{})
	text := l.say("%d sent, %d delivered, %d stopped", "发送 %d，送达 %d，拦下 %d", t.sent, t.delivered, stopped)
	if stopped > 0 {
		text += l.say(" (%s)", "（%s）", reasons)
	}
	if given, states := counts(t.tasks, l); given > 0 {
		text = l.say("%d tasks given (%s), %s", "派出任务 %d（%s），%s", given, states, text)
	}
	return l.say("%s, %d doubled, %d lost", "%s，重复 %d，丢失 %d", text, t.doubled, t.lost)
}

// counts is the sum of what is counted, and each count with its name.
func counts[K ~string](of map[K]int, l language) (sum int, each string) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		sum += of[name]
		list = append(list, fmt.Sprintf("%s %d", l.word(string(name)), of[name]))
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
	verdict := s.out.say("each message once, in its own group only", "每条消息只出现一次，而且只在它的群里")
	for _, sc := range s.sidecars {
		for chat, g := range s.board.chats {
			entries, err := sc.transcript(ctx, chat)
			must(err)
			if diff := s.board.compareTranscript(sc.agent, chat, entries); diff != "" {
				verdict = s.out.say("not as they should be", "不对")
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
	line := func(user bool, text string) string {
		if !b.exact {
			text = ""
		}
		return fmt.Sprintf("user %v: %q", user, text)
	}
	elsewhere := func(id relay.MessageID) bool { return b.steered.shows[id] || b.byID[id] != nil && b.byID[id].command }
	missing := map[relay.MessageID]string{}
	for _, m := range b.messages {
		if m.chat == chat && b.chats[chat].has(agent) && !elsewhere(m.id) {
			missing[m.id] = line(m.sender == "", m.text)
		}
	}
	for _, e := range entries {
		if e.Role == transcript.RoleNotice || elsewhere(e.MessageID) {
			continue // the group was shown it, and no bot
		}
		switch said, ok := missing[e.MessageID]; {
		case !ok:
			return fmt.Sprintf("%s was not said here, or is in it twice", e.MessageID)
		case line(e.Role == relay.RoleUser, e.Content) != said:
			return fmt.Sprintf("%s is in it as %s, role %s; said was %s", e.MessageID, e.Content, e.Role, said)
		}
		delete(missing, e.MessageID)
	}
	for id := range missing {
		return fmt.Sprintf("%s is missing", id)
	}
	return ""
}

// summary prints what was counted, in a few lines.
func (s *stage) summary(t tally, transcripts string) {
	say := s.out.say
	s.out.plain("")
	s.out.title(say("summary", "小结"))
	row := func(name string, n int, what string) { s.out.plain(fmt.Sprintf("  %s%4d  %s", pad(name, 16), n, what)) }
	if given, states := counts(t.tasks, s.out.language); given > 0 {
		row(say("tasks", "任务"), given, say("given by one agent to the other: %s", "一个智能体派给另一个的：%s", states))
	}
	stopped, _ := counts(t.stopped, language{})
	row(say("sent", "发送"), t.sent, say("messages that bots wrote", "机器人写的消息"))
	row(say("delivered", "送达"), t.delivered, say("a bot was given another bot's message", "一个机器人收到另一个的消息，收到一次算一次"))
	row(say("stopped", "拦下"), stopped, say("a bot was not given it, for one of these reasons:", "没有给到某个机器人，原因如下："))
	for _, why := range slices.Sorted(maps.Keys(t.stopped)) {
		means := say("PEER_MAX_EXCHANGES messages between two agents in 10 minutes", "两个智能体 10 分钟内往来达到 PEER_MAX_EXCHANGES 条")
		if known, ok := outcome.Advise(why); ok {
			means = known.Means.In(s.out.chinese)
		}
		row("  "+string(why), t.stopped[why], means)
	}
	row(say("doubled", "重复"), t.doubled, say("a bot was given the same message again", "同一条消息又给了同一个机器人"))
	row(say("lost", "丢失"), t.lost, say("neither delivered nor stopped", "既没送达，也没拦下"))
	s.out.plain("  " + pad(say("transcripts", "群记录"), 16) + "      " + transcripts)
	s.out.plain(say("  A message counts once for each bot that it is for: %d delivered + %d stopped = %d. Other messages went to people alone.",
		"  一条消息发给几个机器人，就算几次：送达 %d + 拦下 %d = %d。其余的消息只发给人。", t.delivered, stopped, t.delivered+stopped))
	s.out.plain("")
	if s.last && !s.Keep {
		hint := say("look further: --keep leaves queue, transcripts and logs there", "再看看：--keep 会留下队列、记录和日志")
		if s.Act != 3 { // which has no --chat
			hint += say("; --chat lets you be the user", "；--chat 由你来当用户")
		}
		s.out.plain(hint)
	}
}
