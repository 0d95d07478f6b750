package policy

import (
	"cmp"
	"slices"
	"time"
)

// Depth counts the messages of bots in a row that end with m, at least 1; a
// person's m has depth 0. entries is the tail of m's chat, all topics, in any
// order; it may hold repeats and m itself, and is not changed.
//
// Order and repeats. Entries are ordered by ts; equal ones keep the given order
// and m, unless it is among them, is the last. Of entries with one message_id
// the first stands; an entry without an id is nobody's repeat. m itself stands
// as it was passed, whatever the transcript says of it. An m without ts takes the
// one it has among the entries, else it is the newest. What comes after m is ignored.
//
// People. user_ts ends the count like a person's message of that time: entries
// up to it are not counted, except m. A value later than its entry's own ts is
// ignored. When no known message of a person has that very ts, it is not known
// which message the bots answer: then first entries that share a parent which
// nobody here knows are taken for parallel answers.
//
// Senders. An entry without a sender is never taken for a piece, a turn or a
// parallel answer.
//
// Topics. A topic's root is the message that its entries name in root_id. It is
// counted with what stands before it where it was written, also when it carries the
// topic's id itself (platforms add that to the first message once a topic hangs
// on it). A root by a person or outside of entries ends the count. In a topic
// group, where every message is in a topic, one that opens a topic stands behind
// those that opened the earlier ones: bots that open a topic for each answer are
// counted as well.
//
// The cost is O(n log n) for n entries.
func Depth(entries []Entry, m Entry, c Count) int {
	if m.byUser() {
		return 0
	}
	h := newHistory(entries, &m)
	var t talk
	h.collect(&t)
	return t.count(c, h.known)
}

// history is a chat's tail without repeats, ordered by topic and time, so that
// every topic, and the chat itself, is one piece of it.
type history struct {
	all   []*Entry
	known map[string]*Entry // by message id
	m     *Entry
}

func newHistory(entries []Entry, m *Entry) *history {
	type place struct {
		entry *Entry
		given int
	}
	places := make([]place, 0, len(entries)+1)
	if !m.byUser() {
		m.Role = RoleAssistant // whoever asks takes it for a bot's
	}
	h := &history{m: m, known: make(map[string]*Entry, len(entries)+1)}
	found, newest, ts := false, m.UserTS, int64(0)
	for i := range entries {
		e := &entries[i]
		newest = max(newest, e.TS)
		if e.MessageID != "" {
			if _, repeat := h.known[e.MessageID]; repeat {
				continue
			}
			if e.MessageID == m.MessageID {
				found, ts, e = true, e.TS, m
			}
			h.known[e.MessageID] = e
		}
		places = append(places, place{e, i})
	}
	if !found {
		places = append(places, place{m, len(entries)})
		if m.MessageID != "" {
			h.known[m.MessageID] = m
		}
	}
	m.TS = cmp.Or(m.TS, ts, newest)
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
	n := 0
	for from+n < len(h.all) && h.all[from+n].ThreadID == id {
		n++
	}
	return h.all[from : from+n]
}

// isTopicGroup tells whether every message is in a topic.
func (h *history) isTopicGroup() bool { return h.all[0].ThreadID != "" }

// collect fills t with what bots said since a person spoke, going from a topic
// to its root's place until a person or the known history ends it.
func (h *history) collect(t *talk) {
	visited := map[string]bool{} // topics; only a made-up history has more than two
	last := h.m
	for {
		visited[last.ThreadID] = true
		in := h.thread(last.ThreadID)
		if t.back(h, in[:slices.Index(in, last)+1]) || last.ThreadID == "" {
			return
		}
		id := rootID(in, last)
		root := h.known[id]
		switch {
		case id == "" && h.isTopicGroup():
			t.back(h, h.chatBefore(in[0]))
			return
		case id == "" || root == nil:
			return
		case root.byUser():
			t.asked = root.MessageID
			return
		case root.ThreadID == last.ThreadID:
			// The root was counted with its topic: go on with what stands
			// before it in the chat.
			t.back(h, h.chatBefore(root))
			return
		case visited[root.ThreadID]:
			return
		}
		last = root
	}
}

// rootID is the id of the message that a topic hangs on, "" if none of its
// entries names it.
func rootID(in []*Entry, last *Entry) string {
	id := last.RootID
	for i := 0; id == "" && i < len(in); i++ {
		id = in[i].RootID
	}
	return id
}

// chatBefore returns what stands in the chat before a message that opened a
// topic: the entries outside of topics, or, in a topic group, the messages that
// opened topics.
func (h *history) chatBefore(opening *Entry) []*Entry {
	var before []*Entry
	for i, e := range h.all {
		starts := i == 0 || h.all[i-1].ThreadID != e.ThreadID
		opens := starts && (e.RootID == "" || e.RootID == e.MessageID)
		if e != opening && e.TS <= opening.TS && (e.ThreadID == "" || opens && h.isTopicGroup()) {
			before = append(before, e)
		}
	}
	slices.SortStableFunc(before, func(a, b *Entry) int { return cmp.Compare(a.TS, b.TS) })
	return before
}

// talk is what bots said since a person last spoke.
type talk struct {
	said  []*Entry // newest first
	asked string   // the id of the person's message, "" if there is none
	// unknown says that a person spoke whose message is not in the history.
	unknown bool
}

// back adds what bots said in one place, from its last entry to its first. It
// reports whether a person ended it.
func (t *talk) back(h *history, in []*Entry) (ended bool) {
	var cut int64 // when a person spoke last, as far as the senders knew
	for _, e := range in {
		if e.UserTS <= e.TS {
			cut = max(cut, e.UserTS)
		}
	}
	for _, e := range slices.Backward(in) {
		switch {
		case e.byUser() && e.TS >= cut:
			t.asked = e.MessageID
			return true
		case cut > 0 && e.TS <= cut && e != h.m:
			t.endAt(h, in, cut)
			return true
		case e.byBot():
			t.said = append(t.said, e)
		}
	}
	if cut > 0 {
		t.endAt(h, in, cut)
	}
	return cut > 0
}

// endAt notes the person's message of time cut, here or else anywhere: that of
// a topic stands outside of it when it is the root.
func (t *talk) endAt(h *history, in []*Entry, cut int64) {
	for _, place := range [][]*Entry{in, h.all} {
		for _, e := range place {
			if e.byUser() && e.TS == cut {
				t.asked = e.MessageID
				return
			}
		}
	}
	t.unknown = true
}

// count counts what was said, joining pieces, parallel answers and turns.
func (t *talk) count(c Count, known map[string]*Entry) int {
	slices.Reverse(t.said)
	start := t.afterPause(c.IdleReset)
	spoke := make(map[string]struct{}, 8) // senders so far
	joined := make(map[string]struct{}, 1)
	n := 0
	for i, e := range t.said {
		_, again := spoke[e.Sender]
		spoke[e.Sender] = struct{}{}
		if i < start {
			continue
		}
		if i > start && continues(t.said[i-1], e, c.Turns) {
			continue
		}
		if !again && t.parallel(e, known) {
			if _, counted := joined[e.ParentID]; counted {
				continue
			}
			joined[e.ParentID] = struct{}{}
		}
		n++
	}
	return n
}

// afterPause returns the index behind the last pause of at least idle.
func (t *talk) afterPause(idle time.Duration) int {
	if idle <= 0 {
		return 0
	}
	for i := len(t.said) - 1; i > 0; i-- {
		if between(t.said[i-1], t.said[i]) >= idle {
			return i
		}
	}
	return 0
}

// parallel tells whether e, the first of its sender, answers a person directly.
func (t *talk) parallel(e *Entry, known map[string]*Entry) bool {
	if e.Sender == "" || e.ParentID == "" {
		return false
	}
	if t.unknown {
		_, ours := known[e.ParentID]
		return !ours
	}
	return e.ParentID == t.asked
}

// continues tells whether e belongs to its neighbour prev.
func continues(prev, e *Entry, turns bool) bool {
	if e.Sender == "" || e.Sender != prev.Sender {
		return false
	}
	return turns || e.ParentID != "" && e.ParentID == prev.ParentID && between(prev, e) <= PieceGap
}

// between is the time from a to b. Times far out of any calendar make it long
// rather than wrap around.
func between(a, b *Entry) time.Duration {
	const long = int64(1) << 43 // milliseconds, some 280 years: fits a Duration
	from, to := max(min(a.TS, long), -long), max(min(b.TS, long), -long)
	return time.Duration(max(min(to-from, long), -long)) * time.Millisecond
}
