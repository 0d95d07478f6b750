package filerelay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// place is a place in the first file after the segment After.
type place struct {
	After  uint64    `json:"after"`
	Offset int64     `json:"offset"`
	Sum    jsonl.Sum `json:"sum,omitzero"` // of the bytes before Offset
	// History is in a stored position before it: where the queue ended at the agent's first start.
	History *place `json:"history,omitempty"`
}

// reader reads the queue. Its fields belong to the goroutine that reads, except for what save uses.
type reader struct {
	q       *Queue
	dir     safefile.Folder
	wake    safefile.Notices
	name    string // of the file of the stored position
	handle  relay.Handler
	saver   *wait.Saver
	window  *relay.Window[place]  // nil before start
	history atomic.Pointer[place] // where history ends; nil: nothing is history

	begin place   // where to begin in the first file
	cur   *source // nil before start
	left  *source // the file before cur, which a program that takes no lock may still write to; may be nil
}

// source is a file of the queue.
type source struct {
	file  *os.File // nil: no file was found yet
	info  fs.FileInfo
	after uint64 // the file is the first one after this segment
	tail  jsonl.Tail
}

func openSource(root *os.Root, name string) (*source, error) {
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &source{file: f, info: info, tail: jsonl.NewTail(relay.MaxLine)}, nil
}

func (s *source) place() place {
	return place{After: s.after, Offset: s.tail.Offset(), Sum: s.tail.Sum()}
}

func (s *source) close() {
	if s != nil && s.file != nil {
		_ = s.file.Close() // only read
	}
}

// Subscribe implements [relay.Subscriber]. It fails only if it is running already.
func (q *Queue) Subscribe(ctx context.Context, h relay.Handler) error {
	if !q.subscribed.CompareAndSwap(false, true) {
		return errors.New("subscribe: the queue is being read already")
	}
	defer q.subscribed.Store(false)
	r := &reader{q: q, handle: h, name: safefile.Name(q.opt.Agent) + "." + q.opt.Queue + ".json"}
	r.run(ctx)
	r.show(func(v *view) { *v = view{} })
	return nil
}

// show changes the view.
func (r *reader) show(change func(*view)) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	change(&r.q.view)
}

// run reads until ctx is done, or the queue is closed.
func (r *reader) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.q.closed, cancel)()
	opt := &r.q.opt
	r.dir.Path = opt.Dir
	defer r.dir.Close()
	r.wake = safefile.Notices{Dir: opt.Dir, Recheck: opt.Recheck, Off: opt.NoNotify, Prefix: opt.Queue + ".", Log: r.q.log}
	defer r.wake.Close()
	r.saver = wait.NewSaver(200*time.Millisecond, opt.Recheck)
	var saving sync.WaitGroup
	saving.Go(func() { r.saver.Run(ctx, r.save) })
	for why := (safefile.Notice{}); ctx.Err() == nil && r.q.closed.Err() == nil; {
		ended, err := r.step(ctx, why.Name != "")
		if ended && why.Ticked && r.left != nil && r.read(ctx, r.left) != nil {
			r.left.close() // it was cut or cannot be read: nothing more comes from it
			r.left = nil
		}
		if ctx.Err() == nil {
			r.report(err)
		}
		why.Name = ""
		if ended || err != nil {
			why = r.wait(ctx)
		}
	}
	saving.Wait()
	_ = r.save() // logs its error
	r.left.close()
	r.cur.close()
}

// wait returns when the queue should be read again, and why.
func (r *reader) wait(ctx context.Context) safefile.Notice {
	for {
		why, err := r.wake.Next(ctx)
		if why.Ticked {
			r.wake.Arm()
		}
		if err != nil || why.Ticked || why.Lost || why.Name != "" {
			return why
		}
	}
}

// report logs when the result of a step changes, and shows it in Status.
func (r *reader) report(err error) {
	failed := r.q.view.readErr != nil // only this goroutine writes it
	if err != nil && !failed {
		r.q.log.Warn("the queue cannot be read; trying again", "err", err)
	}
	if err == nil && failed {
		r.q.log.Info("the queue can be read again")
	}
	r.show(func(v *view) { v.ready, v.readErr = err == nil, err })
}

// step reads the current file to its end, and moves to the next one if the current one is no
// longer the queue file. ended reports that the queue has no more; if a change was noticed and
// there were new lines, step relies on the notice of what comes then.
func (r *reader) step(ctx context.Context, noticed bool) (ended bool, err error) {
	if r.cur == nil {
		if err := r.start(); err != nil {
			return false, err
		}
	}
	if r.cur.file != nil {
		from := r.cur.tail.Offset()
		err := r.read(ctx, r.cur)
		if errors.Is(err, jsonl.ErrReplaced) {
			r.q.count(&r.q.stats.Truncated)
			r.q.log.Warn("the queue file was truncated or written again; it is read from its beginning", "offset", from)
			r.history.Store(nil)
			r.cur.tail.Reset()
			return false, r.take(ctx, nil, r.cur.place(), r.cur.place())
		}
		if err != nil || noticed && r.cur.tail.Offset() > from {
			return err == nil, err
		}
		if info, err := r.dir.Stat(r.q.name); err == nil && os.SameFile(info, r.cur.info) {
			return true, nil
		}
		// No sidecar begins to write to it from now on. It may have since it was read.
		if err := r.read(ctx, r.cur); err != nil {
			return false, err
		}
	}
	next, err := r.next()
	if next == nil || err != nil {
		return err == nil, err
	}
	if r.cur.file != nil {
		if r.cur.after == next.after { // another program replaced the file, in which history may have ended
			r.history.Store(nil)
		}
		r.left.close()
		r.left = r.cur
	} else if tail, err := jsonl.At(next.file, relay.MaxLine, r.begin.Offset); err == nil && tail.Sum() == r.begin.Sum {
		next.tail = tail
	} else if r.begin.Offset > 0 {
		r.q.log.Warn("the stored position does not fit the queue file, which is read from its beginning")
		r.history.Store(nil)
	}
	r.cur = next
	return false, r.take(ctx, nil, next.place(), next.place())
}

// start finds the place at which to begin or continue.
func (r *reader) start() error {
	root, err := r.dir.Open(true)
	if err != nil {
		return err
	}
	r.wake.Arm() // the folder exists and nothing is read yet, so no change is missed
	if fsName := safefile.NetworkFS(r.q.opt.Dir); fsName != "" {
		r.q.log.Warn("the queue is on a network file system with unreliable locks; use Redis there", "fs", fsName)
	}
	numbers, err := segments(root, r.q.opt.Queue)
	if err != nil {
		return err
	}
	r.begin, err = r.q.stored(root, r.name)
	if errors.Is(err, fs.ErrNotExist) { // the first start: what is there now is history
		r.begin.History, err = &place{After: numbers[len(numbers)-1]}, nil
		if info, err := root.Stat(r.q.name); err == nil { // else there is no file yet
			r.begin.History.Offset = info.Size()
		}
	}
	if err != nil {
		return err
	}
	r.history.Store(r.begin.History)
	r.begin.History = nil
	r.window = relay.NewWindow(r.begin)
	r.show(func(v *view) { v.at, v.window = r.begin, r.window })
	_ = r.save() // keeps the end of history over a crash; a later save retries
	r.cur = &source{after: r.begin.After}
	return nil
}

// next opens the file after the current one; it returns nil if there is none yet.
func (r *reader) next() (*source, error) {
	root, err := r.dir.Open(false)
	if err != nil {
		return nil, err
	}
	// This is opened before the segments are listed: if it is rotated in between, it is listed.
	next, err := openSource(root, r.q.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	after := r.cur.after
	numbers, err := segments(root, r.q.opt.Queue)
	first, _ := slices.BinarySearch(numbers, after+1)
	for _, number := range numbers[first:] {
		s, failed := openSource(root, segmentName(r.q.opt.Queue, number))
		if errors.Is(failed, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if failed != nil || !os.SameFile(s.info, r.cur.info) {
			next.close()
			next, err = s, failed
			break
		}
		s.close() // the current file was rotated
		after = number
	}
	if err != nil || next == nil || os.SameFile(next.info, r.cur.info) {
		next.close()
		return nil, err
	}
	next.after = after
	return next, nil
}

// read hands over the new lines of s.
func (r *reader) read(ctx context.Context, s *source) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	var failed error
	_, err = s.tail.Read(s.file, info.Size(), func(l jsonl.Line) bool {
		text := r.usable(l)
		from, to := place{After: s.after, Offset: l.Start}, place{After: s.after, Offset: l.End, Sum: l.Sum()}
		if s == r.left { // a position cannot express a late line
			from, to = r.cur.place(), r.cur.place()
			r.q.count(&r.q.stats.Late)
		}
		failed = r.take(ctx, text, from, to)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// usable returns the line to hand over, or nil if it is to be skipped.
func (r *reader) usable(l jsonl.Line) []byte {
	switch {
	case l.Text == nil:
		r.q.count(&r.q.stats.Skipped)
		r.q.log.Warn("skipped a line that is too long", "offset", l.Start, "limit", relay.MaxLine)
		return nil
	case blank(l.Text):
		return nil
	case !bytes.Contains(l.Text[1:], []byte(`{"relay_msg_id":`)): // as usual; Salvage takes longer
		return l.Text
	}
	if whole, ok := relay.Salvage(l.Text); ok && !json.Valid(l.Text) {
		r.q.count(&r.q.stats.Salvaged)
		r.q.log.Warn("a message was found after a torn one", "offset", l.Start)
		return whole
	}
	return l.Text
}

// blank reports whether a line is only white space.
func blank(text []byte) bool { return len(bytes.Trim(text, " \t\r\v\f")) == 0 }

// take hands over a line once the window has room for it, with the places before and after it.
// Without a text only the place changes.
func (r *reader) take(ctx context.Context, text []byte, from, to place) error {
	if text == nil {
		r.window.Skip(to)
		r.saver.Note()
	} else {
		settle, err := r.window.Begin(ctx, to, len(text))
		if err != nil {
			return err
		}
		r.handle(ctx, relay.Delivery{Line: bytes.Clone(text), History: from.before(r.history.Load()), Settle: func() {
			settle()
			r.saver.Note()
		}})
	}
	r.show(func(v *view) { v.at = to })
	return ctx.Err()
}

func (p place) before(end *place) bool {
	return end != nil && (p.After < end.After || p.After == end.After && p.Offset < end.Offset)
}

// stored reads the named position. Of an invalid one it returns the beginning of the queue.
func (q *Queue) stored(root *os.Root, name string) (p place, err error) {
	data, err := safefile.ReadFile(root, path.Join(offsetsDir, name))
	if err == nil && (json.Unmarshal(data, &p) != nil || p.Offset < 0) {
		q.log.Warn("a stored position is invalid; its reader begins at the oldest line", "file", name)
		p = place{}
	}
	return p, err
}

// save stores the position, and shows a failure in Status. It does not sync: after a power cut
// an older position only means that more lines are read again.
func (r *reader) save() error {
	r.saver.Saved()
	if r.window == nil {
		return nil
	}
	p := r.window.Position()
	if end := r.history.Load(); p.before(end) {
		p.History = end
	}
	data, _ := json.Marshal(p) // cannot fail
	root, err := r.dir.Open(false)
	var offsets *os.Root
	if err == nil {
		offsets, err = safefile.OpenSub(root, offsetsDir)
	}
	if err == nil {
		err = errors.Join(safefile.ReplaceFast(offsets, r.name, append(data, '\n')), offsets.Close())
	}
	r.show(func(v *view) {
		if err != nil && v.saveErr == nil {
			r.q.log.Warn("the position cannot be stored; after a restart lines are read again", "err", err)
		}
		v.saveErr = err
	})
	return err
}
