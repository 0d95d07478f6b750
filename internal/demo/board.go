package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"feishu-relay/relay"
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
	steers    string           // of a user's message that steers the bots: the act of its mark; it is for no bot
	command   bool             // it is a command: it stands in no transcript, and is answered
	noticed   map[string]bool  // agents whose sidecars know the command's answer, or the notice that it stopped
	shown     map[string]bool  // so are these of them; guarded by the board's mu
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
// the bot says itself, received.
func (f *fate) ended() bool {
	return f.stopped != "" || f.received > 0 && (f.delivered > 0 || f.kind != "")
}

// String is the form in which scenes expect a fate.
func (f *fate) String() string {
	text := ""
	for _, word := range []string{f.kind, f.where} {
		if word != "" {
			text += word + " "
		}
	}
	if f.decided {
		text = fmt.Sprintf("%d %s ", f.depth, f.tier)
	}
	if f.stopped != "" {
		return text + string(f.stopped)
	}
	return text + "delivered"
}

// board knows every message and what became of it. It is safe for concurrent
// use. Its size is bounded by what is said: [maxLines] in a chat.
type board struct {
	out   *printer
	cast  []character            // in the order in which they are shown
	chats map[relay.ChatID]group // does not change once something is said
	exact bool                   // texts are compared; what anybody types may change on its way (@all, markup)

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change; guarded by mu
	messages []*message    // as they were said; guarded by mu
	byID     map[relay.MessageID]*message
	fates    map[relay.MessageID]map[string]*fate // by agent; a sidecar can be faster than the group; guarded by mu
	lastTS   relay.Millis                         // guarded by mu
	busy     int                                  // messages that bots are at; guarded by mu
	shown    cursor                               // guarded by mu
	late     []*message                           // mail on its way that later messages are shown before; guarded by mu
	steered  steered                              // guarded by mu
	jobs     []*job                               // tasks that were given, in that order; guarded by mu
}

func newBoard(out *printer, cast []character, chats map[relay.ChatID]group) *board {
	return &board{out: out, cast: cast, chats: chats, changed: make(chan struct{}),
		byID: map[relay.MessageID]*message{}, fates: map[relay.MessageID]map[string]*fate{},
		steered: steered{shows: map[relay.MessageID]bool{}, known: map[string]bool{}}}
}

// post puts a message into a group, and gives it its id and its time, as Feishu
// does. sender "" is the user.
func (b *board) post(sender, name string, chat relay.ChatID, text string) *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Never the same time twice, so that the order is one for everybody.
	b.lastTS = max(relay.MillisOf(time.Now()), b.lastTS+1)
	m := &message{id: relay.MessageID(fmt.Sprintf("om_demo_%04d", len(b.messages)+1)), ts: b.lastTS,
		chat: chat, sender: sender, name: name, text: text}
	b.enter(m)
	return m
}

// add puts a message of the group's own into it.
func (b *board) add(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(m)
}

// rewrite notes what a message says now.
func (b *board) rewrite(id relay.MessageID, text string, streaming bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byID[id]
	if m == nil {
		return
	}
	if m.text != text {
		m.text = text
		m.drafts = append(m.drafts, text)
	}
	m.streaming = streaming
	b.change()
}

// enter notes a message that stands in a group. b.mu is held.
func (b *board) enter(m *message) {
	m.group = cmp.Or(m.group, b.chats[m.chat].name)
	m.fates, m.shown = map[string]*fate{}, map[string]bool{}
	for _, c := range b.cast {
		if m.sender != "" && c.agent != m.sender && (m.to == nil || slices.Contains(m.to, c.agent)) && !b.steered.shows[m.id] {
			f := b.fate(c.agent, m.id)
			f.kind = m.kind
			m.fates[c.agent] = f
		}
	}
	b.messages = append(b.messages, m)
	b.byID[m.id] = m
	b.change()
}

// working counts a bot as at work until done is called.
func (b *board) working() (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy--
		b.change()
	}
}

// received notes that a bot got a message, and counts it as at work until done
// is called.
func (b *board) received(agent string, id relay.MessageID, text string) (done func()) {
	done = b.working()
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.fate(agent, id)
	f.received++
	f.text = text
	b.released(agent, id)
	b.change()
	return done
}

// fate is what became of a message, which may not be entered yet, at an agent.
// b.mu is held.
func (b *board) fate(agent string, id relay.MessageID) *fate {
	of := b.fates[id]
	if of == nil {
		of = map[string]*fate{}
		b.fates[id] = of
	}
	if of[agent] == nil {
		of[agent] = &fate{}
	}
	return of[agent]
}

// observe takes an event of the sidecar of agent.
func (b *board) observe(agent string, e event) error {
	if e.kind == "notice" {
		return b.observeNotice(agent, e)
	}
	var seen struct {
		Sender     string          `json:"sender"`
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		Reason     relay.Reason    `json:"reason"`
		Decision   struct {
			Tier   string `json:"tier"`
			Reason string `json:"reason"`
			Depth  int    `json:"depth"`
		} `json:"decision"`
	}
	if err := json.Unmarshal(e.data, &seen); err != nil {
		return fmt.Errorf("decode an event: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.fate(agent, seen.RelayMsgID)
	switch e.kind {
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
		if seen.Sender == agent {
			b.withheld(agent, seen.Reason)
		}
	}
	b.change()
	return nil
}

// change shows what can be shown and wakes those who wait. b.mu is held.
func (b *board) change() {
	b.show()
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until done, which is called with b.mu held, says so: at most
// settledWithin.
func (b *board) await(ctx context.Context, what string, done func() bool) error {
	limit := time.NewTimer(settledWithin)
	defer limit.Stop()
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
		case <-limit.C:
			return fmt.Errorf("%s: not within %s", what, settledWithin)
		}
	}
}

// quiet reports whether every message came to its end and no bot is at work.
// b.mu is held.
func (b *board) quiet() bool {
	if b.busy > 0 {
		return false
	}
	for _, m := range b.messages {
		if m.streaming {
			return false
		}
		for _, f := range m.fates {
			if !f.ended() {
				return false
			}
		}
		for _, agent := range m.given {
			if f := b.fate(agent, m.id); f.received == 0 && f.stopped == "" && !m.command {
				return false
			}
		}
		if m.command && !b.everywhere(m) {
			return false
		}
	}
	return true
}

// said is how many messages there are.
func (b *board) said() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.messages)
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
		if f := m.fates[c.agent]; f != nil && f.ended() && !m.shown[c.agent] {
			b.out.became(c.name, f)
			m.shown[c.agent] = true
		}
	}
	return len(m.shown) == len(m.fates)
}

// note prints a line of the narrator's between the messages.
func (b *board) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.note(fmt.Sprintf(format, args...))
}
