package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	drafts    []string         // of a card: what it said one after the other, the last is text
	streaming bool             // more is to come
	kind      string           // of mail: a state of a task, task or message; "" in chats
	to        []string         // of mail and in private chats: the agents that have to get it; nil: every other one
	waits     bool             // mail whose receiver is away: what is said meanwhile is shown before it arrives
	given     []string         // of a user's message: the agents that Feishu gives it to; nil: not counted
	fates     map[string]*fate // at every other sidecar; of a user's message: none
	shown     map[string]bool  // these of them are printed
	steering
}

// fate is what a sidecar made of a message.
type fate struct {
	decided   bool
	depth     int
	tier      string
	reason    string // the policy's
	kind      string // of mail: the message's
	where     string // of mail: the conversation in which the bot got it
	stopped   relay.Reason
	delivered int    // times, as the sidecar says; it says nothing of mail
	received  int    // times, as the bot says
	text      string // what the bot was given the last time
	awaited   bool   // a person lets the bots go on, and it had been stopped
}

// ended reports whether nothing more is to come: stopped, or delivered and, as
// the bot says itself, received. What was stopped may be delivered later.
func (f *fate) ended() bool {
	return f.stopped != "" && f.received == 0 || f.received > 0 && (f.delivered > 0 || f.kind != "")
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
	changed  chan struct{} // closed and replaced at each change; guarded by mu
	messages []*message    // as they were said; guarded by mu
	byID     map[relay.MessageID]*message
	fates    map[relay.MessageID]map[string]*fate // by agent; a sidecar can be faster than the group; guarded by mu
	busy     int                                  // messages that bots are at; guarded by mu
	shown    cursor                               // guarded by mu
	late     []*message                           // mail on its way that later messages are shown before; guarded by mu
	notices  map[relay.MessageID]bool             // messages of the sidecars' own in Feishu; guarded by mu
	marks    map[string]bool                      // those that were entered: every sidecar tells of each; guarded by mu
	tasks    []*task                              // in the order in which they were given; guarded by mu
}

func newBoard(out *printer, s *script) *board {
	b := &board{out: out, cast: s.Cast, groups: map[relay.ChatID]group{}, changed: make(chan struct{}),
		byID: map[relay.MessageID]*message{}, fates: map[relay.MessageID]map[string]*fate{},
		notices: map[relay.MessageID]bool{}, marks: map[string]bool{}}
	for _, g := range s.Groups {
		b.groups[g.ID] = g
	}
	return b
}

// do makes a change, shows what can be shown then, and wakes those who wait.
func (b *board) do(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.show()
	close(b.changed)
	b.changed = make(chan struct{})
}

// post puts a message into a group, and gives it its id and its time, as Feishu
// does. sender "" is the user.
func (b *board) post(sender, name string, chat relay.ChatID, text string) *message {
	m := &message{ts: relay.MillisOf(time.Now()), chat: chat, sender: sender, name: name, text: text}
	b.do(func() {
		if n := len(b.messages); n > 0 { // never the same time twice, so that the order is one for everybody
			m.ts = max(m.ts, b.messages[n-1].ts+1)
		}
		m.id = relay.MessageID(fmt.Sprintf("om_demo_%04d", len(b.messages)+1))
		b.enter(m)
	})
	return m
}

// add puts a message of the group's own into it.
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

// enter notes a message that stands in a group. b.mu is held.
func (b *board) enter(m *message) {
	m.group = cmp.Or(m.group, b.groups[m.chat].Name)
	m.fates, m.shown, m.noticed = map[string]*fate{}, map[string]bool{}, map[string]bool{}
	for _, c := range b.cast {
		if m.isFor(c.Agent) && !b.notices[m.id] {
			m.fates[c.Agent] = b.fate(c.Agent, m.id)
			m.fates[c.Agent].kind = m.kind
		}
	}
	b.messages = append(b.messages, m)
	b.byID[m.id] = m
}

// isFor reports whether a bot said m, and agent has to get it.
func (m *message) isFor(agent string) bool {
	return m.sender != "" && agent != m.sender && (m.to == nil || slices.Contains(m.to, agent))
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
	ChatID     relay.ChatID    `json:"chat_id"`
	Sender     string
	Content    string
	TS         relay.Millis
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
			if seen.Sender == agent && b.chat && seen.Reason != relay.Continue {
				b.out.note(b.out.say("%s is not given what you said: %s", "你的话没有给 %s：%s", b.nameOf(agent), seen.Reason))
			}
		case "notice":
			b.steer(agent, &seen)
		}
	})
	return nil
}

// await waits until done, which is called with b.mu held, says so: at most
// settledWithin.
func (b *board) await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("%s: not within %s", what, settledWithin))
	defer cancel()
	for {
		b.mu.Lock()
		ok, changed := done(), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// quiet reports whether every message came to its end and no bot is at work.
// b.mu is held.
func (b *board) quiet() bool { return b.busy == 0 && !slices.ContainsFunc(b.messages, b.onItsWay) }

// onItsWay reports whether more is to come of a message. b.mu is held.
func (b *board) onItsWay(m *message) bool {
	return m.any(func(f *fate) bool { return !f.ended() }) || m.streaming || m.command && !b.everywhere(m) ||
		!m.command && slices.ContainsFunc(m.given, func(agent string) bool {
			f := b.fate(agent, m.id)
			return f.received == 0 && f.stopped == ""
		})
}

// any reports whether a fate of the message is such a one.
func (m *message) any(is func(*fate) bool) bool {
	for _, f := range m.fates {
		if is(f) {
			return true
		}
	}
	return false
}

// said is how many messages there are.
func (b *board) said() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.messages)
}

// ofBots are the ids of the messages of bots since from. b.mu is held.
func (b *board) ofBots(from int) (all []string) {
	for _, m := range b.messages[from:] {
		if m.sender != "" {
			all = append(all, string(m.id))
		}
	}
	return all
}

func (b *board) nameOf(agent string) string {
	return b.cast[slices.IndexFunc(b.cast, func(c character) bool { return c.Agent == agent })].Name
}

// cursor is how far the board is printed.
type cursor struct {
	message int  // the first that is not wholly printed
	head    bool // its own line is
	drafts  int  // so many of its drafts are
}

// show prints what has happened. Messages stand in their order, each with its
// fates below it: the next waits until they all are known, unless the message
// itself has to wait. b.mu is held.
func (b *board) show() {
	b.late = slices.DeleteFunc(b.late, b.showFates)
	at := &b.shown
	for at.message < len(b.messages) {
		m := b.messages[at.message]
		if !at.head {
			b.out.said(m)
			at.head, at.drafts = true, 1
		}
		for ; at.drafts < len(m.drafts)-1; at.drafts++ {
			b.out.wrote(m.drafts[at.drafts])
		}
		if m.streaming {
			return
		}
		if at.drafts < len(m.drafts) {
			b.out.finished(m.text)
			at.drafts++
		}
		if !b.showFates(m) {
			if !m.waits {
				return
			}
			b.late = append(b.late, m)
		}
		*at = cursor{message: at.message + 1}
	}
}

// showFates prints the fates of m that are known and not printed, and reports
// whether none is left. b.mu is held.
func (b *board) showFates(m *message) (all bool) {
	for _, c := range b.cast {
		if f := m.fates[c.Agent]; f != nil && f.ended() && !m.shown[c.Agent] {
			b.out.became(c.Name, f)
			m.shown[c.Agent] = true
		}
	}
	return len(m.shown) == len(m.fates)
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
