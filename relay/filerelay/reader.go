package filerelay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const (
	// maxLeft is how many left files are checked for late lines; those of older
	// files are lost.
	maxLeft = 2
	// maxGlued is how many records in one line are separated; a line with more
	// is handed over unchanged.
	maxGlued = 16
)

// reader reads the queue, for Subscribe from the stored position, for Follow from the
// oldest line. Its fields belong to one goroutine.
type reader struct {
	q    *Queue
	dir  safefile.Folder
	wake safefile.Notices

	sub      *subscription     // of Subscribe; nil: Follow runs and uses the next two
	take     func(line []byte) // gets each line
	caughtUp func(whole bool)  // nil after it was called
	whole    bool              // the queue had no rotated files when reading began

	src    *source     // nil before begin
	tail   *jsonl.Tail // nil while src has no file
	final  bool        // src is left once read to its end: no sidecar writes to it
	ended  bool        // the last step reached the end of the queue
	left   []leftFile
	failed bool // the failure was logged
	hinted bool // a change was reported and the notice is still armed
}

// leftFile is a file that was left. A program that takes no lock may still write to it.
type leftFile struct {
	src  *source
	tail *jsonl.Tail
	said bool
}

// Subscribe implements [relay.Subscriber]. It fails only after Close or if it
// is running already.
func (q *Queue) Subscribe(ctx context.Context, h relay.Handler) error {
	if q.closed.Err() != nil {
		return fmt.Errorf("subscribe: %w", errClosed)
	}
	if !q.subscribed.CompareAndSwap(false, true) {
		return errors.New("subscribe: the queue is being read already")
	}
	defer q.subscribed.Store(false)
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	r := q.newReader()
	r.sub = newSubscription(q, &r.dir, h)
	var saving sync.WaitGroup
	saving.Go(func() { r.sub.saver.Run(ctx, r.sub.save) })
	r.run(ctx)
	saving.Wait()
	r.sub.end()
	r.close()
	return nil
}

// Follow implements [relay.Follower]. It fails only after Close.
func (q *Queue) Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error {
	if q.closed.Err() != nil {
		return fmt.Errorf("follow: %w", errClosed)
	}
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	r := q.newReader()
	r.take, r.caughtUp = take, caughtUp
	r.run(ctx)
	r.close()
	return nil
}

// untilClosed returns a context that ends with ctx and with Close.
func (q *Queue) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (q *Queue) newReader() *reader {
	return &reader{q: q, dir: safefile.Folder{Path: q.opt.Dir},
		wake: safefile.Notices{Dir: q.opt.Dir, Recheck: q.opt.Recheck, Off: q.opt.NoNotify, Prefix: q.opt.Queue + ".",
			Log: q.log}}
}

// run reads until ctx is done.
func (r *reader) run(ctx context.Context) {
	ticked := false
	for ctx.Err() == nil {
		more, err := r.step(ctx)
		if err == nil && !more && r.caughtUp != nil && r.ended {
			r.caughtUp(r.whole)
			r.caughtUp = nil
		}
		if err == nil && !more && ticked {
			err = r.late(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.report(err)
		if more && err == nil {
			continue
		}
		if ticked, err = r.wait(ctx); err != nil {
			return
		}
	}
}

// wait returns when the queue should be read again; ticked reports that Recheck
// passed. It fails only when ctx is done.
func (r *reader) wait(ctx context.Context) (ticked bool, err error) {
	for {
		why, err := r.wake.Next(ctx)
		r.hinted = why.Name != ""
		switch {
		case err != nil:
			return false, err
		case why.Ticked:
			r.wake.Arm()
			return true, nil
		case why.Lost, r.hinted && !why.Chmod:
			return false, nil
		}
	}
}

// step hands over a chunk or moves to the next file. more reports that there
// may be more to do now.
func (r *reader) step(ctx context.Context) (more bool, err error) {
	r.ended = false
	if r.src == nil {
		if err := r.begin(); err != nil {
			return false, err
		}
	}
	if r.tail != nil {
		n, whole, err := r.read(r.src, r.tail, func(l jsonl.Line) error { return r.line(ctx, l) })
		if errors.Is(err, jsonl.ErrReplaced) {
			r.replaced()
			return true, nil
		}
		if err != nil || n > 0 {
			r.show()
			return !whole || !r.hinted || r.caughtUp != nil, err
		}
	}
	return r.advance(ctx)
}

// readAtOnce is how many bytes of a file are handed over in one step.
const readAtOnce = 256 << 10

// read hands over new lines of a file, at most about readAtOnce bytes; whole reports
// that it reached the end. An error of take ends it and is returned.
func (r *reader) read(src *source, tail *jsonl.Tail, take func(jsonl.Line) error) (n int64, whole bool, err error) {
	size, err := src.size()
	if err != nil {
		return 0, false, err
	}
	from := tail.Offset()
	var wrong error
	n, err = tail.Read(src.file, size, func(l jsonl.Line) bool {
		wrong = take(l)
		return wrong == nil && l.End-from < readAtOnce
	})
	return n, tail.Offset() == size, cmp.Or(wrong, err)
}

// begin finds the place at which to begin or continue.
func (r *reader) begin() error {
	root, err := r.dir.Open(true)
	if err != nil {
		return err
	}
	r.wake.Arm() // the folder exists and nothing is read yet, so no change is missed
	queue := r.q.opt.Queue
	var c checkpoint // of the oldest line
	if r.sub != nil {
		c, err = r.sub.load(root)
	} else {
		var rotated []uint64
		rotated, err = segments(root, queue)
		r.whole = len(rotated) == 0 // else older segments may have been removed
	}
	if err != nil {
		return err
	}
	if fsName := safefile.NetworkFS(r.q.opt.Dir); fsName != "" {
		r.q.log.Warn("the queue is on a network file system with unreliable locks; use Redis there",
			"fs", fsName)
	}
	src, err := locate(root, queue, c)
	if err != nil {
		return err
	}
	if src == nil {
		if c.Offset > 0 {
			r.q.log.Warn("the stored position's file is gone; reading continues with the next file", "offset", c.Offset)
		}
		src, c.Offset, c.Sum = &source{after: c.After}, 0, noSum
	}
	if r.sub != nil {
		r.sub.start(place{src, c.Offset, c.Sum})
	}
	r.enter(src, c.Offset, c.Sum)
	if r.sub != nil {
		_ = r.sub.save() // keeps the border of the first start over a crash; a later save retries
	}
	return nil
}

// enter makes src the file that is read, from a place in it.
func (r *reader) enter(src *source, offset int64, want jsonl.Sum) {
	r.src, r.tail, r.final = src, nil, false
	if src.file != nil {
		t, found := src.at(offset, want)
		if !found { // it changed since it was found: verify its beginning
			t.Reset()
		}
		r.tail = &t
		offset, want = t.Offset(), t.Sum()
	}
	r.pass(place{src, offset, want})
	r.show()
}

// pass moves on to a place without lines to hand over before it.
func (r *reader) pass(at place) {
	if r.sub != nil {
		r.sub.pass(at)
	}
}

// advance moves on to the next file when the current one has ended.
func (r *reader) advance(ctx context.Context) (more bool, err error) {
	root, err := r.dir.Open(false)
	if err != nil {
		return false, err
	}
	cur := r.src
	if cur.file != nil {
		if cur.number == 0 && safefile.Same(root, liveName(r.q.opt.Queue), cur.file) {
			r.final, r.ended = false, true
			return false, nil
		}
		if !r.final && cur.number != 0 {
			r.final = true // the writer that rotates a file has written to it before
			return true, nil
		}
		if !r.final {
			// A sidecar that opened the file before it was replaced may still
			// write to it; later ones open the new file.
			ok, err := safefile.TryLock(cur.file)
			if err == nil && !ok {
				next, err := successor(root, r.q.opt.Queue, cur)
				if r.ended = err == nil && next == nil; next != nil {
					next.close()
				}
				return false, err
			}
			if ok {
				err = safefile.Unlock(cur.file)
			}
			if err != nil {
				r.q.log.Debug("no lock on a rotated file", "err", err)
			}
			r.final = true
			return true, nil // reads what it wrote
		}
	}
	next, err := successor(root, r.q.opt.Queue, cur)
	if err != nil || next == nil {
		r.ended = err == nil
		return false, err
	}
	if err := r.leave(ctx); err != nil {
		next.close()
		return false, err
	}
	r.enter(next, 0, noSum)
	return true, nil
}

// replaced reads the current file from its beginning after it was cut or written again: readers drop repeats by id.
func (r *reader) replaced() {
	r.q.stats.truncated.Add(1)
	r.q.log.Warn("the queue file was truncated or written again; it is read from its beginning",
		"offset", r.tail.Offset())
	if r.sub != nil {
		r.sub.cut(r.src.id)
	}
	r.enter(r.src, 0, noSum)
}

// line handles one line of the current file.
func (r *reader) line(ctx context.Context, l jsonl.Line) error {
	at := place{r.src, l.End, l.Sum()}
	text := r.usable(l)
	if text == nil {
		r.pass(at)
		return nil
	}
	return r.handOver(ctx, text, at, l.Start)
}

// handOver hands over a line that begins at start of the current file; start is negative if
// the line is not in it.
func (r *reader) handOver(ctx context.Context, text []byte, at place, start int64) error {
	if r.sub != nil {
		return r.sub.deliver(ctx, text, at, start)
	}
	r.take(text)
	return ctx.Err()
}

// usable returns the line to hand over, or nil if it is to be skipped.
func (r *reader) usable(l jsonl.Line) []byte {
	if l.Text == nil {
		r.q.stats.skipped.Add(1)
		r.q.log.Warn("skipped a line that is too long", "offset", l.Start, "limit", relay.MaxLine)
		return nil
	}
	if blank(l.Text) {
		return nil
	}
	if n := bytes.Count(l.Text, recordStart); n == 0 || n > maxGlued || n == 1 && bytes.HasPrefix(l.Text, recordStart) {
		return l.Text
	}
	if whole, ok := relay.Salvage(l.Text); ok && !json.Valid(l.Text) {
		r.q.stats.salvaged.Add(1)
		r.q.log.Warn("a message was found after a torn one", "offset", l.Start)
		return whole
	}
	return l.Text
}

// blank reports whether a line is only white space.
func blank(text []byte) bool { return len(bytes.Trim(text, " \t\r\v\f")) == 0 }

// recordStart begins each record that [relay.Salvage] can find.
var recordStart = []byte(`{"relay_msg_id":`)

// show updates the reader's position in Status.
func (r *reader) show() {
	if r.sub == nil {
		return
	}
	at := r.position()
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view.source, r.q.view.offset = at.src, at.offset
}

// report shows the result of the last step in Status, and logs when it changes.
func (r *reader) report(err error) {
	if err != nil && !r.failed {
		r.q.log.Warn("the queue cannot be read; trying again", "err", err)
	}
	if err == nil && r.failed {
		r.q.log.Info("the queue can be read again")
	}
	r.failed = err != nil
	if r.sub == nil {
		return
	}
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view.connected, r.q.view.reading, r.q.view.readErr = err == nil, err == nil, err
}

func (r *reader) close() {
	r.wake.Close()
	for _, l := range r.left {
		l.src.close()
	}
	if r.src != nil {
		r.src.close()
	}
	_ = r.dir.Close() // opened for reading only
	if r.sub == nil {
		return
	}
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view = readerView{}
}
