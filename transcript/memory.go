package transcript

import "slices"

// MaxIDs is how many messages of a chat an appender remembers the ids of. A
// repeat that comes after more others than that is not recognised as one.
const MaxIDs = 1 << 13

// idSet holds the hashes of the last MaxIDs ids. Hashes take a quarter of the
// room of the ids; that two of a set are equal by chance is one in 10^14.
type idSet struct {
	known map[uint64]struct{}
	queue []uint64 // in order of arrival; a ring once it is full
	next  int      // the place in the full ring of the oldest one
}

func (s *idSet) has(id uint64) bool {
	_, ok := s.known[id]
	return ok
}

// add enters id, pushing out the oldest where the set is full.
func (s *idSet) add(id uint64) {
	if s.has(id) {
		return
	}
	if s.known == nil {
		s.known = make(map[uint64]struct{})
	}
	s.known[id] = struct{}{}
	if len(s.queue) < MaxIDs {
		s.queue = append(s.queue, id)
		return
	}
	delete(s.known, s.queue[s.next])
	s.queue[s.next] = id
	s.next = (s.next + 1) % MaxIDs
}

// addNewer enters ids, given newest first, as newer than all it holds.
func (s *idSet) addNewer(ids []uint64) {
	newer := make(map[uint64]struct{}, len(ids))
	for _, id := range ids {
		newer[id] = struct{}{}
	}
	old := *s
	*s = idSet{}
	for i := range old.queue {
		id := old.queue[(old.next+i)%len(old.queue)]
		if _, ok := newer[id]; !ok {
			s.add(id)
		}
	}
	for _, id := range slices.Backward(ids) {
		s.add(id)
	}
}

// What is kept decoded of each open chat; the oldest goes first.
const (
	maxRecent      = 256
	maxRecentBytes = 1 << 20
	recentCost     = 250 // bytes of an entry besides its texts
)

// recent holds the last lines of a chat, repeats included. Most are pushed out
// again unread, so a line is decoded when it is first asked for.
type recent struct {
	lines []recentLine
	bytes int
	whole bool // nothing stands before lines
	// repeats: a message may stand twice in lines. Only other hands write so.
	repeats bool
}

type recentLine struct {
	raw   []byte
	entry *Entry // nil: raw is not decoded yet
	size  int
}

// add takes a line of an entry that is known to be good, and owns it.
func (r *recent) add(raw []byte) { r.push(recentLine{raw: raw, size: recentCost + len(raw)}) }

func (r *recent) addEntry(e Entry) { r.push(recentLine{entry: &e, size: e.size()}) }

func (r *recent) push(l recentLine) {
	r.lines = append(r.lines, l)
	r.bytes += l.size
	drop := 0
	for len(r.lines)-drop > maxRecent || r.bytes > maxRecentBytes && drop < len(r.lines) {
		r.bytes -= r.lines[drop].size
		r.lines[drop] = recentLine{}
		drop++
	}
	if drop > 0 {
		r.whole = false
		r.lines = r.lines[drop:] // append moves it to a new array now and then
	}
}

// tail gathers the last n messages that are not later than at, each once; false:
// it does not hold enough.
func (r *recent) tail(n int, at int64) ([]Entry, bool) {
	g := gatherer{n: n, at: at, unique: !r.repeats}
	for i := len(r.lines) - 1; i >= 0; i-- {
		l := &r.lines[i]
		if l.entry == nil {
			e, _ := decode(l.raw)
			l.entry, l.raw = &e, nil
		}
		if !g.take(*l.entry) {
			return g.inOrder(), true
		}
	}
	return g.inOrder(), r.whole
}

// gatherer collects the last n messages from entries handed to it newest first.
// Of one that stands several times it keeps the oldest it has met; those later
// than at it passes over.
type gatherer struct {
	n       int
	at      int64
	unique  bool    // none stands twice, so that it need not be looked for
	entries []Entry // newest first, repeats included
	seen    map[string]struct{}
	repeats bool
	found   int
}

// take reports whether more are wanted.
func (g *gatherer) take(e Entry) bool {
	if g.found >= g.n {
		return false
	}
	if e.TS > g.at {
		return true
	}
	if g.entries == nil {
		g.entries = make([]Entry, 0, min(g.n, maxRecent))
		if !g.unique {
			g.seen = make(map[string]struct{}, min(g.n, maxRecent))
		}
	}
	g.entries = append(g.entries, e)
	if e.MessageID != "" && !g.unique {
		if _, ok := g.seen[e.MessageID]; ok {
			g.repeats = true
			return true
		}
		g.seen[e.MessageID] = struct{}{}
	}
	g.found++
	return g.found < g.n
}

// inOrder returns what was gathered, oldest first.
func (g *gatherer) inOrder() []Entry {
	slices.Reverse(g.entries)
	if !g.repeats {
		return g.entries
	}
	clear(g.seen)
	return slices.DeleteFunc(g.entries, func(e Entry) bool {
		if e.MessageID == "" {
			return false
		}
		_, again := g.seen[e.MessageID]
		g.seen[e.MessageID] = struct{}{}
		return again
	})
}
