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

// recheck is how often a follower looks without having been told to: hints get
// lost, and some file systems give none.
const recheck = time.Second

// Follow returns the last n messages of a chat and then each one that is
// appended, as tail -f does, until ctx is done, which ends it without an error, or
// the store is closed ([ErrClosed]). A chat that has no transcript yet is
// waited for. Rotated, cut and replaced files are followed, and no message
// comes twice within [MaxIDs]. An error is the last thing it yields.
//
// The caller may take its time with an entry: nothing is buffered for it but
// the file.
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

// errEnough says that the reader broke off.
var errEnough = errors.New("enough")

type follower struct {
	store  *Store
	name   string
	yield  func(Entry, error) bool
	file   *os.File // nil: there is none yet
	info   os.FileInfo
	place  jsonl.Tail
	seen   idSet
	last   []trace // of the entries yielded last; a ring once it is full
	next   int     // the place in the full ring of the oldest one
	enough bool
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // only read from
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

// begin yields the last n messages and stands behind the newest one.
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
	// More ids are read than are shown, so that what is only moved about in the
	// file afterwards is not taken for new.
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

// give yields e unless it was yielded before.
func (f *follower) give(e Entry) bool {
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

// step reads what is new, and reports whether it went on to another file.
func (f *follower) step() (moved bool, err error) {
	if f.file == nil {
		if err := f.openNext(f.name); err != nil || f.file == nil {
			return false, err
		}
	}
	// The name is looked at first: once it is another file's, nobody writes to
	// this one any more, and what is read now is all there will be.
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
			f.place.Reset() // what it held before is known
		case errors.Is(err, jsonl.ErrReplaced):
			return nil // cut while it was read: the next step sees its size
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
	return !found || f.give(e)
}

// lookAgain is how often the files are looked through again while they are being
// renamed; beyond it the next step goes on.
const lookAgain = 10

// after names the file that was begun after the open one. A rotation renames
// all of them one by one, so one that is not found is looked for again.
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

// advance opens the next file in place of the open one, which is kept while
// there is none.
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
		// It is the next one if it still is: a rotation may have come between.
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

// openNext opens file at its beginning; if there is none all stays as it is.
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
