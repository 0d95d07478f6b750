package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// difference names the first place where got differs from want; nil: they are equal.
func difference(got, want []string) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%q is missing", want[i])
		case i >= len(want):
			return fmt.Errorf("%q is one too many", got[i])
		case got[i] != want[i]:
			return fmt.Errorf("message %d: got %q, want %q", i+1, got[i], want[i])
		}
	}
	return nil
}

// compare says how what became of the messages since from differs from a scene's Want.
func (b *board) compare(from int, want map[string][]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cast {
		var got []string
		for _, m := range b.messages[from:] {
			if m.sender != c.Agent {
				continue
			}
			var fates []string
			for _, agent := range m.to {
				fates = append(fates, b.fate(agent, m.id).String())
			}
			got = append(got, strings.Join(fates, "; "))
		}
		if err := difference(got, want[c.Agent]); err != nil {
			return wrap(err, "messages of %s", c.Name)
		}
	}
	return nil
}

// compareTranscript says how the entries differ from what was said in a chat, as far as agent is in it.
func (b *board) compareTranscript(agent string, chat relay.ChatID, entries []entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var got, want []string
	add := func(to *[]string, id relay.MessageID, user bool, text string) {
		if b.notices[id] || b.steeringOf(id).command {
			return // the group was shown it, and no bot
		}
		if b.chat {
			text = "…"
		}
		*to = append(*to, fmt.Sprintf("%s, user %v: %s", id, user, text))
	}
	for _, m := range b.messages {
		if m.chat == chat && slices.Contains(b.groups[chat].Members, agent) {
			add(&want, m.id, m.sender == "", m.text)
		}
	}
	for _, e := range entries {
		if e.Role != transcript.RoleNotice {
			add(&got, e.MessageID, e.Role == relay.RoleUser, e.Content)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return difference(got, want)
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

// finalStates are those that nothing comes after.
var finalStates = []string{"completed", "failed", "rejected"}

// tally counts the messages of the bots. wrong is a message that a bot was given in other words than it was said in, or
// that nobody said.
func (b *board) tally() (t tally, wrong error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t = tally{stopped: map[relay.Reason]int{}, tasks: map[string]int{}}
	for _, given := range b.tasks {
		t.tasks[given.state]++
		if !slices.Contains(finalStates, given.state) {
			t.lost++
		}
	}
	for _, m := range b.messages {
		if m.sender != "" && !b.notices[m.id] {
			t.sent++
		}
		for _, agent := range m.to {
			f, ofBot := b.fate(agent, m.id), m.sender != ""
			times := max(f.delivered, f.received)
			switch {
			case f.stopped != "" || b.steeringOf(m.id).command:
				t.doubled += times // stopped and delivered all the same
				if ofBot {
					t.stopped[f.stopped]++
				}
			case !f.ended():
				t.lost++
			default:
				t.doubled += times - 1
				if ofBot {
					t.delivered++
				}
			}
		}
	}
	for id, of := range b.fates {
		for agent, f := range of {
			switch m := b.byID[id]; {
			case f.received == 0:
			case m == nil:
				wrong = fmt.Errorf("%s was given %s, which nobody said", agent, id)
			case !b.chat && f.text != m.text:
				wrong = fmt.Errorf("%s was given %s as %q, said was %q", agent, id, f.text, m.text)
			}
		}
	}
	return t, wrong
}

// check counts, reads the transcripts of all sidecars, and prints the summary.
// It ends the act with everything that is not as it should be.
func (s *stage) check(ctx context.Context) {
	s.settle(ctx)
	t, err := s.board.tally()
	wrong := []error{err}
	if t.doubled > 0 || t.lost > 0 {
		wrong = append(wrong, fmt.Errorf("%d doubled, %d lost", t.doubled, t.lost))
	}
	verdict := s.out.say("each message once, in its own group only",
		"每条消息只出现一次，而且只在它的群里")
	for _, sc := range s.sidecars {
		for chat, g := range s.board.groups {
			entries, err := sc.transcript(ctx, chat)
			must(err)
			if err := s.board.compareTranscript(sc.Agent, chat, entries); err != nil {
				verdict = s.out.say("not as they should be", "不对")
				wrong = append(wrong, wrap(err, "transcript of %s at %s's sidecar", g.Name, sc.Name))
			}
		}
	}
	s.summary(t, verdict)
	must(errors.Join(wrong...))
}

// summary prints what was counted, in a few lines.
func (s *stage) summary(t tally, transcripts string) {
	say := s.out.say
	s.out.plain("")
	s.out.title(say("summary", "小结"))
	row := func(name string, n int, what string) { s.out.plain(fmt.Sprintf("  %s%4d  %s", pad(name, 16), n, what)) }
	if given, states := counts(t.tasks, s.out.language); given > 0 {
		row(say("tasks", "任务"), given, say("given by one agent to the other: %s",
			"一个智能体派给另一个的：%s", states))
	}
	stopped, _ := counts(t.stopped, language{})
	row(say("sent", "发送"), t.sent, say("messages that bots wrote", "机器人写的消息"))
	row(say("delivered", "送达"), t.delivered, say("a bot was given another bot's message",
		"一个机器人收到另一个的消息，收到一次算一次"))
	row(say("stopped", "拦下"), stopped, say("a bot was not given it, for one of these reasons:",
		"没有给到某个机器人，原因如下："))
	for _, why := range slices.Sorted(maps.Keys(t.stopped)) {
		means := say("PEER_MAX_EXCHANGES messages between two agents in 10 minutes",
			"两个智能体 10 分钟内往来达到 PEER_MAX_EXCHANGES 条")
		if key := "reason/" + string(why); words.Has(key) {
			means = words.Words{Chinese: s.out.chinese}.Say(key)
		}
		row("  "+string(why), t.stopped[why], means)
	}
	row(say("doubled", "重复"), t.doubled, say("a bot was given the same message again",
		"同一条消息又给了同一个机器人"))
	row(say("lost", "丢失"), t.lost, say("neither delivered nor stopped", "既没送达，也没拦下"))
	s.out.plain("  " + pad(say("transcripts", "群记录"), 16) + "      " + transcripts)
	s.out.plain(say("  A message counts once for each bot that it is for: %d delivered + %d stopped = %d. Other messages went to people alone.",
		"  一条消息发给几个机器人，就算几次：送达 %d + 拦下 %d = %d。其余的消息只发给人。", t.delivered, stopped, t.delivered+stopped))
	s.out.plain("")
	if s.last && !s.Keep {
		hint := say("look further: --keep leaves queue, transcripts and logs in a folder that it names",
			"再看看：--keep 会把队列、记录和日志留在一个文件夹里，并说出它的名字")
		if s.Act != 2 && !s.Chat { // act 2 has no --chat
			hint += say("; --chat lets you be the user", "；--chat 由你来当用户")
		}
		s.out.plain(hint)
	}
}
