package transcript

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/relay"
)

// Bounds of one append.
const (
	// lockWait is how long Append waits for the lock before it returns ErrBusy.
	// The lock is held for microseconds, unless the holding process is stopped.
	lockWait = 10 * time.Second
	// maxBehind is the most bytes appended by others that are read on from the
	// last place; beyond it the end of the file is read again.
	maxBehind = 4 << 20
)

// chatLog is the appending side of one chat: its open file and the remembered
// part of its content. After its eviction from the cache, the last goroutine to
// unlock it closes it.
type chatLog struct {
	store   *Store
	name    string
	retired atomic.Bool // set once, by retire

	mu     sync.Mutex // guards the rest
	log    jsonl.Log
	loaded fs.FileInfo // the file of which memory has the lines before place; nil: none
	place  jsonl.Tail
	memory
	// reach bounds the times of the lines before the loaded part, whose ids are
	// not in memory: only messages not newer than reach may repeat them. MinInt64:
	// all lines are loaded.
	reach int64
}

// retire closes l now, or leaves that to the goroutine that holds it.
func (l *chatLog) retire() {
	l.retired.Store(true)
	l.closeRetired()
}

func (l *chatLog) unlock() {
	l.mu.Unlock()
	if l.retired.Load() || l.store.closed.Load() {
		l.closeRetired()
	}
}

func (l *chatLog) closeRetired() {
	if l.mu.TryLock() {
		l.log.Close()
		l.memory = memory{}
		l.mu.Unlock()
	}
}

// addition is an entry to be appended.
type addition struct {
	Entry
	text []byte // the encoded entry with its newline, once it is needed
}

// append is one attempt of Store.Append.
func (l *chatLog) append(a *addition) (added bool, err error) {
	if a.MessageID != "" && l.written(a.MessageID) {
		return false, nil
	}
	if a.text == nil { // before taking the file's lock
		if a.text, err = a.encode(); err != nil {
			return false, err
		}
		a.text = append(a.text, '\n')
	}
	err = l.log.Do(func(size int64) error {
		if err := l.readNew(size); err != nil {
			return err
		}
		if known, err := l.contains(&a.Entry); known || err != nil {
			return err
		}
		if l.log.Full(l.place.Offset()) && l.rotate() {
			return jsonl.ErrMoved
		}
		at, err := l.log.Append(a.text)
		if added = err == nil; added && at == l.place.Offset() { // else another program, without the lock, wrote as well
			l.place.Skip(a.text)
			l.remember(knownOf(&a.Entry))
		}
		return err
	})
	return added, err
}

// written reports whether a message is in the file, without the file's lock. False means that it must be looked for
// under the lock. What is remembered is not read on: so who is far behind does not forget what comes next.
func (l *chatLog) written(id string) bool {
	size, err := l.log.Size()
	return err == nil && l.matches(size) && (l.has(id) || l.readOn(size) == nil && l.has(id))
}

// matches reports whether memory is of the open file, which has size bytes.
func (l *chatLog) matches(size int64) bool {
	return l.loaded != nil && l.loaded == l.log.Info() && size >= l.place.Offset()
}

// readNew reads the lines that others appended. The file is locked and has size
// bytes.
func (l *chatLog) readNew(size int64) error {
	if !l.matches(size) {
		return l.load(false)
	}
	err := l.readOn(size)
	switch {
	case errors.Is(err, jsonl.ErrReplaced):
		return l.load(false)
	case err != nil:
		return err
	case l.place.Offset() == size && !l.place.Inside():
		return nil
	}
	// A writer was killed, maybe right before its newline. Ending the line
	// shows whether it is a whole message.
	if size, err = l.log.Append(nil); err != nil {
		return err
	}
	return l.readOn(size)
}

// readOn reads from place to size. [jsonl.ErrReplaced] means that the file has to be loaded again.
func (l *chatLog) readOn(size int64) error {
	switch behind := size - l.place.Offset(); {
	case behind == 0:
		return nil
	case behind > maxBehind:
		return jsonl.ErrReplaced
	}
	before := l.store.Skipped()
	_, err := l.place.Read(l.log.File(), size, func(line jsonl.Line) bool {
		if line.Text == nil {
			l.store.skipped.Add(1)
		} else if e, found := l.store.entry(line.Text); found {
			l.remember(knownOf(&e))
		}
		return true
	})
	if skips := l.store.Skipped() - before; skips > 0 {
		l.store.opts.Logger.Warn("skipped lines that are not entries", "file", l.name, "lines", skips)
	}
	return err
}

// contains reports whether e is in the transcript already. The file is locked.
func (l *chatLog) contains(e *Entry) (bool, error) {
	if e.MessageID == "" {
		k := knownOf(e)
		return slices.ContainsFunc(l.last, k.same), nil
	}
	if l.has(e.MessageID) || e.TS > l.reach {
		return l.has(e.MessageID), nil
	}
	err := l.load(true)
	return err == nil && l.has(e.MessageID), err
}

// rotate renames the file to a rotated one and deletes the oldest of these. If
// that fails, the file keeps growing and a later call retries.
func (l *chatLog) rotate() bool {
	number, older, err := l.store.numbers(l.name, l.log.Info(), nil) // its name must be free
	if err == nil {
		err = l.log.Rotate(segmentName(l.name, number), l.place.Offset())
	}
	if err != nil {
		l.log.Later(l.place.Offset())
		l.store.opts.Logger.Warn("the transcript cannot be rotated", "file", l.name, "err", err)
		return false
	}
	root, err := l.store.dir.Open(false)
	for _, old := range older {
		if err == nil && old <= number-l.store.opts.keep {
			if err = root.Remove(segmentName(l.name, old)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err != nil {
		l.store.opts.Logger.Warn("an old transcript file cannot be deleted", "file", l.name, "err", err)
	}
	return true
}

// Reading back on opening ends after quickIDs messages with quickBytes, or quickMost bytes, which takes a few
// milliseconds; when a message arrives that may be older, since a sidecar that was away for days receives everything
// again, after maxIDs messages or fullMost bytes.
const (
	quickIDs   = 1000
	quickBytes = 1 << 20
	quickMost  = 16 << 20
	fullMost   = 256 << 20
	// reachMargin is how far, in milliseconds, the order of the messages' times may differ from the
	// order in which they were written.
	reachMargin = 10 * 60 * 1000
)

// load reads the end of the transcript again. The file is locked.
func (l *chatLog) load(full bool) error {
	l.loaded = nil
	size, err := l.log.Append(nil) // ends a torn line
	if err != nil {
		return err
	}
	number, _, err := l.store.numbers(l.name, l.log.Info(), nil)
	if err != nil {
		return err
	}
	var lines []known // newest first
	bytes, begun := 0, true
	for r, err := range l.store.back(l.name, place{number, size}, nil) {
		if err != nil {
			return err
		}
		e, found := l.store.entry(r.text)
		if !found {
			continue
		}
		lines = append(lines, knownOf(&e))
		bytes += len(r.text)
		if full && (len(lines) >= maxIDs || bytes >= fullMost) ||
			!full && (len(lines) >= quickIDs && bytes >= quickBytes || bytes >= quickMost) {
			begun = false
			break
		}
	}
	l.memory = memory{}
	for _, k := range slices.Backward(lines) {
		l.remember(k)
	}
	l.reach = math.MinInt64
	if !begun && !full {
		// The newest time in the older quarter bounds the times of the messages before.
		for _, older := range lines[len(lines)*3/4:] {
			l.reach = max(l.reach, older.ts+reachMargin)
		}
	}
	if l.place, err = jsonl.At(l.log.File(), relay.MaxLine, size); err == nil {
		l.loaded = l.log.Info()
	}
	return err
}

// maxIDs is how many message ids are remembered of each open chat. A repeat after more other messages than that is not
// recognised.
const maxIDs = 1 << 13

// memory is what an appender knows of the last lines of a chat.
type memory struct {
	last []known // the last lines, at least sameReach if there are as many; oldest first

	ids  map[uint64]struct{} // of messages
	ring []uint64            // ids in their order
	next int                 // the oldest one in the full ring
}

func (m *memory) has(id string) bool {
	_, ok := m.ids[maphash.String(seed, id)]
	return ok
}

// remember adds a line behind the others.
func (m *memory) remember(k known) {
	if m.last = append(m.last, k); len(m.last) >= 2*sameReach {
		m.last = slices.Delete(m.last, 0, sameReach)
	}
	if _, again := m.ids[k.id]; again || k.id == 0 {
		return
	}
	if m.ids == nil {
		m.ids = map[uint64]struct{}{}
	}
	if len(m.ring) < maxIDs {
		m.ring = append(m.ring, k.id)
	} else {
		delete(m.ids, m.ring[m.next])
		m.ring[m.next] = k.id
		m.next = (m.next + 1) % maxIDs
	}
	m.ids[k.id] = struct{}{}
}
