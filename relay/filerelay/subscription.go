package filerelay

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// noPlace is the start of a line that was written to a file after the reader
// had left it.
const noPlace = -1

// subscription is what Subscribe adds to reading: the stored position, the window of
// unsettled lines, and the border of history. Its methods belong to the goroutine
// that reads, except for save.
type subscription struct {
	q      *Queue
	dir    *safefile.Folder
	handle relay.Handler
	saver  *wait.Saver
	window *relay.Window[place]   // nil before start
	border atomic.Pointer[border] // nil: nothing is history
}

func newSubscription(q *Queue, dir *safefile.Folder, h relay.Handler) *subscription {
	return &subscription{q: q, dir: dir, handle: h, saver: wait.NewSaver(saveEvery, saveAfter, q.opt.Recheck)}
}

// load returns the stored position.
func (s *subscription) load(root *os.Root) (checkpoint, error) {
	c, err := loadCheckpoint(root, s.checkpointName())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b, err := endOf(root, s.q.opt.Queue)
		if err != nil {
			return c, err
		}
		s.border.Store(b)
	case errors.Is(err, errBroken):
		s.q.log.Warn("the stored position is invalid; the queue is read from its beginning", "err", err)
		c = checkpoint{}
	case err != nil:
		return c, err
	default:
		s.border.Store(c.History)
	}
	return c, nil
}

// start sets the position to at.
func (s *subscription) start(at place) {
	s.window = relay.NewWindow(at)
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.window = s.window
}

// pass moves the position to at, without lines to hand over before it.
func (s *subscription) pass(at place) {
	s.window.Skip(at)
	s.saver.Note()
}

// cut records that a file was cut: its lines are no longer history.
func (s *subscription) cut(id fileID) {
	if b := s.border.Load(); b != nil && b.File == id {
		s.border.Store(nil)
	}
}

// deliver passes a line to the handler once the window has room for it.
func (s *subscription) deliver(ctx context.Context, text []byte, at place, start int64) error {
	settle, err := s.window.Begin(ctx, at, len(text))
	if err != nil {
		return err
	}
	history := start != noPlace && s.border.Load().covers(at.src, start)
	s.handle(ctx, relay.Delivery{Line: bytes.Clone(text), History: history, Settle: func() {
		settle()
		s.saver.Note()
	}})
	return ctx.Err()
}

// save stores the position and shows a failure in Status.
func (s *subscription) save() error {
	s.saver.Saved()
	at, _ := s.window.Position()
	c := checkpoint{File: at.src.id, Offset: at.offset, Sum: at.sum, After: at.src.after}
	if b := s.border.Load(); b.covers(at.src, at.offset) {
		c.History = b
	}
	root, err := s.dir.Open(false)
	if err == nil {
		err = storeCheckpoint(root, s.checkpointName(), c)
		if errors.Is(err, fs.ErrNotExist) {
			if err = makeOffsets(root); err == nil {
				err = storeCheckpoint(root, s.checkpointName(), c)
			}
		}
	}
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if err != nil && s.q.view.saveErr == nil {
		s.q.log.Warn("the position cannot be stored; after a restart lines are read again", "err", err)
	}
	s.q.view.saveErr = err
	return err
}

func (s *subscription) checkpointName() string { return checkpointName(s.q.opt.Queue, s.q.opt.Agent) }

// end stores the last position.
func (s *subscription) end() {
	if s.window != nil {
		_ = s.save() // logged by save; the lines are read again
	}
}

const (
	// A position is stored after saveEvery settled lines, or if fewer,
	// saveAfter after the first.
	saveEvery = 1000
	saveAfter = 200 * time.Millisecond
)

// endOf is the place at which the queue ends now.
func endOf(root *os.Root, queue string) (*border, error) {
	numbers, err := segments(root, queue)
	if err != nil {
		return nil, err
	}
	b := &border{}
	if len(numbers) > 0 {
		b.After = numbers[len(numbers)-1]
	}
	src, err := openSource(root, liveName(queue), 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	defer src.close()
	b.File = src.id
	b.Offset, err = src.size()
	return b, err
}
