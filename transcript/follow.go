package transcript

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"iter"
	"math"
	"os"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// recheck is how often a follower reads without a change notice: notices get
// lost, and some file systems send none.
const recheck = time.Second

// Follow yields the last n messages of a chat and then each one that is appended,
// as tail -f does, until ctx is done, which ends it without an error, or the store
// is closed ([ErrClosed]). It waits for a chat that has no transcript yet. It
// follows rotated, cut and replaced files, and yields no message twice within
// [MaxIDs]. It ends after an error.
//
// The caller may take any time for an entry: Follow reads on only afterwards and
// buffers nothing.
func (s *Store) Follow(ctx context.Context, channel, chatID string, n int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f := follower{store: s, name: fileName(channel, chatID), yield: yield}
		defer f.close()
		switch err := f.run(ctx, n); {
		case err == nil, errors.Is(err, errEnough), ctx.Err() != nil:
		case s.closed():
			yield(Entry{}, ErrClosed)
		default:
			yield(Entry{}, fmt.Errorf("follow transcript %s: %w", f.name, err))
		}
	}
}

// errEnough means that the caller ended the iteration.
var errEnough = errors.New("enough")

type follower struct {
	store  *Store
	name   string
	yield  func(Entry, error) bool
	file   *os.File // nil until it exists
	info   os.FileInfo
	place  jsonl.Tail
	seen   idSet
	last   []trace // of the newest entries yielded; a ring once it is full
	next   int     // index of the oldest one in the full ring
	enough bool
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // opened for reading only
		f.file = nil
	}
}

func (f *follower) run(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.store.done, cancel)()
	hints := safefile.Notices{Dir: f.store.dir.Path, Recheck: recheck, Log: f.store.log}
	defer hints.Close()
	hints.Arm()
	if err := f.begin(n); err != nil {
		return err
	}
	for {
		for moved := true; moved; {
			var err error
			if moved, err = f.step(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		for hinted := false; !hinted; {
			why, err := hints.Next(ctx)
			if err != nil {
				return err
			}
			if why.Ticked {
				hints.Arm()
			}
			hinted = why.Ticked || why.Lost || why.Name == f.name
		}
	}
}

// begin yields the last n messages and sets the place after the newest one.
func (f *follower) begin(n int) error {
	if err := f.openNext(f.name); err != nil {
		return err
	}
	var size int64
	if f.file != nil {
		var err error
		if size, err = jsonl.LastLineEnd(f.file, f.info.Size()); err != nil {
			return err
		}
		if f.place, err = jsonl.At(f.file, MaxLine, size); err != nil {
			return err
		}
	}
	// More ids are read than messages are yielded, so that messages that are
	// later only moved within the file do not count as new.
	var ids []uint64
	g := gatherer{n: n, at: math.MaxInt64}
	_, err := f.store.walk(f.name, f.file, size, func(e Entry) bool {
		if e.MessageID != "" {
			ids = append(ids, f.hash(e.MessageID))
		}
		return g.takeEntry(e) || len(ids) < quickWindow.ids
	})
	if err != nil {
		return err
	}
	f.seen.addNewer(ids)
	for _, e := range g.inOrder() {
		f.known(&e)
		if !f.yield(e, nil) {
			return errEnough
		}
	}
	return nil
}

func (f *follower) hash(id string) uint64 { return maphash.String(f.store.seed, id) }

// yieldNew yields e unless it was yielded before; it reports whether the caller
// wants more.
func (f *follower) yieldNew(e Entry) bool {
	if e.MessageID != "" {
		id := f.hash(e.MessageID)
		if f.seen.has(id) {
			return true
		}
		f.seen.add(id)
	}
	if f.known(&e) {
		return true
	}
	f.enough = !f.yield(e, nil)
	return !f.enough
}

// step reads new lines, and reports whether it moved on to another file.
func (f *follower) step() (moved bool, err error) {
	if f.file == nil {
		if err := f.openNext(f.name); err != nil || f.file == nil {
			return false, err
		}
	}
	// Check the name before reading: once it is another file's, no sidecar
	// writes to this one any more, and reading to its end gets all its lines.
	named, err := f.store.dir.Stat(f.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	current := err == nil && os.SameFile(named, f.info)
	if err := f.readOn(); err != nil {
		return false, err
	}
	if current {
		return false, nil
	}
	return f.advance()
}

func (f *follower) readOn() error {
	for {
		info, err := f.file.Stat()
		if err != nil {
			return err
		}
		_, err = f.place.Read(f.file, info.Size(), f.take)
		switch {
		case f.enough:
			return errEnough
		case errors.Is(err, jsonl.ErrReplaced) && f.place.Offset() > 0:
			f.place.Reset() // its earlier lines were yielded
		case errors.Is(err, jsonl.ErrReplaced):
			return nil // cut while it was read: the next step checks its size
		default:
			return err
		}
	}
}

func (f *follower) take(line jsonl.Line) bool {
	e, found, whole := parse(line.Text)
	if line.Text == nil || !whole && !blank(line.Text) {
		f.store.skipped.Add(1)
	}
	return !found || f.yieldNew(e)
}

// lookAgain is how often a step searches the files again while they are being
// renamed; after that the next step continues.
const lookAgain = 10

// after names the file that was begun after the open one. Other rotators rename
// all files one by one, so a file that is not found is looked for again.
func (f *follower) after() (string, error) {
	for range lookAgain {
		numbers, err := f.store.segments(f.name)
		if err != nil {
			return "", err
		}
		next := f.name
		for _, number := range numbers {
			segment := segmentName(f.name, number)
			if f.store.is(segment, f.info) {
				return next, nil
			}
			next = segment
		}
	}
	return f.name, nil // it was removed
}

// advance replaces the open file with the next one. Without a next file it
// keeps the open one.
func (f *follower) advance() (moved bool, err error) {
	old, was, place := f.file, f.info, f.place
	for range lookAgain {
		next, err := f.after()
		if err != nil {
			return false, err
		}
		if err := f.openNext(next); err != nil || f.file == old {
			return false, err
		}
		// Check that it still is the next one: the files may have been rotated
		// meanwhile.
		opened, info := f.file, f.info
		f.file, f.info, f.place = old, was, place
		if next, err = f.after(); err != nil {
			return false, errors.Join(err, opened.Close())
		}
		if f.store.is(next, info) {
			f.file, f.info, f.place = opened, info, jsonl.NewTail(MaxLine)
			return true, old.Close()
		}
		if err := opened.Close(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// openNext opens file at its beginning; if it is missing, nothing changes.
func (f *follower) openNext(file string) error {
	opened, _, err := f.store.openToRead(file)
	if err != nil || opened == nil {
		return err
	}
	info, err := opened.Stat()
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	f.file, f.info, f.place = opened, info, jsonl.NewTail(MaxLine)
	return nil
}
