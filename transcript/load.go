package transcript

import (
	"math"
	"slices"

	"feishu-relay/internal/jsonl"
)

// window is how far back an appender reads a transcript that it opens.
type window struct {
	ids   int   // at least this many messages
	bytes int64 // and at least this many bytes of them in memory
	most  int64 // but at most this many bytes of the files
}

var (
	// quickWindow is read on opening, which takes a few milliseconds.
	quickWindow = window{ids: 1000, bytes: 1 << 20, most: 16 << 20}
	// fullWindow is read when a message arrives that may be older than
	// quickWindow: a sidecar that was away for days receives everything again.
	fullWindow = window{ids: MaxIDs, bytes: 0, most: 256 << 20}
)

// reachMargin is how far the order of the messages' times may differ from the
// order in which they were written.
const reachMargin = 10 * 60 * 1000 // milliseconds

// load reads the end of the transcript again, from the newest line back through the
// rotated files, as far as w reaches. It keeps the ids known before. The file is
// locked.
func (l *chatLog) load(w window) error {
	l.loaded = false
	size, err := l.log.Append(nil) // ends a torn line
	if err != nil {
		return err
	}
	var (
		ids   []uint64
		times []int64
		last  []recentLine // newest first, as ids and times
		bytes int64
		full  bool // last holds as much as memory keeps
	)
	whole, err := l.store.walkLines(l.name, l.log.File(), place{offset: size}, func(at place, line []byte) bool {
		e, found := l.store.entry(line)
		if !found {
			return true
		}
		bytes += int64(e.size())
		if full = full || len(last) == maxRecent || bytes > maxRecentBytes; !full {
			last = append(last, lineOf(e, at))
		}
		if e.MessageID != "" {
			ids = append(ids, l.hash(e.MessageID))
			times = append(times, e.TS)
		}
		return bytes < w.most && (len(ids) < w.ids || bytes < w.bytes)
	})
	if err != nil {
		return err
	}
	l.ids.addNewer(ids)
	l.recent = recent{whole: whole && !full, repeats: repeats(ids), wanted: l.recent.wanted}
	for _, line := range slices.Backward(last) {
		l.recent.push(line)
	}
	l.reach = math.MinInt64
	if !whole && w != fullWindow {
		// The newest time in the older quarter bounds the times of the messages
		// before.
		l.reach = reachMargin + slices.Max(append(times[len(times)*3/4:], 0))
	}
	l.place, err = jsonl.At(l.log.File(), MaxLine, size)
	l.loaded = err == nil
	return err
}

// extendBy is the least number of entries by which memory is extended.
const extendBy = 64

// extend reads entries that precede those in l.recent, until it has n more that are
// not later than at. It reports whether l.recent may have changed.
func (l *chatLog) extend(n int, at int64) bool {
	r := &l.recent
	room := maxOutlineBytes - r.outlineBytes
	from := place{offset: l.place.Offset()}
	if len(r.lines) > 0 {
		from = r.lines[0].at
	}
	var older []recentLine // newest first
	whole, err := l.readBack(from, func(begin place, line []byte) bool {
		e, found := l.store.entry(line)
		if !found {
			return true
		}
		sum := traceOf(&e).sum
		e = e.outline()
		if e.TS <= at {
			n--
		}
		older = append(older, lineOf(e, begin))
		older[len(older)-1].sum = sum
		room -= e.size()
		return n > 0 && room > 0
	})
	if err != nil || len(older) == 0 && !whole {
		return false
	}
	slices.Reverse(older)
	r.prepend(older)
	r.whole = whole
	return whole || room > 0
}

// readBack passes the lines before from to take, newest first.
func (l *chatLog) readBack(from place, take func(at place, line []byte) bool) (whole bool, err error) {
	f := l.log.File()
	if from.segment != 0 {
		if f, _, err = l.store.openToRead(from.file(l.name)); err != nil {
			return false, err
		}
		if f != nil {
			defer f.Close()
		}
	}
	return l.store.walkLines(l.name, f, from, take)
}

// repeats reports whether an id occurs more than once.
func repeats(ids []uint64) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) < len(ids)
}
