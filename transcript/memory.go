package transcript

import "slices"

// Bounds of the lines kept in memory for each open chat; beyond them the oldest
// is dropped.
const (
	maxRecent       = 256     // entries with their contents
	maxRecentBytes  = 1 << 20 // of entries with their contents
	maxOutlineBytes = 2 << 20 // of entries without their contents: about 7,000
	outlineSlack    = 1024    // how many entries more than recently wanted are kept at most
	recentCost      = 250     // bytes of an entry besides its texts
)

// recent holds the last lines of a chat, repeats included: the newest ones whole and,
// as far back as readers need them, others without their contents. Most are dropped
// unread, so a line is decoded on first use.
type recent struct {
	lines        []recentLine // oldest first
	outlines     int          // how many of lines, the oldest, are without content
	bytes        int          // of the whole lines
	outlineBytes int          // of the others
	wanted       int          // how many of the newest lines the last readers needed
	whole        bool         // lines begin at the chat's first line
	// repeats: a message may be in lines twice. Only other programs and people
	// write repeats.
	repeats bool
}

type recentLine struct {
	raw   []byte
	entry *Entry // nil: raw is not decoded yet
	ts    int64  // of the entry
	size  int
	at    place // where the line begins

	without bool   // the entry has no id
	sum     uint64 // of the trace; 0: not computed yet
}

// trace returns the trace of the line's entry.
func (l *recentLine) trace() trace {
	if l.sum == 0 {
		l.sum = traceOf(l.decoded()).sum
	}
	return trace{l.sum, l.ts, l.without}
}

// same reports whether l and other, of which one has no id, are one message.
func (l *recentLine) same(other *recentLine) bool {
	return (l.without || other.without) && near(l.ts, other.ts) && l.trace().same(other.trace())
}

// decoded returns the line's entry, which is without content in an outline.
func (l *recentLine) decoded() *Entry {
	if l.entry == nil {
		e, _ := decode(l.raw)
		l.entry, l.raw = &e, nil
	}
	return l.entry
}

// outline returns the line without its content.
func (l *recentLine) outline() recentLine {
	l.trace()
	short := lineOf(l.decoded().outline(), l.at)
	short.sum = l.sum
	return short
}

func lineOf(e Entry, at place) recentLine {
	return recentLine{entry: &e, ts: e.TS, size: e.size(), at: at, without: e.MessageID == ""}
}

func (r *recent) push(l recentLine) {
	r.lines = append(r.lines, l)
	r.bytes += l.size
	r.drop(len(r.lines) - max(maxRecent, r.wanted+min(r.wanted, outlineSlack)))
	for len(r.lines)-r.outlines > maxRecent || r.bytes > maxRecentBytes && r.outlines < len(r.lines) {
		l := &r.lines[r.outlines]
		r.bytes -= l.size
		*l = l.outline()
		r.outlineBytes += l.size
		r.outlines++
	}
	over := 0
	for bytes := r.outlineBytes; bytes > maxOutlineBytes; over++ {
		bytes -= r.lines[over].size
	}
	r.drop(over)
}

// has reports whether e, which has no id, is the same message as one in lines.
func (r *recent) has(e *Entry) bool {
	for i := len(r.lines) - 1; i >= r.outlines && len(r.lines)-i <= sameReach; i-- {
		if l := &r.lines[i]; near(l.ts, e.TS) && l.trace().same(traceOf(e)) {
			return true
		}
	}
	return false
}

// drop removes the n oldest lines.
func (r *recent) drop(n int) {
	if n <= 0 {
		return
	}
	for i := range n {
		if i < r.outlines {
			r.outlineBytes -= r.lines[i].size
		} else {
			r.bytes -= r.lines[i].size
		}
		r.lines[i] = recentLine{}
	}
	r.outlines = max(0, r.outlines-n)
	r.whole = false
	r.lines = r.lines[n:] // later appends move it to a new array
}

// prepend adds outlines of the lines before lines. Their ids may have been
// forgotten, so repeats of them may go unnoticed.
func (r *recent) prepend(older []recentLine) {
	for i := range older {
		r.outlineBytes += older[i].size
	}
	r.lines = slices.Concat(older, r.lines)
	r.outlines += len(older)
	r.repeats = true
}

// tail returns the last n messages that are not later than at, each once; false
// if memory does not hold enough.
func (r *recent) tail(n int, at int64) ([]Entry, bool) {
	g := gatherer{n: n, at: at, unique: !r.repeats}
	for i := len(r.lines) - 1; i >= r.outlines; i-- {
		if !g.take(&r.lines[i]) {
			return g.inOrder(), true
		}
	}
	return g.inOrder(), r.whole && r.outlines == 0
}

// outline is tail without the contents, from all lines.
func (r *recent) outline(n int, at int64) ([]Entry, bool) {
	g := gatherer{n: n, at: at, unique: !r.repeats}
	used, enough := 0, r.whole
	for i := len(r.lines) - 1; i >= 0; i-- {
		used++
		if !g.take(&r.lines[i]) {
			enough = true
			break
		}
	}
	// wanted falls slowly: a decision first reads the nearest messages and then far
	// back, and so does the next one.
	r.wanted = max(used, r.wanted-r.wanted/32-1)
	return g.inOrder(), enough
}

// upTo returns a place that all messages not later than at precede; end is the
// end of the chat.
func (r *recent) upTo(at int64, end place) place {
	for i := len(r.lines) - 1; i >= 0; i-- {
		if r.lines[i].ts <= at {
			break
		}
		end = r.lines[i].at
	}
	return end
}

// gatherer collects the last n messages from lines passed to it newest first.
// Of repeats it keeps the oldest it got; messages later than at it skips.
type gatherer struct {
	n       int
	at      int64
	unique  bool          // no id occurs twice, so there are no repeats to look for
	entries []Entry       // newest first, repeats included
	lines   []*recentLine // parallel to entries
	seen    map[string]struct{}
	repeats bool
	without int // entries without an id
	beyond  int // lines searched for the id of the last entry
	found   int
	edits   edits
}

// takeEntry is take for an entry that is not in memory.
func (g *gatherer) takeEntry(e Entry) bool {
	l := lineOf(e, place{})
	return g.take(&l)
}

// take adds a line and reports whether more are wanted.
func (g *gatherer) take(l *recentLine) bool {
	if l.ts > g.at || g.edits.take(l.decoded()) {
		return true
	}
	if g.found >= g.n {
		return g.lastID(l)
	}
	if g.entries == nil {
		g.entries = make([]Entry, 0, min(g.n, maxRecent))
		if !g.unique {
			g.seen = make(map[string]struct{}, min(g.n, maxRecent))
		}
	}
	if g.merge(l) {
		return true
	}
	e := l.decoded()
	g.add(l)
	if e.MessageID != "" && !g.unique {
		if _, ok := g.seen[e.MessageID]; ok {
			g.repeats = true
			return true
		}
		g.seen[e.MessageID] = struct{}{}
	}
	g.found++
	return g.found < g.n || l.without
}

func (g *gatherer) add(l *recentLine) {
	g.entries, g.lines = append(g.entries, g.edits.shown(*l.decoded())), append(g.lines, l)
}

// lastID checks whether l has the id of the last entry, and reports whether to
// go on searching.
func (g *gatherer) lastID(l *recentLine) bool {
	if g.found == 0 {
		return false
	}
	last := len(g.lines) - 1
	if !g.lines[last].without || !near(g.lines[last].ts, l.ts) {
		return false
	}
	if !l.without && l.same(g.lines[last]) {
		g.entries[last], g.lines[last] = g.edits.shown(*l.decoded()), l
		return false
	}
	g.beyond++
	return g.beyond < sameReach
}

// merge reports whether l is the same message as one gathered before; then it
// keeps the one that has an id.
func (g *gatherer) merge(l *recentLine) bool {
	if !l.without && g.without == 0 {
		return false
	}
	for i := len(g.lines) - 1; i >= 0 && len(g.lines)-i <= sameReach; i-- {
		if !l.same(g.lines[i]) {
			continue
		}
		if !l.without {
			g.entries, g.lines = slices.Delete(g.entries, i, i+1), slices.Delete(g.lines, i, i+1)
			g.without--
			g.add(l)
			if !g.unique {
				g.seen[l.decoded().MessageID] = struct{}{}
			}
		}
		return true
	}
	if l.without {
		g.without++
	}
	return false
}

// inOrder returns the gathered entries, oldest first.
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
