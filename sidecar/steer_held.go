package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// held are messages that stopped at this bot and may be released, on disk.
type held struct {
	*base
	mu      sync.Mutex
	journal *jsonl.Journal          // guarded by mu, as the rest is
	byKey   map[string]*heldMessage // at most maxHeld, and maxHeldBytes of lines
	begun   map[string]bool         // those of byKey whose delivery this process has begun
	bytes   int
}

// heldMessage is a message that was stopped.
type heldMessage struct {
	Key      string          `json:"key"`
	Line     json.RawMessage `json:"line,omitempty"` // as it came from the queue
	Channel  string          `json:"channel"`
	ChatID   relay.ChatID    `json:"chat_id"`
	ThreadID string          `json:"thread_id,omitempty"`
	Round    relay.Millis    `json:"round"`              // when its round began
	Said     relay.Millis    `json:"said"`               // its ts, as far as it is believed
	At       relay.Millis    `json:"at"`                 // when it stopped
	Released bool            `json:"released,omitempty"` // it is being delivered
	Gone     bool            `json:"gone,omitempty"`     // of a line of the journal: it is forgotten
}

const (
	maxHeld      = 500
	maxHeldBytes = 8 << 20
)

func openHeld(b *base) (*held, error) {
	h := &held{base: b, byKey: map[string]*heldMessage{}, begun: map[string]bool{}}
	root, err := b.folder("steer", "held")
	if err != nil {
		return nil, err
	}
	h.journal, err = jsonl.OpenJournal(root, b.name()+".jsonl", 2*relay.MaxLine, func(line []byte) {
		var m heldMessage
		if json.Unmarshal(line, &m) == nil && m.Key != "" {
			h.apply(m)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read messages that can be released: %w", err)
	}
	b.onClose(func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.journal.Close()
	})
	return h, nil
}

// apply takes in a line of the journal. It is called with mu held, or at the start.
func (h *held) apply(m heldMessage) {
	if known, ok := h.byKey[m.Key]; ok {
		h.bytes -= len(known.Line)
		delete(h.byKey, m.Key)
		if m.Line == nil {
			m.Line = known.Line
		}
	}
	if m.Gone || m.Line == nil {
		delete(h.begun, m.Key)
		return
	}
	h.byKey[m.Key] = &m
	h.bytes += len(m.Line)
	for len(h.byKey) > maxHeld || h.bytes > maxHeldBytes {
		oldest := h.sorted()[0]
		h.bytes -= len(oldest.Line)
		delete(h.byKey, oldest.Key)
		delete(h.begun, oldest.Key)
	}
}

// begin reports whether the delivery of a message is to begin: it is released, and the delivery
// has not begun yet.
func (h *held) begin(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.byKey[key]
	if !ok || !m.Released || h.begun[key] {
		return false
	}
	h.begun[key] = true
	return true
}

// sorted lists all, the one stopped first at the front. It is called with mu held.
func (h *held) sorted() []*heldMessage {
	return slices.SortedFunc(maps.Values(h.byKey), func(a, b *heldMessage) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Key, b.Key))
	})
}

// note takes in a message, on disk.
func (h *held) note(m heldMessage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.write(m)
}

// change changes a message that is still held, on disk. ok reports whether it is and f changed it.
func (h *held) change(key string, f func(*heldMessage) bool) (m heldMessage, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, ok := h.byKey[key]
	if !ok {
		return m, false
	}
	if m = *now; !f(&m) {
		return m, false
	}
	if err := h.write(m); err != nil {
		h.problems.set("steer", err) // it is as f left it until this process ends
	}
	return m, true
}

// write is note with mu held.
func (h *held) write(m heldMessage) error {
	line, err := relay.Marshal(m)
	if err != nil {
		return err
	}
	h.apply(m)
	if h.journal.Lines() > 4*len(h.byKey)+slackChanges || h.journal.Size() > 2*maxHeldBytes {
		return h.journal.Replace(h.all())
	}
	return h.journal.Append(append(line, '\n'))
}

// all is the journal of what is held. It is called with mu held.
func (h *held) all() (lines []byte) {
	for _, m := range h.sorted() {
		line, err := relay.Marshal(m)
		if err == nil { // what was read or written as JSON is JSON
			lines = append(append(lines, line...), '\n')
		}
	}
	return lines
}

// forget forgets a message.
func (h *held) forget(key string) {
	h.change(key, func(m *heldMessage) bool {
		*m = heldMessage{Key: key, Gone: true}
		return true
	})
}

// list is a copy of what is held and wanted.
func (h *held) list(want func(*heldMessage) bool) (out []heldMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.sorted() {
		if want(m) {
			out = append(out, *m)
		}
	}
	return out
}

// spoken is when the round of a conversation began: when a person spoke last in it, or had its bots
// go on. What stopped before cannot be released any more.
func (s *steering) spoken(channel string, chat relay.ChatID, thread string, before relay.Millis) (relay.Millis, error) {
	spoke, err := s.chats.lastUser(channel, chat, thread, before)
	if on, ok := s.chats.wentOn(channel, chat, thread); ok && on.TS <= before {
		spoke = max(spoke, on.TS)
	}
	return spoke, err
}

// wentOn is the newest mark by which a conversation's bots went on: their count starts there again.
func (c *chats) wentOn(channel string, chat relay.ChatID, thread string) (newest steer.Mark, ok bool) {
	for _, key := range []string{topicKey(channel, chat, thread), chatKey(channel, chat)} {
		if m, known := c.continues.Get(key); known && m.TS > newest.TS {
			newest, ok = m, true
		}
	}
	return newest, ok
}

// conversationOf is where a mark was made; over the API, in the whole group.
func conversationOf(m *steer.Mark) string {
	if everywhere(m) {
		return chatKey(m.Channel, m.ChatID)
	}
	return topicKey(m.Channel, m.ChatID, m.ThreadID)
}

// everywhere reports whether a mark was not made in any conversation.
func everywhere(m *steer.Mark) bool { return strings.HasPrefix(string(m.MessageID), "notice:") }

// releasable reports whether what stopped for a reason is shown, and can be released.
func releasable(why relay.Reason) bool {
	return why == relay.MaxDepth || why == relay.Budget
}

// stopSeen keeps a message that was stopped, and has the stop shown in the group, once a round. An
// error in that does not delay messages, and the message remains stopped.
func (s *steering) stopSeen(p *arrival, why relay.Reason) {
	if err := s.noteStop(p, why); err != nil {
		s.problems.set("steer", err)
	}
}

func (s *steering) noteStop(p *arrival, why relay.Reason) error {
	m := &p.msg
	if editOf(m) != "" {
		return nil
	}
	said := relay.MillisOf(p.sent)
	spoke, err := s.spoken(m.Channel, m.ChatID, m.ThreadID, said)
	if err != nil {
		return err
	}
	round := spoke
	if m.UserTS <= said {
		round = max(round, m.UserTS)
	}
	h := heldMessage{Key: p.key, Line: json.RawMessage(p.line()), Channel: m.Channel, ChatID: m.ChatID,
		ThreadID: m.ThreadID, Round: spoke, Said: said, At: relay.MillisOf(time.Now())}
	if err := s.held.note(h); err != nil {
		s.problems.set("steer", err) // it stops, and cannot be released
	}
	if s.chats.wasRecalled(m) { // meanwhile
		s.held.recall(relay.MessageID(p.key))
		return nil
	}
	if on, ok := s.chats.wentOn(m.Channel, m.ChatID, m.ThreadID); ok && on.TS > spoke { // the bots went on while it was on its way
		s.deliver.delivering.Go(func() { s.release(&on) })
		return nil
	}
	g := s.records.state(m.Channel, m.ChatID)
	if s.noticeIn(g) == "off" {
		return nil
	}
	once := fmt.Sprintf("stop/%s/%s/%s/%d", m.Channel, m.ChatID, m.ThreadID, round)
	shown, again := s.acts.lastStop(m.Channel, m.ChatID, m.ThreadID)
	again = again && shown.Round == round
	switch {
	case again:
		once = shown.Once // a round has one notice, whatever stops it
	case why == relay.Budget: // at most once an hour
		once = fmt.Sprintf("stop/%s/%s/budget/%d", m.Channel, m.ChatID, said/relay.Millis(time.Hour.Milliseconds()))
	}
	id := fmt.Sprintf("%s/%d/%s", once, round, s.cfg.Agent) // an hour of the budget has several rounds
	if s.known.Contains(id) || !again && why == relay.Budget && s.acts.spentBefore(m.Channel, m.ChatID, once, said) {
		return nil
	}
	return s.publish(steer.Mark{ID: id, Kind: steer.Wanted, Act: steer.Stop, Once: once, Channel: m.Channel,
		ChatID: m.ChatID, ThreadID: m.ThreadID, Of: m.ID(), Sender: m.SenderAgentName, Reason: why, Round: round, Said: said,
		Bots: []relay.AgentName{s.cfg.Agent}, Chinese: s.inChinese(m, said)})
}

// inChinese reports whether the last person in m's conversation wrote Chinese.
func (s *steering) inChinese(m *relay.Message, before relay.Millis) bool {
	entries, err := s.chats.transcript.TailTo(m.Channel, string(m.ChatID), audienceTail, int64(before))
	if err != nil {
		return false
	}
	inTime(entries)
	for _, e := range slices.Backward(entries) {
		if e.Role == relay.RoleUser && e.ThreadID == m.ThreadID {
			return steer.HanIn(e.Content)
		}
	}
	return false
}

// goOn takes a person's message that says that the bots may go on.
func (s *steering) goOn(m *relay.Message) error {
	mark, is := s.continueOf(m)
	if !is || s.known.Contains(mark.ID) { // another sidecar has heard it before
		return nil
	}
	return s.publish(mark)
}

// continueOf is the mark of a person's message that says that the bots may go on, if it does: if
// the last round of its conversation has a notice, and something to release.
func (s *steering) continueOf(m *relay.Message) (mark steer.Mark, is bool) {
	g := s.records.state(m.Channel, m.ChatID)
	bots, is := steer.IsContinue(s.said(m), s.named(g))
	if !is {
		return mark, false
	}
	mark = steer.Mark{ID: "continue/" + string(m.ID()), Kind: steer.Command, Act: steer.Continue, Channel: m.Channel,
		ChatID: m.ChatID, ThreadID: m.ThreadID, MessageID: m.ID(), Of: m.ID(), By: byWhom(m), Bots: bots, Text: m.Content, TS: m.TS}
	if s.known.Contains(mark.ID) {
		return mark, true
	}
	notice, ok := s.acts.lastStop(m.Channel, m.ChatID, m.ThreadID)
	if !ok || notice.Round >= m.TS || g.Paused.Holds(time.Now()) {
		return mark, false
	}
	mark.Round = notice.Round
	round, err := s.spoken(m.Channel, m.ChatID, m.ThreadID, m.TS-1)
	if err != nil {
		s.problems.set("steer", err) // it is an ordinary message then
	}
	if err != nil || round > max(notice.Round, notice.Said) {
		return mark, false
	}
	released := func(bot relay.AgentName) bool {
		return (len(bots) == 0 || slices.Contains(bots, bot)) && !g.Muted[bot].Holds(time.Now())
	}
	// The first message that stopped is in the notice, which may come before the outcomes.
	first := m.TS.Time().Sub(notice.Said.Time()) <= s.cfg.Steer.ContinueWindow &&
		!s.chats.recalls.has(notice.Channel, notice.ChatID, notice.Of)
	return mark, first && slices.ContainsFunc(notice.Bots, released) ||
		slices.ContainsFunc(s.stoppedSince(&mark, notice.Round), released)
}

func byWhom(m *relay.Message) string { return cmp.Or(m.SenderName, string(m.SenderID), "user") }

// heldBefore lists what is held of the conversation of a continue m, or for one over the API of the group, and is not
// being delivered.
func (s *steering) heldBefore(m *steer.Mark) []heldMessage {
	return s.held.list(func(h *heldMessage) bool {
		return h.Channel == m.Channel && h.ChatID == m.ChatID && (everywhere(m) || h.ThreadID == m.ThreadID) &&
			h.Round < m.TS && !h.Released
	})
}

// canRelease reports whether what is held is of the last round before a continue m, fresh, and not recalled.
func (s *steering) canRelease(m *steer.Mark, h *heldMessage) (bool, error) {
	spoke, err := s.spoken(h.Channel, h.ChatID, h.ThreadID, m.TS-1)
	return spoke <= max(h.Round, h.Said) && m.TS.Time().Sub(h.At.Time()) <= s.cfg.Steer.ContinueWindow &&
		!s.chats.recalls.has(h.Channel, h.ChatID, relay.MessageID(h.Key)), err
}

// release delivers what stopped at this bot in the last round of a conversation. What it does
// not release it forgets: a later continue is about a later round. So it does nothing when the
// mark is taken in again after a restart.
func (s *steering) release(m *steer.Mark) {
	g, now := s.records.state(m.Channel, m.ChatID), time.Now()
	mine := (len(m.Bots) == 0 || slices.Contains(m.Bots, s.cfg.Agent)) &&
		!g.Paused.Holds(now) && !g.Muted[s.cfg.Agent].Holds(now)
	for _, h := range s.heldBefore(m) {
		fresh, err := s.canRelease(m, &h)
		switch {
		case err != nil: // it may be released after a restart
			s.problems.set("steer", err)
			continue
		case !mine || !fresh:
			s.held.forget(h.Key)
			continue
		}
		h, ok := s.held.change(h.Key, func(m *heldMessage) bool {
			fresh := !m.Released
			m.Released = true
			return fresh
		})
		if !ok {
			continue // meanwhile
		}
		s.trace("released")
		if s.live() { // else resume does it
			s.handOver(h)
		}
	}
}

// resume delivers what an earlier process was releasing.
func (s *steering) resume() {
	for _, h := range s.held.list(func(h *heldMessage) bool { return h.Released }) {
		s.handOver(h)
	}
}

// handOver delivers a message that was released, in the order of its chat.
func (s *steering) handOver(h heldMessage) {
	if !s.held.begin(h.Key) {
		return
	}
	p := newArrival(relay.Delivery{Line: h.Line, Settle: func() { s.held.forget(h.Key) }})
	if s.deliver.deliveries.Has(h.Key) || s.deliver.given.has(releasedAs(h.Key)) {
		s.held.forget(h.Key) // the deliveries have it, or the bot
		return
	}
	var err error
	if p.msg, err = relay.Decode(p.Line); err != nil {
		s.held.forget(h.Key)
		return
	}
	s.app.named(&p.msg)
	p.key, p.inChat, p.behind = h.Key, true, true
	p.sent = s.chats.peers.sentAt(&p.msg, p.arrived)
	p.final, p.group = p.arrived, s.chats.group(p.msg.ChatID)
	p.decision = policy.Decision{Allow: true, Tier: policy.TierReleased, Reason: "a person let the bots go on", Depth: 1}
	s.watch.noteDecided(p)
	s.receive.workers.do(s.running, p.chat(), func(ctx context.Context) {
		s.receive.guard(p, func() {
			stage, why, err := s.receive.walk(ctx, s.stages, p)
			if err == nil && !p.handed {
				s.receive.end(p, stage, why)
			}
		})
	})
}
