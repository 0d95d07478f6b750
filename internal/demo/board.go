package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"feishu-relay/internal/sse"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// message is one that was said in a group.
type message struct {
	id        relay.MessageID
	ts        relay.Millis
	chat      relay.ChatID
	group     string // the chat's name
	sender    string // agent; "" is the user
	name      string
	text      string
	drafts    []string // of a card: what it said one after the other, the last is text
	streaming bool     // more is to come
	printed   int      // so many drafts are; without a card, 1: the message is
	kind      string   // of mail: a state of a task, task or message; "" in chats
	to        []string // the agents that have to get it, in the order of the cast; nil: all but the sender
	waits     bool     // mail whose receiver is away: what is said meanwhile is shown before it arrives
}

// fate is what a sidecar made of a message. Of a user's message none is shown.
type fate struct {
	direct    bool // of mail and of a user's message: the sidecar says nothing of the delivery
	shown     bool
	decided   bool
	depth     int
	tier      string
	reason    string // the policy's
	kind      string // of mail: the message's
	where     string // of mail: the conversation in which the bot got it
	stopped   relay.Reason
	delivered int    // times, as the sidecar says
	received  int    // times, as the bot says
	text      string // what the bot was given the last time
}

// ended reports whether nothing more is to come: stopped, or delivered and, as
// the bot says itself, received. What was stopped may be delivered later.
func (f *fate) ended() bool {
	return f.stopped != "" && f.received == 0 || f.received > 0 && (f.delivered > 0 || f.direct)
}

// String is the form in which scenes expect a fate.
func (f *fate) String() string {
	words := []string{f.kind, f.where}
	if f.decided {
		words = []string{strconv.Itoa(f.depth), f.tier}
	}
	return strings.Join(strings.Fields(strings.Join(append(words, cmp.Or(string(f.stopped), "delivered")), " ")), " ")
}

// task is a task that was given, as its giver's sidecar says.
type task struct{ id, state string }

// board knows every message and what became of it. It is safe for concurrent
// use. Its size is bounded by what is said: [maxLines] in a chat.
type board struct {
	out    *printer
	cast   []character            // in the order in which they are shown
	groups map[relay.ChatID]group // does not change
	// chat: what the group is shown is printed, and texts are not compared, since what anybody types may change on its
	// way (@all, markup).
	chat bool

	mu       sync.Mutex
	messages []*message // as they were said; guarded by mu
	byID     map[relay.MessageID]*message
	fates    map[relay.MessageID]map[string]*fate // by agent; a sidecar can be faster than the group; guarded by mu
	busy     int                                  // messages that bots are at; guarded by mu
	shown    int                                  // messages at the beginning that are wholly printed; guarded by mu
	notices  map[relay.MessageID]bool             // messages of the sidecars' own in Feishu; guarded by mu
	steered  map[relay.MessageID]*steering        // guarded by mu
	tasks    []*task                              // in the order in which they were given; guarded by mu
}

func newBoard(out *printer, s *script) *board {
	b := &board{out: out, cast: s.Cast, groups: map[relay.ChatID]group{},
		byID: map[relay.MessageID]*message{}, fates: map[relay.MessageID]map[string]*fate{},
		notices: map[relay.MessageID]bool{}, steered: map[relay.MessageID]*steering{}}
	for _, g := range s.Groups {
		b.groups[g.ID] = g
	}
	return b
}

// do makes a change, and shows what can be shown then.
func (b *board) do(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.show()
}

// add puts a message into its group.
func (b *board) add(m *message) { b.do(func() { b.enter(m) }) }

// rewrite notes what a message says now.
func (b *board) rewrite(id relay.MessageID, text string, streaming bool) {
	b.do(func() {
		m := b.byID[id]
		if m == nil {
			return
		}
		if m.text != text {
			m.text = text
			m.drafts = append(m.drafts, text)
		}
		m.streaming = streaming
	})
}

// enter notes a message of a group. b.mu is held.
func (b *board) enter(m *message) {
	m.group = cmp.Or(m.group, b.groups[m.chat].Name)
	if m.to == nil && !b.notices[m.id] {
		for _, c := range b.cast {
			if c.Agent != m.sender {
				m.to = append(m.to, c.Agent)
			}
		}
	}
	for _, agent := range m.to {
		f := b.fate(agent, m.id)
		f.kind, f.direct = m.kind, m.kind != "" || m.sender == ""
	}
	b.messages = append(b.messages, m)
	b.byID[m.id] = m
}

// received notes that a bot got a message, and counts it as at work until done
// is called.
func (b *board) received(agent string, id relay.MessageID, text string) (done func()) {
	b.do(func() {
		f := b.fate(agent, id)
		f.received++
		f.text = text
		b.busy++
	})
	return func() { b.do(func() { b.busy-- }) }
}

// fate is what became of a message, which may not be entered yet, at an agent.
// b.mu is held.
func (b *board) fate(agent string, id relay.MessageID) *fate {
	if b.fates[id] == nil {
		b.fates[id] = map[string]*fate{}
	}
	if b.fates[id][agent] == nil {
		b.fates[id][agent] = &fate{}
	}
	return b.fates[id][agent]
}

// observed is an event of a sidecar: what it made of a message, or what a person or a sidecar
// said that steers the bots.
type observed struct {
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     string
	Reason     relay.Reason
	Decision   struct {
		Tier   string
		Reason string
		Depth  int
	}
	transcript.Mark
}

// observe takes an event of the sidecar of agent.
func (b *board) observe(agent string, e sse.Event) error {
	var seen observed
	if err := json.Unmarshal(e.Data, &seen); err != nil {
		return fmt.Errorf("decode an event: %w", err)
	}
	b.do(func() {
		f := b.fate(agent, seen.RelayMsgID)
		switch e.Kind {
		case "decision":
			f.decided, f.depth, f.tier, f.reason = true, seen.Decision.Depth, seen.Decision.Tier, seen.Decision.Reason
		case "delivery":
			f.delivered++
			b.released(agent, seen.RelayMsgID)
		case "stop":
			// A repeat of a message whose fate is known, or comes, changes nothing.
			if seen.Reason != relay.Duplicate {
				f.stopped = seen.Reason
			}
			// The sender of a bot's message is the bot; a person's has none.
			if seen.Sender == "" && b.chat && seen.Reason != relay.Continue {
				b.out.note(b.out.say("%s is not given what you said: %s", "你的话没有给 %s：%s", b.nameOf(agent), seen.Reason))
			}
		case "notice":
			b.steer(agent, &seen)
		}
	})
	return nil
}

// quiet reports whether every message came to its end and no bot is at work.
// b.mu is held.
func (b *board) quiet() bool { return b.busy == 0 && !slices.ContainsFunc(b.messages, b.onItsWay) }

// onItsWay reports whether more is to come of a message. b.mu is held.
func (b *board) onItsWay(m *message) bool {
	if b.steeringOf(m.id).command {
		return !b.everywhere(m)
	}
	return m.streaming || b.any(m, func(f *fate) bool { return !f.ended() })
}

// any reports whether a fate of the message is such a one. b.mu is held.
func (b *board) any(m *message, is func(*fate) bool) bool {
	return slices.ContainsFunc(m.to, func(agent string) bool { return is(b.fate(agent, m.id)) })
}

// said is how many messages there are.
func (b *board) said() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.messages)
}

// ofBots are the ids of the messages of bots since from.
func (b *board) ofBots(from int) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages[from:] {
		if m.sender != "" {
			all = append(all, string(m.id))
		}
	}
	return all
}

func (b *board) nameOf(agent string) string { return b.cast[place(b.cast, agent)].Name }

// place is that of an agent in a cast.
func place(cast []character, agent string) int {
	return slices.IndexFunc(cast, func(c character) bool { return c.Agent == agent })
}

// show prints what has happened. Messages stand in their order, each with its
// fates below it: the next waits until they all are known, unless the message
// itself has to wait. b.mu is held.
func (b *board) show() {
	for i := b.shown; i < len(b.messages); i++ {
		m := b.messages[i]
		whole := b.showMessage(m)
		if whole && i == b.shown {
			b.shown++
		}
		if !whole && !m.waits {
			return
		}
	}
}

// showMessage prints what is known of m and not printed, and reports whether that is all there will be. b.mu is held.
func (b *board) showMessage(m *message) (whole bool) {
	if m.printed == 0 {
		b.out.said(m)
		m.printed = 1
	}
	for ; m.printed < len(m.drafts)-1; m.printed++ {
		b.out.wrote(m.drafts[m.printed])
	}
	if m.streaming {
		return false
	}
	if m.printed < len(m.drafts) {
		b.out.finished(m.text)
		m.printed++
	}
	if m.sender == "" {
		return true
	}
	for _, agent := range m.to {
		if f := b.fate(agent, m.id); f.ended() && !f.shown {
			b.out.became(b.nameOf(agent), f)
			f.shown = true
		}
	}
	return !b.any(m, func(f *fate) bool { return !f.shown })
}

// note prints a line of the narrator's between the messages.
func (b *board) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.note(text)
}

// moved notes the state of the n-th task, counted from 1. b.mu is held.
func (b *board) moved(n int, state string) {
	b.tasks[n-1].state = state
	b.out.note(b.out.say("task %d is %s", "任务 %d：%s", n, b.out.word(state)))
}

// mailID is the id of mail on the board. The agents know no other: who sends a
// step or a message to a peer is told no id, and a bot on the SDK sees one of
// Feishu's form. So nobody says the same to the same twice.
func mailID(from, to, text string) relay.MessageID {
	return relay.MessageID(from + " to " + to + ": " + text)
}
