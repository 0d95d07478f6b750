package sidecar

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/internal/delivery"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// recalls are the messages whose text is gone: as many as the lane of marks holds, from which
// they are read again after a restart.
type recalls struct {
	known *lru.Cache[string, struct{}] // by key
	wake  chan struct{}
	// done has, on disk, the keys of recalls whose text was taken out of the transcript, so that a
	// restart does not look for each of them again.
	done *dedup.Window

	mu      sync.Mutex
	pending []recalled                // whose text may stand in a transcript; guarded by mu
	failing map[string]*failingRedact // by chatKey, of chats in pending; guarded by mu
}

type recalled struct {
	channel string
	chat    relay.ChatID
	id      relay.MessageID
}

// key has the chat: one that an operator mistypes is no recall in the right one.
func (r recalled) key() string { return chatKey(r.channel, r.chat) + "/" + string(r.id) }

// mark tells the sidecars of the chat.
func (r recalled) mark(at relay.Millis) steer.Mark {
	return steer.Mark{ID: "recalled/" + r.key(), Kind: steer.Recalled, Channel: r.channel, ChatID: r.chat, Of: r.id, TS: at}
}

// failingRedact is a chat whose transcript could not be written.
type failingRedact struct {
	pauses *wait.Backoff
	next   time.Time // not before
}

const (
	// maxRecalled is above the marks that fit into the lane's two files.
	maxRecalled = 100_000
	// maxRecallKey is the most bytes of a key in done; Feishu's are below 100.
	maxRecallKey = 512
)

func newRecalls(b *base) (*recalls, error) {
	r := &recalls{wake: make(chan struct{}, 1), failing: map[string]*failingRedact{}}
	r.known, _ = lru.New[string, struct{}](maxRecalled) // fails only for a size below 1
	var err error
	r.done, err = b.window(".redacted.jsonl", maxRecalled)
	return r, err
}

// has reports whether one of some messages of a chat was recalled.
func (r *recalls) has(channel string, chat relay.ChatID, ids ...relay.MessageID) bool {
	return slices.ContainsFunc(ids, func(id relay.MessageID) bool {
		if id == "" {
			return false
		}
		key := recalled{channel, chat, id}.key()
		return r.known.Contains(key) || r.done.Seen(key)
	})
}

// note notes that a message was recalled, and has its text taken out of the transcript, unless
// that was done.
func (r *recalls) note(what recalled) {
	if !r.done.Seen(what.key()) {
		r.add(what)
	}
}

// add is note of a message whose text may stand in the transcript, whatever was done before.
// Beyond maxRecalled that waits for the one first recalled no more.
func (r *recalls) add(what recalled) {
	r.known.Add(what.key(), struct{}{})
	r.mu.Lock()
	if !slices.Contains(r.pending[max(0, len(r.pending)-8):], what) {
		r.pending = append(r.pending, what)
	}
	r.pending = r.pending[max(0, len(r.pending)-maxRecalled):]
	r.mu.Unlock()
	wait.Wake(r.wake)
}

// next takes the first whose chat does not fail; where all fail it says how long none is due.
func (r *recalls) next(now time.Time) (what recalled, pause time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pause = time.Minute
	for i, what := range r.pending {
		if f := r.failing[chatKey(what.channel, what.chat)]; f != nil && f.next.After(now) {
			pause = min(pause, f.next.Sub(now))
			continue
		}
		if i == 0 {
			r.pending = r.pending[1:]
		} else {
			r.pending = slices.Delete(r.pending, i, i+1)
		}
		return what, 0, true
	}
	if len(r.pending) == 0 {
		clear(r.failing)
	}
	return what, pause, false
}

// tried notes how it went with what next gave. A chat that failed comes again after a pause, so
// that one that cannot be written keeps none of the others.
func (r *recalls) tried(what recalled, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := chatKey(what.channel, what.chat)
	if err == nil {
		delete(r.failing, key)
		return
	}
	f := r.failing[key]
	if f == nil {
		f = &failingRedact{pauses: wait.NewBackoff(retryFirst, time.Minute)}
		r.failing[key] = f
	}
	f.next = time.Now().Add(f.pauses.Next())
	if len(r.pending) < maxRecalled {
		r.pending = append(r.pending, what)
	}
}

// redact takes the texts of recalled messages out of the transcripts and the marks that people see,
// until ctx is done.
func (c *chats) redact(ctx context.Context) {
	r := c.recalls
	for ctx.Err() == nil {
		what, pause, ok := r.next(time.Now())
		if !ok {
			_ = wait.Change(ctx, time.Now().Add(pause), r.wake)
			continue
		}
		_, err := c.transcript.Redact(what.channel, string(what.chat), string(what.id))
		_, errShown := c.shown.Redact(what.channel, string(what.chat), string(what.id))
		err = errors.Join(err, errShown)
		r.tried(what, err)
		if err != nil {
			c.problems.set("transcript", err)
			continue
		}
		c.trace("redacted")
		// Not flushed: after a crash, in which a text may just have been written, it is done again.
		if len(what.key()) > maxRecallKey {
			continue
		}
		if err := r.done.Settle(what.key(), true); err != nil {
			c.problems.set("dedup", err)
		}
	}
}

// record writes an entry with add, without its text where the message was recalled.
func (c *chats) record(add func(channel, chat string, e transcript.Entry) (bool, error), channel string,
	chat relay.ChatID, e transcript.Entry) (added bool, err error) {
	gone := c.blank(channel, chat, &e)
	added, err = add(channel, string(chat), e)
	if !gone && c.blank(channel, chat, &e) { // meanwhile
		c.recalls.add(recalled{channel, chat, relay.MessageID(e.MessageID)})
	}
	return added, err
}

// blank takes the text out of an entry of a message that was recalled, and reports whether it was.
func (c *chats) blank(channel string, chat relay.ChatID, e *transcript.Entry) bool {
	if !c.recalls.has(channel, chat, relay.MessageID(e.MessageID), relay.MessageID(e.EditOf),
		relay.MessageID(e.Mark.AnswerTo())) {
		return false
	}
	e.Content, e.Files, e.Recalled = "", nil, true
	return true
}

// wasRecalled reports whether m, or what it edits, was recalled.
func (c *chats) wasRecalled(m *relay.Message) bool {
	return c.recalls.has(m.Channel, m.ChatID, m.ID(), m.RelayMsgID, editOf(m))
}

// recall forgets the text of a message that is noted as recalled: what was not delivered is stopped,
// and nobody is shown it any more.
func (s *steering) recall(m *steer.Mark) {
	s.held.recall(m.Of)
	s.review(m.Channel, m.ChatID)
	if s.deliver.doors.stream != nil {
		s.deliver.doors.stream.Recall(m.Of)
	}
	if door := s.deliver.doors.gateway; door != nil {
		door.gateway.Forget(m.Of)
	}
	s.watch.events.Recall(m.Channel, m.ChatID, m.Of)
	s.trace("recalled")
}

// wasRecalled tells the others that a message was recalled; chat is "" where that is not known.
func (s *steering) wasRecalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	if chat == "" || s.chats.recalls.has(relay.DefaultChannel, chat, id) || !s.isGroup(chat) {
		return
	}
	s.share(recalled{relay.DefaultChannel, chat, id}.mark(at))
}

// isGroup reports whether a chat is known to be a group that the bot is in: what is said in a private
// chat is nobody else's.
func (s *steering) isGroup(chat relay.ChatID) bool {
	kind := s.app.talkIn(relay.DefaultChannel, chat).ChatType
	return s.chats.in(relay.DefaultChannel, chat) && (kind == feishu.ChatGroup ||
		kind == "" && len(s.records.state(relay.DefaultChannel, chat).members) > 0)
}

// review withdraws what waits for the bot in a group and is not to reach it any more.
func (s *steering) review(channel string, chat relay.ChatID) {
	if s.deliver.deliveries != nil {
		s.deliver.deliveries.Review(channel, chat, s.fate)
	}
}

// fate is why a message that the bot has not taken is withdrawn, "" if it is not: because it was
// recalled, or as the group's settings say. A pause holds back what the bot was not given yet; a
// mute and a stop also what it was given and has not confirmed, which would be written again.
// Lines of context that were recalled go.
func (s *steering) fate(m *delivery.Message, given bool) string {
	if m.Mail || m.Source == nil {
		return ""
	}
	source := m.Source
	gone := func(id string) bool { return s.chats.recalls.has(m.Ref.Channel, m.Chat, relay.MessageID(id)) }
	if s.chats.wasRecalled(source) || gone(m.Key) {
		return string(relay.Recalled)
	}
	if slices.ContainsFunc(m.Shows, gone) {
		m.Content, m.Shows = source.Content, nil
	}
	s.chats.edited(m, given)
	g, now := s.records.state(m.Ref.Channel, m.Chat), time.Now()
	switch {
	case g.Muted[s.cfg.Agent].Holds(now):
		return string(relay.Muted)
	case g.Paused.Holds(now) && source.Role != relay.RoleUser && !given:
		return string(relay.Paused)
	}
	if stopped, err := s.stopped(g, source, m.Sent); err == nil && stopped {
		return string(relay.StoppedByPerson)
	}
	return ""
}

// marksWait is how long what may have been recalled while this process was not running waits
// for the marks that say so.
const marksWait = 5 * time.Second

// awaitMarks waits until the marks are taken in that were kept, within bounds: where the queue is
// away, messages go on.
func (s *steering) awaitMarks(ctx context.Context) {
	_ = wait.Change(ctx, s.began.Add(marksWait), s.caughtUp)
}

// noText is m without what it says; the message is in the record all the same.
func noText(m *relay.Message) *relay.Message {
	short := *m
	short.Content, short.Mentions, short.Metadata = "", nil, relay.Metadata{"chat_type": quote("group")}
	if of := editOf(m); of != "" {
		short.Metadata[metaEditOf] = quote(string(of))
	}
	return &short
}

// recall forgets a message, also on disk.
func (h *held) recall(id relay.MessageID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.byKey[string(id)]; !ok && h.journal.Lines() == len(h.byKey) {
		return // no line of before either
	}
	h.apply(heldMessage{Key: string(id), Gone: true})
	if err := h.journal.Replace(h.all()); err != nil {
		h.problems.set("steer", err)
	}
}
