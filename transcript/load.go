package transcript

import (
	"fmt"
	"math"
	"slices"
)

// window is how far back an appender reads a transcript that it opens.
type window struct {
	ids   int   // at least so many messages
	bytes int64 // and at least so much of their memory
	most  int64 // but no more than this
}

var (
	// quickWindow is read on opening: a few milliseconds of work.
	quickWindow = window{ids: 1000, bytes: 1 << 20, most: 16 << 20}
	// fullWindow is read when a message turns up that may stand before the quick
	// one: a sidecar that was away for days hears everything again.
	fullWindow = window{ids: MaxIDs, bytes: 0, most: 256 << 20}
)

// reachMargin is how far the order of the messages' times may differ from the
// order in which they were written.
const reachMargin = 10 * 60 * 1000 // milliseconds

// load reads the end of the transcript anew, from the newest line before size
// back through the rotated files, as far as w says. Ids known before stay known.
// The file is locked.
func (l *chatLog) load(size int64, w window) error {
	l.loaded = false
	guard, err := l.endOf(&size)
	if err != nil {
		return err
	}
	var (
		ids   []uint64
		times []int64
		last  []Entry // newest first, as ids and times
		bytes int64
	)
	whole, err := l.store.walk(l.name, l.file, size, func(e Entry) bool {
		bytes += int64(e.size())
		if len(last) < maxRecent {
			last = append(last, e)
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
	l.recent = recent{whole: whole && len(last) < maxRecent, repeats: repeats(ids)}
	for _, e := range slices.Backward(last) {
		l.recent.addEntry(e)
	}
	l.reach = math.MinInt64
	if !whole && w != fullWindow {
		// The older quarter shows how new the messages before it may be.
		l.reach = reachMargin + slices.Max(append(times[len(times)*3/4:], 0))
	}
	l.place.moveTo(size, guard)
	l.loaded = true
	return nil
}

// endOf returns the last bytes before size, after it ended an unfinished line
// there, which moves size.
func (l *chatLog) endOf(size *int64) (guard []byte, err error) {
	if *size == 0 {
		return nil, nil
	}
	guard = make([]byte, min(*size, guardSize))
	if _, err := l.file.ReadAt(guard, *size-int64(len(guard))); err != nil {
		return nil, fmt.Errorf("read the end of the transcript: %w", err)
	}
	if guard[len(guard)-1] == '\n' {
		return guard, nil
	}
	*size, err = l.endLine(*size)
	return append(guard, '\n'), err
}

func repeats(ids []uint64) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) < len(ids)
}
