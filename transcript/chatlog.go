package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// Bounds of one append.
const (
	// lockWait is how long Append waits for the lock before ErrBusy. It is held
	// for microseconds, unless its holder is stopped.
	lockWait = 10 * time.Second
	// tryWait is how long TryAppend does.
	tryWait = 20 * time.Millisecond
	// The lock is asked for again after lockPause, doubled up to lockPauseMax.
	lockPause    = 20 * time.Microsecond
	lockPauseMax = time.Millisecond
	// turnAfter is how long a writer waits among the others before it asks for the
	// next turn, and turnRespected how long it leaves the lock to who has the turn:
	// that one may be paused as well.
	turnAfter     = 100 * time.Millisecond
	turnRespected = time.Second
	// maxRetries is how often a file may be rotated or replaced between opening
	// and locking it before an append gives up.
	maxRetries = 100
	// maxBehind is how many bytes that others appended are read on; with more,
	// the end of the file is read anew.
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
	file   *os.File   // nil: not open
	turn   bool       // file has the next turn at the lock
	info   os.FileInfo
	place  jsonl.Tail
	loaded bool // ids and recent hold what stands before place
	ids    idSet
	recent recent
	memory int64 // of ids and recent, as counted in store.memory
	// What stands before the part that was loaded is not among ids. Messages
	// not newer than reach may be repeats of it; MinInt64: there is no such part.
	reach int64
	// rotateAt is the size at which the file is rotated.
	rotateAt int64
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
		l.closeFile()
		l.ids, l.recent = idSet{}, recent{}
		l.countMemory()
		l.mu.Unlock()
	}
}

// countMemory counts what l holds in memory; the caller holds mu.
func (l *chatLog) countMemory() {
	now := int64(l.recent.bytes + l.recent.outlineBytes + idCost*len(l.ids.queue))
	l.store.memory.Add(now - l.memory)
	l.memory = now
}

func (l *chatLog) closeFile() {
	if l.file != nil {
		_ = l.file.Close() // nothing is buffered in it; closing also unlocks and ends the turn
		l.file, l.turn = nil, false
	}
	l.loaded = false
}

func (l *chatLog) hash(id string) uint64 { return maphash.String(l.store.seed, id) }

// append tries once to be Store.Append; the caller holds mu. errLocked: another
// process has the file's lock.
func (l *chatLog) append(a *addition) (added bool, err error) {
	if a.MessageID != "" && l.known(a.MessageID) {
		return false, nil
	}
	if a.line == nil {
		if a.line, err = encode(a.Entry); err != nil { // not under the file's lock
			return false, err
		}
	}
	for range maxRetries {
		added, err = l.try(a)
		if !errors.Is(err, errMoved) {
			return added, err
		}
		l.leave()
	}
	return false, fmt.Errorf("gave up after %d tries: %w", maxRetries, err)
}

// known tells without the lock, after reading on, that a message stands in the
// file. False means that it must be looked for under the lock.
func (l *chatLog) known(id string) bool {
	if !l.loaded {
		return false
	}
	hash := l.hash(id)
	if !l.ids.has(hash) {
		info, err := l.file.Stat()
		if err != nil || !l.readAhead(info.Size()) || !l.ids.has(hash) {
			return false
		}
	}
	info, err := l.stat()
	return err == nil && info.Size() >= l.place.Offset()
}

// readAhead reads to size without the lock, unless that is too far or the file
// is not as it was; then it is false, and for an append to put right.
func (l *chatLog) readAhead(size int64) bool {
	behind := size - l.place.Offset()
	return behind >= 0 && behind <= maxBehind && l.readOn(size) == nil
}

// errMoved says that the open file is not the chat's any more.
var errMoved = errors.New("the file was moved or replaced meanwhile")

// stat looks at the chat's file by its name, and returns errMoved where that is
// not the open one.
func (l *chatLog) stat() (os.FileInfo, error) {
	info, err := l.store.stat(l.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errMoved
	case err != nil:
		return nil, err
	case !os.SameFile(info, l.info):
		return nil, errMoved
	}
	return info, nil
}

// try appends once, under the file's lock.
func (l *chatLog) try(a *addition) (added bool, err error) {
	if err := l.open(); err != nil {
		return false, err
	}
	if err := l.lock(a); err != nil {
		return false, err
	}
	defer func() {
		if unlock := safefile.Unlock(l.file); err == nil {
			err = unlock
		}
	}()
	info, err := l.stat()
	if err != nil {
		return false, err
	}
	if err := l.takeIn(info.Size()); err != nil {
		return false, err
	}
	if known, err := l.stands(&a.Entry); known || err != nil {
		return false, err
	}
	if l.place.Offset() >= l.rotateAt {
		if rotated := l.rotate(); rotated {
			return false, errMoved
		}
	}
	if err := l.write(a.line); err != nil {
		return false, err
	}
	return true, nil
}

func (l *chatLog) open() error {
	if l.file != nil {
		return nil
	}
	root, err := l.store.dir.Open(true)
	if err != nil {
		return err
	}
	f, err := safefile.Open(root, l.name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.info, l.loaded = f, info, false
	l.place, l.rotateAt = jsonl.NewTail(MaxLine), l.store.opts.RotateSize
	return nil
}

// leave closes a file that is not the chat's any more. After a rotation what is
// known still holds; after anything else a person has made up their mind about
// what the record holds. It is asked before closing, since the number of a
// deleted file that nobody holds is given to the next one.
func (l *chatLog) leave() {
	if _, rotated, err := l.store.olderThan(l.name, l.info); err != nil || !rotated {
		l.ids = idSet{}
	}
	l.closeFile()
}

// errLocked says that another process has the lock, or the next turn at it.
var errLocked = errors.New("the file is locked")

// lock takes the file's lock for a, or returns errLocked. Where many processes
// write at once, chance may favour the same ones again and again; so one that
// has waited for long takes the next turn, and the others leave the lock to it.
func (l *chatLog) lock(a *addition) error {
	waited := a.waited()
	if waited >= turnAfter && !l.turn {
		l.turn = safefile.TryTurn(l.file)
	}
	if l.turn || waited >= turnRespected || !safefile.TurnTaken(l.file) {
		ok, err := safefile.TryLock(l.file)
		if ok {
			l.endTurn()
		}
		if ok || err != nil {
			return err
		}
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return errLocked
}

// endTurn leaves the next turn at the lock to others.
func (l *chatLog) endTurn() {
	if l.turn {
		safefile.EndTurn(l.file)
		l.turn = false
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
	if err != nil || l.place.Offset() == size && !l.place.Inside() {
		return err
	}
	// A writer was killed, maybe right before its newline: with the line
	// ended, it shows whether that is a whole message.
	if size, err = safefile.Append(l.file, nil); err != nil {
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
	_, err := l.place.Read(l.file, size, func(line jsonl.Line) bool {
		if line.Text == nil || !l.remember(line.Text, place{offset: line.Start}) && !blank(line.Text) {
			skips++
		}
		return true
	})
	if skips > 0 {
		l.store.skipped.Add(skips)
		l.store.log.Warn("skipped lines that are no entry", "file", l.name, "lines", skips)
	}
	return err
}

// remember takes in one line and reports whether it is an entry and no more.
func (l *chatLog) remember(line []byte, at place) bool {
	if v, ok := scan(line); ok {
		if id, ok := v.id(); ok {
			if len(id) > 0 {
				l.noteID(maphash.Bytes(l.store.seed, id))
			}
			l.recent.push(recentLine{raw: bytes.Clone(line), ts: v.ts, size: recentCost + len(line), at: at, without: len(id) == 0})
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

func (l *chatLog) noteID(id uint64) {
	l.recent.repeats = l.recent.repeats || l.ids.has(id)
	l.ids.add(id)
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
	at, err := safefile.Append(l.file, line)
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
// possible the file grows on, and it is tried again a mebibyte later.
func (l *chatLog) rotate() bool {
	numbers, err := l.store.segmentsNow(l.name) // the next number must be free
	next := 1
	if len(numbers) > 0 && numbers[0] < math.MaxInt {
		next = numbers[0] + 1
	}
	var root *os.Root
	if err == nil {
		root, err = l.store.dir.Open(false)
	}
	if err == nil {
		err = root.Rename(l.name, segmentName(l.name, next))
	}
	if err != nil {
		l.rotateAt = l.place.Offset() + 1<<20
		l.store.log.Warn("transcript not rotated", "file", l.name, "err", err)
		return false
	}
	for _, number := range numbers {
		if number > next-l.store.opts.Keep {
			continue
		}
		if err := root.Remove(segmentName(l.name, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.store.log.Warn("old transcript not deleted", "file", segmentName(l.name, number), "err", err)
		}
	}
	return true
}
