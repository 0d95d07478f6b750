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
func (b *board) post(sender, name string, chat relay.ChatID, text string) (m *message) {
	b.do(func() {
		// Never the same time twice, so that the order is one for everybody.
		b.lastTS = max(relay.MillisOf(time.Now()), b.lastTS+1)
		m = &message{id: relay.MessageID(fmt.Sprintf("om_demo_%04d", len(b.messages)+1)), ts: b.lastTS,
			chat: chat, sender: sender, name: name, text: text}
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
	m.group = cmp.Or(m.group, b.chats[m.chat].name)
	m.fates, m.shown = map[string]*fate{}, map[string]bool{}
	for _, c := range b.cast {
		if m.isFor(c.agent) && !b.steered.shows[m.id] {
			m.fates[c.agent] = b.fate(c.agent, m.id)
			m.fates[c.agent].kind = m.kind
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

// observed is an event of a sidecar: what it made of a message, or what a person or a sidecar
// said that steers the bots.
type observed struct {
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     string          `json:"sender"`
	Reason     relay.Reason    `json:"reason"`
	Decision   struct {
		Tier   string `json:"tier"`
		Reason string `json:"reason"`
		Depth  int    `json:"depth"`
	} `json:"decision"`

	ChatID  relay.ChatID    `json:"chat_id"`
	Content string          `json:"content"`
	Kind    string          `json:"kind"`
	Act     string          `json:"act"`
	Of      relay.MessageID `json:"of"`
	Bots    []string        `json:"bots"`
	Set     json.RawMessage `json:"set"`
	TS      relay.Millis    `json:"ts"`
}

// observe takes an event of the sidecar of agent.
func (b *board) observe(agent string, e event) error {
	var seen observed
	if err := json.Unmarshal(e.data, &seen); err != nil {
		return fmt.Errorf("decode an event: %w", err)
	}
	b.do(func() {
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
			if seen.Sender == agent && b.steered.shown && seen.Reason != relay.Continue {
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
	if m.any(func(f *fate) bool { return !f.ended() }) {
		return true
	}
	for _, agent := range m.given {
		if f := b.fate(agent, m.id); f.received == 0 && f.stopped == "" && !m.command {
			return true
		}
	}
	return m.streaming || m.command && !b.everywhere(m)
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
func (b *board) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.note(text)
}

// What mail is called, and where it stands, in the demo's lines.
const (
	mailbox     = "mailbox"
	taskKind    = "task"
	messageKind = "message"
)

// job is a task that was given, as its giver's sidecar says.
type job struct {
	id    string
	state string
}

// finalStates are those that nothing comes after.
var finalStates = []string{"completed", "failed", "rejected"}

// mailID is the id of mail on the board. The agents know no other: who sends a
// step or a message to a peer is told no id, and a bot on the SDK sees one of
// Feishu's form. So nobody says the same to the same twice.
func mailID(from, to, text string) relay.MessageID {
	return relay.MessageID(from + " to " + to + ": " + text)
}

// mail notes that an agent is about to send another one a direct message.
func (b *board) mail(kind string, from, to *character, text string) *message {
	m := &message{id: mailID(from.agent, to.agent, text), ts: relay.MillisOf(time.Now()), group: b.out.word(mailbox),
		sender: from.agent, name: from.name, text: text, kind: kind, to: []string{to.agent}}
	b.add(m)
	return m
}

// arrived is received for mail, which the bot got in the conversation where.
func (b *board) arrived(agent string, id relay.MessageID, text, where string) (done func()) {
	b.do(func() { b.fate(agent, id).where = where })
	return b.received(agent, id, text)
}

// refused notes that mail was not sent.
func (b *board) refused(m *message, why relay.Reason) {
	b.do(func() { m.fates[m.to[0]].stopped = why })
}

// waiting notes that mail waits for its receiver.
func (b *board) waiting(m *message) { b.do(func() { m.waits = true }) }

// gave notes a new task.
func (b *board) gave(id string) {
	b.do(func() {
		b.jobs = append(b.jobs, &job{id, "pending"})
		b.noteTask(len(b.jobs))
	})
}

// moved notes a step of the n-th task, counted from 1.
func (b *board) moved(n int, state string) {
	b.do(func() {
		b.jobs[n-1].state = state
		b.noteTask(n)
	})
}

// noteTask prints the state of the n-th task. b.mu is held.
func (b *board) noteTask(n int) {
	b.out.note(b.out.say("task %d is %s", "任务 %d：%s", n, b.out.word(b.jobs[n-1].state)))
}

// job is the id of the n-th task.
func (b *board) job(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.jobs[n-1].id
}

// states are the tasks' by their ids.
func (b *board) states() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]string{}
	for _, t := range b.jobs {
		all[t.id] = t.state
	}
	return all
}

func (j *job) ended() bool { return slices.Contains(finalStates, j.state) }

// steered is what the board knows of what people and sidecars say beside the bots.
type steered struct {
	shown bool                     // in a chat: what the group is shown is printed
	shows map[relay.MessageID]bool // messages of the sidecars' own in Feishu
	known map[string]bool          // marks that were entered: every sidecar tells of each
}

// held are the reasons of stops that a person may end with a word.
var held = []relay.Reason{relay.MaxDepth, relay.Budget}

// restWithin is how long is waited for what may not come: a notice, and what it releases.
const restWithin = 4 * time.Second

// steer takes a command, its answer, or a notice, as the sidecar of agent knows it. b.mu is held.
func (b *board) steer(agent string, seen *observed) {
	of := b.byID[seen.Of]
	if of != nil && seen.Kind == "notice" {
		if of.noticed == nil {
			of.noticed = map[string]bool{}
		}
		of.noticed[agent] = true
	}
	key := seen.Kind + " " + seen.Act + " " + string(seen.RelayMsgID)
	if b.steered.known[key] {
		return
	}
	b.steered.known[key] = true
	switch {
	case seen.Kind == "command" && of != nil:
		of.steers, of.command = seen.Act, seen.Act != "continue" || len(seen.Set) > 0
		if seen.Act == "continue" {
			b.goOn(of, seen.Bots)
		}
	case seen.Kind == "notice":
		b.showNotice(seen)
	}
}

// relayName is who the terminal says speaks where a sidecar does, and Feishu has no message of it.
const relayName = "relay"

// showNotice prints what the group was shown. What stands in Feishu is printed as a message.
// b.mu is held.
func (b *board) showNotice(n *observed) {
	switch {
	case !strings.HasPrefix(string(n.RelayMsgID), "notice:"):
		b.steered.shows[n.RelayMsgID] = true
		if said := b.byID[n.RelayMsgID]; said != nil {
			clear(said.fates)
		}
	case !b.steered.shown:
	case n.Act == "stop":
		b.out.note("notice: " + clean(n.Content))
	default:
		b.out.said(&message{ts: n.TS, name: relayName, group: b.chats[n.ChatID].name, text: n.Content})
	}
}

// round are the messages since a person spoke, or let the bots go on, before until; nil: the
// newest. b.mu is held.
func (b *board) round(until *message) []*message {
	messages := b.messages
	if i := slices.Index(messages, until); i >= 0 {
		messages = messages[:i]
	}
	for i, m := range slices.Backward(messages) {
		if m.sender == "" && (!m.command || m.steers == "continue") {
			return messages[i+1:]
		}
	}
	return messages
}

// goOn notes that a person's message m lets the bots go on, these or, if there are none, all.
// b.mu is held.
func (b *board) goOn(m *message, bots []string) {
	for _, said := range b.round(m) {
		for agent, f := range said.fates {
			if slices.Contains(held, f.stopped) && said.chat == m.chat && (len(bots) == 0 || slices.Contains(bots, agent)) {
				f.awaited = true
			}
		}
	}
}

// released notes that a sidecar gave its bot what it had stopped: a person let it go on, in the
// chat or from outside. b.mu is held.
func (b *board) released(agent string, id relay.MessageID) {
	f, m := b.fate(agent, id), b.byID[id]
	if m == nil || !b.steered.shown || !slices.Contains(held, f.stopped) {
		return
	}
	f.awaited, f.stopped = false, ""
	f.decided, f.depth, f.tier, f.reason = true, 1, "released", b.out.say("a person let it go on", "有人让它继续")
	b.out.note(b.out.say("%s is given what had stopped: %s", "先前拦下的现在给了 %s：%s", b.nameOf(agent), excerpt(m.text)))
}

// reacted notes that somebody put an emoji on a message.
func (b *board) reacted(who, emoji, text string) {
	b.do(func() {
		if b.steered.shown {
			b.out.note(b.out.say("%s puts the reaction %s on: %s", "%s 加了表情 %s：%s", who, emoji, excerpt(text)))
		}
	})
}

// explained reports whether it is known why a person's message is for no bot. b.mu is held.
func (b *board) explained(m *message) bool {
	stopped := func(c character) bool { return b.fate(c.agent, m.id).stopped != "" }
	return m.steers != "" || slices.ContainsFunc(b.cast, stopped)
}

func (b *board) nameOf(agent string) string {
	return b.cast[slices.IndexFunc(b.cast, func(c character) bool { return c.agent == agent })].name
}

// excerpt is the beginning of a text, on one line.
func excerpt(text string) string {
	const most = 30
	runes := []rune(clean(strings.Join(strings.Fields(text), " ")))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// atRest waits for what follows when all bots are at rest: the notice of a stop, and what a
// person let go on. Neither has to come: a bot may be muted, or the notice one of this hour.
func (b *board) atRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	err := b.await(ctx, "at rest", func() bool {
		stopped, noticed := false, false
		for _, m := range b.round(nil) {
			noticed = noticed || b.everywhere(m)
			stopped = stopped || m.any(func(f *fate) bool { return slices.Contains(held, f.stopped) })
		}
		return b.quiet() && (noticed || !stopped) &&
			!slices.ContainsFunc(b.messages, func(m *message) bool { return m.any(func(f *fate) bool { return f.awaited }) })
	})
	if ctx.Err() == context.DeadlineExceeded {
		return nil
	}
	return err
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

// everywhere reports whether the sidecars of all bots of the group know what it was shown of m. b.mu is held.
func (b *board) everywhere(m *message) bool {
	return !slices.ContainsFunc(b.chats[m.chat].members, func(agent string) bool { return !m.noticed[agent] })
}
