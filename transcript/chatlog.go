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
	// lockWait is how long Append waits for the lock before it returns ErrBusy.
	// The lock is held for microseconds, unless the holding process is stopped.
	lockWait = 10 * time.Second
	// tryWait is how long TryAppend waits for the lock.
	tryWait = 20 * time.Millisecond
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
	place  jsonl.Tail
	loaded bool // ids and recent cover the lines before place
	ids    idSet
	recent recent
	memory int64 // of ids and recent, as counted in store.memory
	// reach bounds the times of the lines before the loaded part, whose ids are
	// not in ids: only messages not newer than reach may repeat them. MinInt64:
	// all lines are loaded.
	reach int64
}

// retire closes l now, or leaves that to the goroutine that holds it.
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
		l.ids, l.recent = idSet{}, recent{}
		l.countMemory()
		l.mu.Unlock()
	}
}

// countMemory adds the memory of l to that of the store; the caller holds mu.
func (l *chatLog) countMemory() {
	now := int64(l.recent.bytes + l.recent.outlineBytes + idCost*len(l.ids.ring))
	l.store.memory.Add(now - l.memory)
	l.memory = now
}

func (l *chatLog) hash(id string) uint64 { return maphash.String(l.store.seed, id) }

// append is one attempt of Store.Append; the caller holds mu.
func (l *chatLog) append(a *addition, waited time.Duration) (added bool, err error) {
	if a.MessageID != "" && l.known(a.MessageID) {
		return false, nil
	}
	if a.line == nil {
		if a.line, err = encodeTo(a.buffer, a.Entry); err != nil { // before taking the file's lock
			return false, err
		}
	}
	err = l.log.Do(waited, func(size int64) error {
		if err := l.readNew(size); err != nil {
			return err
		}
		if known, err := l.contains(&a.Entry); known || err != nil {
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

// known reports whether a message is in the file, reading on without the lock.
// False means that it must be looked for under the lock.
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

// readAhead reads up to size without the lock. It returns false if that is too
// far or the file was cut or replaced; the next append recovers from that.
func (l *chatLog) readAhead(size int64) bool {
	behind := size - l.place.Offset()
	return behind >= 0 && behind <= maxBehind && l.readOn(size) == nil
}

// closing is called before the file is closed. After a rotation the remembered lines are
// still valid. If the file was moved in another way, a person has changed the record,
// and they are read again. Whether it was rotated is checked while the file is open,
// since the inode number of a deleted and closed file is reused.
func (l *chatLog) closing(moved bool) {
	l.loaded = false
	if moved {
		if _, rotated, err := l.store.olderThan(l.name, l.log.Info()); err != nil || !rotated {
			l.ids = idSet{}
		}
	}
}

// readNew reads the lines that others appended. The file is locked and has size
// bytes.
func (l *chatLog) readNew(size int64) error {
	switch {
	case !l.loaded || size-l.place.Offset() > maxBehind:
		return l.load(quickWindow)
	case size < l.place.Offset():
		l.ids = idSet{} // a person cut the file
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
	// A writer was killed, maybe right before its newline. Ending the line
	// shows whether it is a whole message.
	if size, err = l.log.Append(nil); err != nil {
		return err
	}
	return l.readOn(size)
}

// readOn reads from place to size, whether or not the file is locked.
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

// remember adds one line to the memory of l and reports whether it is an entry
// and nothing else.
func (l *chatLog) remember(line []byte, at place) bool {
	if v, ok := scan(line); ok {
		if id, ok := v.id(); ok {
			if len(id) > 0 {
				l.noteID(maphash.Bytes(l.store.seed, id))
			}
			l.recent.push(recentLine{raw: bytes.Clone(line), ts: v.ts, size: recentCost + len(line), at: at,
				without: len(id) == 0})
			return true
		}
	}
	e, found, whole := parse(line)
	if found {
		if e.MessageID != "" {
			l.noteID(l.hash(e.MessageID))
		}
		l.recent.push(lineOf(e, at))
	}
	return whole
}

// noteID adds the id of a new line.
func (l *chatLog) noteID(id uint64) {
	l.recent.repeats = l.recent.repeats || l.ids.has(id)
	l.ids.add(id)
}

// contains reports whether e is in the transcript already.
func (l *chatLog) contains(e *Entry) (bool, error) {
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

// write appends line. place is where reading has got to, also after an error.
func (l *chatLog) write(line []byte) error {
	at, err := l.log.Append(line)
	if err != nil {
		return err
	}
	if at != l.place.Offset() {
		return nil // a program without locks wrote as well: the next call reads both
	}
	l.place.Skip(line)
	l.remember(line[:len(line)-1], place{offset: at}) // as every reader parses it
	return nil
}

// rotate renames the file to a rotated one and deletes the oldest of these. If
// that fails, the file keeps growing and a later call retries.
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
