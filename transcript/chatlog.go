package transcript

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
)

// Bounds of one append.
const (
	// lockWait is how long Append waits for the lock before ErrBusy. It is held
	// for microseconds, unless its holder is stopped.
	lockWait = 10 * time.Second
	// tryWait is how long TryAppend does.
	tryWait = 20 * time.Millisecond
	// maxBehind is how many bytes that others appended are read on; with more,
	// the end of the file is read again.
	maxBehind = 4 << 20
)

// chatLog is the appending side of one chat: its open file and what is known of
// its content. Where it was pushed out of the cache, it is closed by whoever
// unlocks it last.
type chatLog struct {
	store   *Store
	name    string
	retired atomic.Bool // set once, by retire

	mu     sync.Mutex // guards the rest
	log    jsonl.Log
	place  jsonl.Tail
	loaded bool // ids and recent hold what stands before place
	ids    idSet
	recent recent
	index  Index // nil: none is kept
	// indexed is how many lines index has.
	indexed int
	memory  int64 // of ids, recent and index, as counted in store.memory
	// What stands before the part that was loaded is not among ids. Messages
	// not newer than reach may be repeats of it; MinInt64: there is no such part.
	reach int64
}

// retire closes l now, or leaves that to who holds it.
func (l *chatLog) retire() {
	l.retired.Store(true)
	l.closeRetired()
}

func (l *chatLog) unlock() {
	l.countMemory()
	l.mu.Unlock()
	if l.retired.Load() || l.store.closed() {
		l.closeRetired()
		return
	}
	for l.store.memory.Load() > l.store.opts.Memory && l.store.chats.Len() > 1 {
		l.store.chats.RemoveOldest()
	}
}

func (l *chatLog) closeRetired() {
	if l.mu.TryLock() {
		l.log.Close()
		l.ids, l.recent, l.index = idSet{}, recent{}, nil
		l.countMemory()
		l.mu.Unlock()
	}
}

// countMemory counts what l holds in memory; the caller holds mu.
func (l *chatLog) countMemory() {
	now := int64(l.recent.bytes + l.recent.outlineBytes + idCost*len(l.ids.ring))
	if l.index != nil {
		now += int64(l.index.Bytes())
	}
	l.store.memory.Add(now - l.memory)
	l.memory = now
}

func (l *chatLog) hash(id string) uint64 { return maphash.String(l.store.seed, id) }

// append tries once to be Store.Append; the caller holds mu.
func (l *chatLog) append(a *addition, waited time.Duration) (added bool, err error) {
	if a.MessageID != "" && l.known(a.MessageID) {
		return false, nil
	}
	if a.line == nil {
		if a.line, err = encodeTo(a.buffer, a.Entry); err != nil { // not under the file's lock
			return false, err
		}
	}
	err = l.log.Do(waited, func(size int64) error {
		if err := l.takeIn(size); err != nil {
			return err
		}
		if known, err := l.stands(&a.Entry); known || err != nil {
			return err
		}
		if l.log.Full(l.place.Offset()) && l.rotate() {
			return jsonl.ErrMoved
		}
		err := l.write(a.line)
		added = err == nil
		return err
	})
	return added, err
}

// known tells without the lock, after reading on, that a message is in the
// file. False means that it must be looked for under the lock.
func (l *chatLog) known(id string) bool {
	if !l.loaded {
		return false
	}
	size, err := l.log.Size()
	if err != nil || size < l.place.Offset() {
		return false
	}
	hash := l.hash(id)
	return l.ids.has(hash) || l.readAhead(size) && l.ids.has(hash)
}

// readAhead reads to size without the lock, unless that is too far or the file
// is not as it was; then it is false, and for an append to put right.
func (l *chatLog) readAhead(size int64) bool {
	behind := size - l.place.Offset()
	return behind >= 0 && behind <= maxBehind && l.readOn(size) == nil
}

// left is called before the file is closed. After a rotation what is known still
// holds; after anything else that moved the file a person has made up their mind about
// what the record holds. The number of a deleted file that nobody holds is given to the
// next one, so it is asked while the file is open.
func (l *chatLog) left(moved bool) {
	l.loaded = false
	if moved {
		if _, rotated, err := l.store.olderThan(l.name, l.log.Info()); err != nil || !rotated {
			l.ids = idSet{}
		}
	}
}

// takeIn reads what others appended. The file is locked and has size bytes.
func (l *chatLog) takeIn(size int64) error {
	switch {
	case !l.loaded || size-l.place.Offset() > maxBehind:
		return l.load(quickWindow)
	case size < l.place.Offset():
		l.ids = idSet{} // cut by hand
		return l.load(quickWindow)
	}
	err := l.readOn(size)
	if errors.Is(err, jsonl.ErrReplaced) {
		l.ids = idSet{}
		return l.load(quickWindow)
	}
	if err == nil && l.place.Offset() == size && !l.place.Inside() {
		l.log.Ended(size)
		return nil
	}
	if err != nil {
		return err
	}
	// A writer was killed, maybe right before its newline: with the line
	// ended, it shows whether that is a whole message.
	if size, err = l.log.Append(nil); err != nil {
		return err
	}
	return l.readOn(size)
}

// readOn reads from place to size, be the file locked or not.
func (l *chatLog) readOn(size int64) error {
	if size == l.place.Offset() {
		return nil
	}
	var skips int64
	_, err := l.place.Read(l.log.File(), size, func(line jsonl.Line) bool {
		if line.Text == nil || !l.remember(line.Text, place{offset: line.Start}) && !blank(line.Text) {
			skips++
		}
		return true
	})
	if skips > 0 {
		l.store.skipped.Add(skips)
		l.store.log.Warn("skipped lines that are not entries", "file", l.name, "lines", skips)
	}
	return err
}

// remember takes in one line and reports whether it is an entry and no more.
func (l *chatLog) remember(line []byte, at place) bool {
	if v, ok := scan(line); ok {
		if id, ok := v.id(); ok {
			last := recentLine{ts: v.ts, size: recentCost + len(line), at: at, without: len(id) == 0,
				again: len(id) > 0 && l.noteID(maphash.Bytes(l.store.seed, id))}
			if l.index == nil {
				last.raw = bytes.Clone(line)
			} else { // it is asked for at once
				e, _ := v.entry(line)
				last.entry = &e
			}
			l.push(last)
			return true
		}
	}
	e, found, whole := parse(line)
	if found {
		last := lineOf(e, at)
		last.again = e.MessageID != "" && l.noteID(l.hash(e.MessageID))
		l.push(last)
	}
	return whole
}

// noteID notes the id of a new line and reports whether a line before had it.
func (l *chatLog) noteID(id uint64) (again bool) {
	again = l.ids.has(id)
	l.recent.repeats = l.recent.repeats || again
	l.ids.add(id)
	return again
}

// push takes in a new line.
func (l *chatLog) push(line recentLine) {
	if l.index != nil {
		l.index.Add(line.decoded(), line.again)
		l.indexed++
	}
	l.recent.push(line)
}

// stands reports whether e is in the transcript already.
func (l *chatLog) stands(e *Entry) (bool, error) {
	if e.MessageID == "" {
		return l.recent.has(e), nil
	}
	id := l.hash(e.MessageID)
	if l.ids.has(id) {
		return true, nil
	}
	if e.TS > l.reach {
		return false, nil
	}
	err := l.load(fullWindow)
	return err == nil && l.ids.has(id), err
}

// write appends line. Whatever it returns, place says what has been read.
func (l *chatLog) write(line []byte) error {
	at, err := l.log.Append(line)
	if err != nil {
		return err
	}
	if at != l.place.Offset() {
		return nil // a program without locks wrote too: the next call reads both
	}
	l.place.Skip(line)
	l.remember(line[:len(line)-1], place{offset: at}) // as every reader will see it
	return nil
}

// rotate moves the file aside and deletes the oldest. Where that is not
// possible the file grows on, and it is tried again later.
func (l *chatLog) rotate() bool {
	numbers, err := l.store.segmentsNow(l.name) // the next number must be free
	next := 1
	if len(numbers) > 0 && numbers[0] < math.MaxInt {
		next = numbers[0] + 1
	}
	if err == nil {
		err = l.log.Rotate(segmentName(l.name, next), l.place.Offset())
	}
	if err != nil {
		l.log.Later(l.place.Offset())
		l.store.log.Warn("the transcript cannot be rotated", "file", l.name, "err", err)
		return false
	}
	old := func(yield func(string) bool) {
		for _, number := range numbers {
			if number <= next-l.store.opts.Keep && !yield(segmentName(l.name, number)) {
				return
			}
		}
	}
	root, err := l.store.dir.Open(false)
	if err == nil {
		_, err = jsonl.Prune(root, old, func(string, fs.FileInfo) bool { return true })
	}
	if err != nil {
		l.store.log.Warn("an old transcript file cannot be deleted", "file", l.name, "err", err)
	}
	return true
}
