package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

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
	stopped, reasons := 0, []string{}
	for _, why := range slices.Sorted(maps.Keys(t.stopped)) {
		stopped += t.stopped[why]
		reasons = append(reasons, fmt.Sprintf("%s %d", why, t.stopped[why]))
	}
	text := fmt.Sprintf("%d sent, %d delivered, %d stopped", t.sent, t.delivered, stopped)
	if stopped > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	text = fmt.Sprintf("%s, %d doubled, %d lost", text, t.doubled, t.lost)
	if len(t.tasks) == 0 {
		return text
	}
	given, states := t.given()
	return fmt.Sprintf("%d tasks given (%s), %s", given, states, text)
}

// given is how many tasks there are, and how many in each state.
func (t tally) given() (n int, states string) {
	var list []string
	for _, state := range slices.Sorted(maps.Keys(t.tasks)) {
		n += t.tasks[state]
		list = append(list, fmt.Sprintf("%s %d", state, t.tasks[state]))
	}
	return n, strings.Join(list, ", ")
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
			case !f.ended():
				t.lost++
			case f.stopped != "":
				t.stopped[f.stopped]++
				t.doubled += times // stopped and delivered all the same
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
// It returns an error that tells everything that is not as it should be.
func (s *stage) check(ctx context.Context) error {
	if err := s.board.await(ctx, allEnded, s.board.quiet); err != nil {
		return err
	}
	t := s.board.tally()
	var wrong []error
	if t.doubled > 0 || t.lost > 0 {
		wrong = append(wrong, fmt.Errorf("%d doubled, %d lost", t.doubled, t.lost))
	}
	if diff := s.board.compareGiven(); diff != "" {
		wrong = append(wrong, errors.New(diff))
	}
	transcripts := true
	for _, sc := range s.sidecars {
		for chat, g := range s.board.chats {
			entries, err := sc.transcript(ctx, chat)
			if err != nil {
				return err
			}
			if diff := s.board.compareTranscript(sc.agent, chat, entries); diff != "" {
				transcripts = false
				wrong = append(wrong, fmt.Errorf("transcript of %s at %s's sidecar: %s", g.name, sc.name, diff))
			}
		}
	}
	s.summary(t, transcripts)
	return errors.Join(wrong...)
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
		if m == nil || m.chat != chat {
			return fmt.Sprintf("%s was not said here", e.MessageID)
		}
		if (m.sender == "") != (e.Role == relay.RoleUser) {
			return fmt.Sprintf("%s stands with the role %q", e.MessageID, e.Role)
		}
		if b.exact && e.Content != m.text {
			return fmt.Sprintf("%s stands as %q, said was %q", e.MessageID, e.Content, m.text)
		}
	}
	for _, m := range b.messages {
		if m.command || b.steered.shows[m.id] {
			continue
		}
		if m.chat == chat && times[m.id] != 1 {
			return fmt.Sprintf("%s stands %d times in it", m.id, times[m.id])
		}
	}
	return ""
}

// summary prints the count in a few lines.
func (s *stage) summary(t tally, transcripts bool) {
	s.out.blank()
	s.out.title("summary")
	row := func(name string, n int, what string) { s.out.plain(fmt.Sprintf("  %s%4d  %s", pad(name, 14), n, what)) }
	if given, states := t.given(); given > 0 {
		row("tasks", given, "given: "+states)
	}
	row("sent", t.sent, "by bots")
	row("delivered", t.delivered, "to other bots")
	for _, why := range slices.Sorted(maps.Keys(t.stopped)) {
		row(string(why), t.stopped[why], "stopped: "+explained[why])
	}
	row("doubled", t.doubled, "delivered to the same bot again")
	row("lost", t.lost, "neither delivered nor stopped for a reason")
	verdict := "each message once, and only where it belongs"
	if !transcripts {
		verdict = "not as they should be"
	}
	s.out.plain("  " + pad("transcripts", 14) + "      " + verdict)
	s.out.blank()
	if s.last && !s.Keep {
		s.out.plain("look further: --keep leaves queue, transcripts and logs there; --chat lets you be the user")
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
