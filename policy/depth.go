package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Depth counts the messages of bots in a row that end with m, at least 1; a
// person's m has depth 0. entries is the tail of m's chat, all topics, in any
// order; it may contain repeats and m itself, and is not changed.
//
// Order and repeats. Entries are ordered by ts; equal ones keep the given order and
// m, unless it is among them, is the last. Of entries with one message_id the first
// is used; an entry without an id is not a repeat. m itself is used as passed, even
// if the transcript's copy differs. An m without ts has the ts of its copy among the
// entries, else it is the newest. Entries after m are ignored.
//
// People. user_ts ends the count like a person's message of that time: entries
// up to it are not counted, except m. A value later than its entry's own ts is
// ignored. If no known message of a person has exactly that ts, it is not known
// which message the bots answer: then entries that share an unknown parent
// count as answers to it.
//
// Direct answers. A message whose parent is the last message of a person has depth 1 if
// it is its sender's first such message, even if other bots wrote since; so have the
// pieces that follow it. Each bot has one such answer for each message of a person, so
// bots still stop. For later messages, the direct answers together count once.
//
// Senders. An entry without a sender never counts as a piece, a turn or a
// parallel answer.
//
// Topics. A topic's root is the message that its entries name in root_id. It is
// counted with the messages before it where it was written, even if it has the
// topic's id itself (platforms add that to the first message once it has a
// topic). A root by a person or outside of entries ends the count. In a topic
// group, where every message is in a topic, one that opens a topic comes after
// those that opened the earlier ones: bots that open a topic for each answer are
// counted as well.
//
// The cost is O(n log n) for n entries.
func Depth(entries []Entry, m Entry, c Count) int {
	depth, _ := CountBack(entries, m, c)
	return depth
}

// CountBack is [Depth] of entries that may be cut at their beginning. ended reports that
// the count reached a person's message, so that what is before entries does not change it.
func CountBack(entries []Entry, m Entry, c Count) (depth int, ended bool) {
	if m.byUser() {
		return 0, true
	}
	h := newHistory(entries, &m)
	t := exchange{h: h, m: &m}
	ended = t.collect()
	return t.count(c), ended
}

// history is a chat's tail without repeats, ordered by topic and time, so that
// every topic, and the chat itself, is one contiguous part of it.
type history struct {
	all      []*Entry
	known    map[string]*Entry // by message id
	openings []*Entry          // messages that opened topics, by time; see opened
	room     []*Entry          // of the previous exchange, reused
}

// depth counts m, which is one of h's entries and written by a bot.
func (h *history) depth(m *Entry, c Count) int {
	t := exchange{h: h, m: m, entries: h.room[:0]}
	t.collect()
	h.room = t.entries
	return t.count(c)
}

// newHistory orders entries and m, which may be nil and replaces its copies
// among entries.
func newHistory(entries []Entry, m *Entry) *history {
	type place struct {
		entry *Entry
		given int
	}
	places := make([]place, 0, len(entries)+1)
	h := &history{known: make(map[string]*Entry, len(entries)+1)}
	found, newest, ts := false, int64(math.MinInt64), int64(0)
	for i := range entries {
		e := &entries[i]
		newest = max(newest, e.TS)
		if e.MessageID != "" {
			if _, repeat := h.known[e.MessageID]; repeat {
				continue
			}
			if m != nil && e.MessageID == m.MessageID {
				found, ts, e = true, e.TS, m
			}
			h.known[e.MessageID] = e
		}
		places = append(places, place{e, i})
	}
	if m != nil {
		if !found {
			places = append(places, place{m, len(entries)})
			if m.MessageID != "" {
				h.known[m.MessageID] = m
			}
		}
		m.TS = cmp.Or(m.TS, ts, max(newest, m.UserTS))
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(
			cmp.Compare(a.entry.ThreadID, b.entry.ThreadID),
			cmp.Compare(a.entry.TS, b.entry.TS),
			cmp.Compare(a.given, b.given))
	})
	h.all = make([]*Entry, len(places))
	for i, p := range places {
		h.all[i] = p.entry
	}
	return h
}

// thread returns the entries of one topic, or of the chat itself for "".
func (h *history) thread(id string) []*Entry {
	from, _ := slices.BinarySearchFunc(h.all, id, func(e *Entry, id string) int {
		return cmp.Compare(e.ThreadID, id)
	})
	n, _ := slices.BinarySearchFunc(h.all[from:], id, func(e *Entry, id string) int {
		if e.ThreadID == id {
			return -1 // search for the end
		}
		return 1
	})
	return h.all[from : from+n]
}

// opened lists the entries outside of topics, or, in a topic group, the
// messages that opened topics, by time.
func (h *history) opened(topicGroup bool) []*Entry {
	if !topicGroup {
		return h.thread("")
	}
	if h.openings == nil {
		for i, e := range h.all {
			starts := i == 0 || h.all[i-1].ThreadID != e.ThreadID
			if e.ThreadID == "" || starts && (e.RootID == "" || e.RootID == e.MessageID) {
				h.openings = append(h.openings, e)
			}
		}
		slices.SortStableFunc(h.openings, func(a, b *Entry) int { return cmp.Compare(a.TS, b.TS) })
	}
	return h.openings
}

// exchange is the bots' messages since a person last wrote, up to m. Later entries
// of the history are ignored.
type exchange struct {
	h       *history
	m       *Entry
	entries []*Entry // newest first
	asked   string   // the id of the person's message, "" if unknown
	// unknown: a person wrote a message that is not in the history.
	unknown bool
}

// known returns a message by its id, nil if it is not in the history.
func (t *exchange) known(id string) *Entry {
	if e := t.h.known[id]; e != nil && e.TS <= t.m.TS {
		return e
	}
	return nil
}

// inTopicGroup reports whether every message is in a topic.
func (t *exchange) inTopicGroup() bool {
	first := t.h.all[0]
	return first.ThreadID != "" || first.TS > t.m.TS
}

// collect gathers the bots' messages, from a topic on to its root's place,
// until it reaches a person's message or the end of the history. It reports whether it
// reached a person's message; in a topic group only one in m's topic counts, since the
// end of a history alone may look like a topic group.
func (t *exchange) collect() bool {
	visited := map[string]bool{} // topics; only an invalid history has more than two
	last := t.m
	for {
		visited[last.ThreadID] = true
		in := t.h.thread(last.ThreadID)
		if ended, within := t.back(in[:slices.Index(in, last)+1]); ended || last.ThreadID == "" {
			return within
		}
		id := t.rootID(in, last)
		root := t.known(id)
		switch {
		case id == "" && t.inTopicGroup():
			t.back(t.chatBefore(in[0]))
			return false
		case id == "" || root == nil:
			return false
		case root.byUser():
			t.asked = root.MessageID
			return true
		case root.ThreadID == last.ThreadID:
			// The root was counted with its topic: continue with the entries
			// before it in the chat.
			_, within := t.back(t.chatBefore(root))
			return within && !t.inTopicGroup()
		case visited[root.ThreadID]:
			return false
		}
		last = root
	}
}

// rootID is the id of a topic's root, "" if none of its entries names it.
func (t *exchange) rootID(in []*Entry, last *Entry) string {
	if last.RootID != "" {
		return last.RootID
	}
	for _, e := range in {
		if e.TS > t.m.TS {
			break
		}
		if e.RootID != "" {
			return e.RootID
		}
	}
	return ""
}

// chatBefore returns the entries of the chat before a message that opened a
// topic: the entries outside of topics, or, in a topic group, the messages that
// opened topics.
func (t *exchange) chatBefore(opening *Entry) []*Entry {
	all := t.h.opened(t.inTopicGroup())
	end, _ := slices.BinarySearchFunc(all, opening.TS, func(e *Entry, ts int64) int {
		if e.TS <= ts {
			return -1 // search for the end
		}
		return 1
	})
	before := all[:end]
	if i := slices.Index(before, opening); i >= 0 {
		return slices.Concat(before[:i], before[i+1:])
	}
	return before
}

// back adds the bots' messages of a topic or the chat, from the last entry to
// the first. It reports whether a person's message ended it, and whether that is not
// before all of in.
func (t *exchange) back(in []*Entry) (ended, within bool) {
	var cut int64 // when a person last wrote, as far as the senders knew
	for _, e := range in {
		if e.UserTS <= e.TS {
			cut = max(cut, e.UserTS)
		}
	}
	for _, e := range slices.Backward(in) {
		switch {
		case e.byUser() && e.TS >= cut:
			t.asked = e.MessageID
			return true, true
		case cut > 0 && e.TS <= cut && e != t.m:
			t.endAt(in, cut)
			return true, true
		case e.byBot() && !e.Recalled || e == t.m: // the caller has decided that m is a bot's
			t.entries = append(t.entries, e)
		}
	}
	if cut > 0 {
		t.endAt(in, cut)
	}
	return cut > 0, cut > 0 && len(in) > 0 && in[0].TS <= cut
}

// endAt records the person's message with the ts cut, from in or else from the
// whole history: a topic's root may be outside of the topic.
func (t *exchange) endAt(in []*Entry, cut int64) {
	for _, place := range [][]*Entry{in, t.h.all} {
		for _, e := range place {
			if e.byUser() && e.TS == cut {
				t.asked = e.MessageID
				return
			}
		}
	}
	t.unknown = true
}

// count counts entries, joining pieces, parallel answers and turns. A sender's
// first direct answer to the person, with its pieces, has depth 1.
func (t *exchange) count(c Count) int {
	slices.Reverse(t.entries)
	start := t.afterPause(c.IdleReset)
	answered := make(map[string]bool) // senders that answered the person directly
	joined := make(map[string]bool)   // parents of counted parallel answers
	asked, n, direct := t.asked, 0, false
	for i, e := range t.entries {
		first := false
		if t.answers(e) {
			first = !answered[e.Sender]
			answered[e.Sender] = true
			if t.unknown {
				asked = cmp.Or(asked, e.ParentID)
			}
		}
		if i < start {
			continue
		}
		follows := i > start && continues(t.entries[i-1], e, c.Turns)
		direct = follows && direct || first && e.ParentID == asked
		if follows {
			continue
		}
		if first && joined[e.ParentID] {
			continue
		}
		joined[e.ParentID] = joined[e.ParentID] || first
		n++
	}
	if direct {
		return 1
	}
	return n
}

// afterPause returns the index after the last pause of at least idle.
func (t *exchange) afterPause(idle time.Duration) int {
	if idle <= 0 {
		return 0
	}
	for i := len(t.entries) - 1; i > 0; i-- {
		if between(t.entries[i-1].TS, t.entries[i].TS) >= idle {
			return i
		}
	}
	return 0
}

// answers reports whether e answers the person's message directly.
func (t *exchange) answers(e *Entry) bool {
	if e.Sender == "" || e.ParentID == "" {
		return false
	}
	if t.unknown {
		return t.known(e.ParentID) == nil
	}
	return e.ParentID == t.asked
}

// continues reports whether e counts together with its predecessor prev.
func continues(prev, e *Entry, turns bool) bool {
	if e.Sender == "" || e.Sender != prev.Sender {
		return false
	}
	sameParent := e.ParentID != "" && e.ParentID == prev.ParentID
	sameSend := e.PartOf != "" && e.PartOf == cmp.Or(prev.PartOf, prev.MessageID)
	return turns || (sameParent || sameSend) && between(max(prev.TS, prev.FinalTS), e.TS) <= PieceGap
}

// between is the time from one ts to another. Absurd times give a long duration
// instead of an overflow.
func between(from, to int64) time.Duration {
	const long = int64(1) << 43 // milliseconds, some 280 years: fits a Duration
	from, to = max(min(from, long), -long), max(min(to, long), -long)
	return time.Duration(max(min(to-from, long), -long)) * time.Millisecond
}
