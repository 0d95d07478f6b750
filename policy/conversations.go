package policy

import (
	"hash/maphash"
	"slices"
	"time"
)

// Conversations keeps the depth of a chat's messages up to date as they are appended to
// its transcript: each topic, and the chat itself, is a conversation. A depth that it
// knows equals the one [Depth] counts from the end of the transcript. After lines that
// are missing, late, repeated or contradictory it knows none, until a person's next
// message begins a new count. A Conversations is not safe for concurrent use.
type Conversations struct {
	seed     maphash.Seed
	whole    bool // the first line added is the first of the chat
	count    Count
	byThread map[uint64]*conversation
	held     int    // entries in all conversations
	line     int64  // number of the last line, from 1
	began    int64  // number of the line before the first one held
	floor    int64  // the latest ts that missing lines before may have
	newest   int64  // the newest ts
	late     uint32 // lines that were older than the newest before them
	tied     uint32 // lines that had the ts of the newest before them
	run      uint32 // how many of these have the newest ts
	longest  uint32 // the largest run
	odd      int64  // the last line that a count must not rely on
	oddTS    int64  // the newest ts of such lines
}

const (
	// maxHeld is how many entries are kept; beyond it all are dropped.
	maxHeld = 5000
	// maxPast is how many entries of a conversation are kept from before the last
	// message of a person, and slackPast how many more until they are dropped.
	maxPast, slackPast = 512, 128
	// floorLines is how many lines bound the ts of missing lines before them.
	floorLines = 16
	// oddMargin is how far apart the ts of two copies of a message may be, in
	// milliseconds.
	oddMargin = 5000
	// heldCost and conversationCost are about how many bytes an entry and a
	// conversation take.
	heldCost, conversationCost = 112, 400
)

// NewConversations returns an empty Conversations. whole reports that the first line
// added is the first of the chat.
func NewConversations(whole bool) *Conversations {
	return &Conversations{seed: maphash.MakeSeed(), whole: whole, byThread: map[uint64]*conversation{}}
}

// Bytes is about how many bytes of memory c takes.
func (c *Conversations) Bytes() int { return heldCost*c.held + conversationCost*len(c.byThread) }

// heldEntry is an entry with hashes for its texts; 0 is an empty text.
type heldEntry struct {
	id, sender, parent, partOf uint64
	ts, userTS                 int64
	line                       int64
	late, tied                 uint32 // those of Conversations when the line was added
	user                       bool

	// The count; all are 0 if the depth is not known.
	depth  int
	border int64 // the line after which all counted lines are
	start  int64 // the time after which it was written
}

func (c *Conversations) hash(text string) uint64 {
	if text == "" {
		return 0
	}
	return maphash.String(c.seed, text)
}

func (c *Conversations) hold(e *Entry) heldEntry {
	return heldEntry{id: c.hash(e.MessageID), sender: c.hash(e.Sender),
		parent: c.hash(e.ParentID), partOf: c.hash(e.PartOf), ts: e.TS, userTS: e.UserTS, user: e.byUser()}
}

// Add adds the next line of the transcript, which must not be an edit. again reports that
// an earlier line has its message_id.
func (c *Conversations) Add(e *Entry, again bool) {
	if c.held >= maxHeld {
		*c = Conversations{seed: c.seed, count: c.count, byThread: map[uint64]*conversation{}, line: c.line, began: c.line,
			newest: c.newest, late: c.late, tied: c.tied, run: c.run, longest: c.longest, odd: c.odd, oddTS: c.oddTS}
	}
	c.line++
	if !c.whole && c.line-c.began <= floorLines {
		c.floor = max(c.floor, e.TS)
	}
	switch {
	case e.TS > c.newest:
		c.newest, c.run = e.TS, 0
	case e.TS == c.newest:
		c.tied++
		c.run++
		c.longest = max(c.longest, c.run)
	default:
		c.late++
	}
	if again || e.MessageID == "" || e.TS <= 0 || !e.byUser() && !e.byBot() {
		c.odd, c.oddTS = c.line, max(c.oddTS, e.TS)
		return
	}
	added := c.hold(e)
	added.line, added.late, added.tied = c.line, c.late, c.tied
	key := c.hash(e.ThreadID)
	v := c.byThread[key]
	if v == nil {
		v = &conversation{first: counting{known: c.whole && key == 0, empty: c.whole}}
		v.state = v.first
		c.byThread[key] = v
	}
	c.held += v.add(added)
}

// Depth returns the depth of m, if it is known. near and far are how many lines at the
// end of the transcript a recount with [Depth] reads at first and at most: m must be
// among the first, and all counted messages among the others.
func (c *Conversations) Depth(m *Entry, count Count, near, far int64) (depth int, known bool) {
	v := c.byThread[c.hash(m.ThreadID)]
	if v == nil || m.MessageID == "" || !m.byBot() {
		return 0, false
	}
	if c.count != count {
		c.count = count
		for _, v := range c.byThread {
			v.counted, v.state = 0, v.first
		}
	}
	e := v.find(c.hold(m), count)
	if e == nil || e.depth == 0 {
		return 0, false
	}
	// An upper bound of the lines after m that are not newer than m: of the lines with the
	// ts of the newest before them, only those with m's ts count.
	behind := int64(c.late-e.late) + int64(min(c.tied-e.tied, c.longest))
	if behind >= near || e.line-e.border+behind >= far {
		return 0, false
	}
	if !c.whole && e.start <= c.floor {
		return 0, false
	}
	if c.odd > 0 && (c.odd >= e.border || c.oddTS+oddMargin >= e.start) {
		return 0, false
	}
	return e.depth, true
}

// LastUser returns the time of a person's last message in a topic ("": in none), up to a ts. It
// is taken from a person's line, or from the user_ts in a bot's line: of the newest near lines, or of
// older ones if those have neither. 0: no person has written. known is false if a line that cannot
// be counted may be a newer message of a person.
func (c *Conversations) LastUser(thread string, before int64, near int) (ts int64, known bool) {
	v := c.byThread[c.hash(thread)]
	if v == nil {
		return 0, false
	}
	for i := len(v.entries) - 1; i >= 0 && v.spoken && (near > 0 || ts == 0); i-- {
		e := &v.entries[i]
		spoke := e.userTS
		switch {
		case e.user:
			spoke = e.ts
		case spoke > e.ts:
			spoke = 0 // cannot be known
		}
		if spoke <= before {
			ts = max(ts, spoke)
		}
		if e.ts <= before {
			near--
		}
	}
	return ts, c.odd == 0 || c.oddTS < ts
}

// conversation is one topic, or the chat outside of topics.
type conversation struct {
	entries []heldEntry // by ts; equal ones by line
	spoken  bool        // a person wrote here, or a bot that knew of a person's message
	counted int         // how many of entries are counted
	state   counting    // after those
	first   counting    // before the first of entries
}

// add adds a line and returns by how many entries v has grown.
func (v *conversation) add(e heldEntry) int {
	at := len(v.entries)
	for at > 0 && v.entries[at-1].ts > e.ts {
		at--
	}
	v.entries = slices.Insert(v.entries, at, e)
	v.spoken = v.spoken || e.user || e.userTS != 0
	if at < v.counted {
		v.counted, v.state = 0, v.first
	}
	return 1 - v.forget()
}

// forget drops old entries and returns how many.
func (v *conversation) forget() int {
	if len(v.entries) < maxPast+slackPast || len(v.entries)%slackPast > 0 {
		return 0
	}
	end := len(v.entries) - maxPast
	for end > 0 && !v.entries[end].user {
		end--
	}
	if end < slackPast {
		return 0
	}
	for i := range v.entries[:end] {
		v.first.note(&v.entries[i])
	}
	v.first.known, v.first.empty = false, false
	if v.counted >= end {
		v.counted -= end
	} else {
		v.counted, v.state = 0, v.first
	}
	v.entries = slices.Delete(v.entries, 0, end)
	return end
}

// find returns the held entry of m, with its depth counted; nil if there is none or m
// differs from it.
func (v *conversation) find(m heldEntry, count Count) *heldEntry {
	at, _ := slices.BinarySearchFunc(v.entries, m.ts, func(e heldEntry, ts int64) int {
		if e.ts < ts {
			return -1
		}
		return 1
	})
	for at < len(v.entries) && v.entries[at].ts == m.ts && v.entries[at].id != m.id {
		at++
	}
	if at == len(v.entries) || v.entries[at].ts != m.ts {
		return nil
	}
	for ; v.counted <= at; v.counted++ {
		v.state.take(v.entries, v.counted, count)
	}
	e := &v.entries[at]
	if e.userTS != m.userTS || e.user || e.sender != m.sender || e.parent != m.parent || e.partOf != m.partOf {
		return nil
	}
	for i := at + 1; i < len(v.entries) && v.entries[i].ts == m.ts; i++ {
		if next := &v.entries[i]; next.user || next.userTS <= next.ts && next.userTS > e.start {
			return nil // a person wrote at the same time
		}
	}
	return e
}

// counting is the state of a count that moves forward in time.
type counting struct {
	known  bool  // the beginning of the count is known
	empty  bool  // no message came before
	top    int64 // the latest line so far
	border int64 // the line after which all counted lines are
	start  int64 // the time after which it was written: a person's message
	person bool  // that message is in this conversation, with the following id and topic root
	asked  uint64
	cut    int64 // when a person last wrote, as far as the senders knew

	n        int // depth of last, unless direct is set
	direct   bool
	last     heldEntry // counted last, if n > 0
	answered []uint64  // senders that answered the person directly
	joined   bool      // a direct answer is counted
}

// take counts entries[i], which follows the entries taken before.
func (s *counting) take(entries []heldEntry, i int, count Count) {
	e := &entries[i]
	e.depth, e.border, e.start = 0, 0, 0
	before := s.top
	s.note(e)
	if e.user {
		s.begin(e.ts, e.line)
		s.known, s.person, s.asked, s.empty = s.top == e.line, true, e.id, false
		return
	}
	if s.cut > s.start {
		// The person's message is not here, but a bot knew of it. If an entry
		// counted before is newer than it, that count was wrong.
		s.begin(s.cut, before)
		s.known = i > 0 && entries[i-1].ts <= s.cut || i == 0 && s.empty
	}
	s.empty = false
	if !s.known || e.line <= s.border || !s.person && s.start > 0 && e.parent != 0 {
		s.known = false // until a person writes
		return
	}
	e.border, e.start = s.border, s.start
	if s.start > 0 && e.ts <= s.start {
		// The entry has the same ts as the person's message. Only a bot that knew
		// of that message wrote after it.
		if s.cut < s.start {
			s.known = false
			return
		}
		e.depth, s.border, s.person = 1, max(s.border, e.line), false
		return
	}
	e.depth = s.depth(e, count)
}

func (s *counting) begin(start, border int64) {
	*s = counting{top: s.top, cut: s.cut, empty: s.empty, start: start, border: border, answered: s.answered[:0]}
}

// note updates the state that all counts share.
func (s *counting) note(e *heldEntry) {
	s.top = max(s.top, e.line)
	if e.userTS <= e.ts {
		s.cut = max(s.cut, e.userTS)
	}
}

// depth counts e in the same way as exchange.count.
func (s *counting) depth(e *heldEntry, count Count) int {
	first := false
	if s.person && e.sender != 0 && e.parent == s.asked {
		if first = !slices.Contains(s.answered, e.sender); first {
			s.answered = append(s.answered, e.sender)
		}
	}
	follows := false
	if s.n > 0 {
		pause := between(s.last.ts, e.ts)
		if count.IdleReset > 0 && pause >= count.IdleReset {
			s.n, s.joined = 0, false
		} else {
			follows = s.last.continuedBy(e, pause, count.Turns)
		}
	}
	s.last = *e
	s.direct = follows && s.direct || first
	if !follows && !(first && s.joined) {
		s.n++
	}
	s.joined = s.joined || first && !follows
	if s.direct {
		return 1
	}
	return s.n
}

// continuedBy is the function continues for held entries.
func (e *heldEntry) continuedBy(next *heldEntry, pause time.Duration, turns bool) bool {
	if next.sender == 0 || next.sender != e.sender {
		return false
	}
	sameParent := next.parent != 0 && next.parent == e.parent
	firstPart := e.partOf
	if firstPart == 0 {
		firstPart = e.id
	}
	sameSend := next.partOf != 0 && next.partOf == firstPart
	return turns || (sameParent || sameSend) && pause <= PieceGap
}
