package filerelay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"feishu-relay/internal/wait"
)

const (
	// A position is stored when saveEvery lines were settled, or saveAfter
	// after the first of fewer.
	saveEvery = 1000
	saveAfter = 200 * time.Millisecond
)

// saver says when the position is to be stored. note may be called from any
// goroutine and does not block.
type saver struct {
	unsaved atomic.Int64
	some    chan struct{} // unsaved has left 0
	many    chan struct{} // unsaved has reached saveEvery
}

func (s *saver) init() {
	s.some, s.many = make(chan struct{}, 1), make(chan struct{}, 1)
}

// note counts one step of the position.
func (s *saver) note() {
	switch s.unsaved.Add(1) {
	case 1:
		wait.Wake(s.some)
	case saveEvery:
		wait.Wake(s.many)
	}
}

// keepSaving stores the position until ctx is done. A fault is waited out.
func (r *reader) keepSaving(ctx context.Context) {
	for {
		select {
		case <-r.saver.some:
		case <-ctx.Done():
			return
		}
		for wait, err := saveAfter, errors.New("not yet"); err != nil; wait = r.q.opt.Recheck {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-r.saver.many:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err = r.save()
		}
	}
}

// save stores the position and shows what is wrong with that.
func (r *reader) save() error {
	r.saver.unsaved.Store(0)
	at, _ := r.window.Position()
	c := checkpoint{File: at.src.id, Offset: at.offset, Sum: at.sum, After: at.src.after}
	if b := r.border.Load(); b.covers(at.src, at.offset) {
		c.History = b
	}
	root, err := r.dir.Open(false)
	if err == nil {
		err = storeCheckpoint(root, r.checkpointName(), c)
		if errors.Is(err, fs.ErrNotExist) {
			if err = makeOffsets(root); err == nil {
				err = storeCheckpoint(root, r.checkpointName(), c)
			}
		}
	}
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	if err != nil && r.q.view.saveErr == nil {
		r.q.log.Warn("the position is not stored; after a restart lines are read again", "err", err)
	}
	r.q.view.saveErr = err
	return err
}

func (r *reader) checkpointName() string { return checkpointName(r.q.opt.Queue, r.q.opt.Agent) }

// show tells Status where the reader is.
func (r *reader) show() {
	at := r.here()
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view.source, r.q.view.offset = at.src, at.offset
}

// report tells Status how the last step went, and the log once.
func (r *reader) report(err error) {
	if err != nil && !r.failed {
		r.q.log.Warn("the queue cannot be read; waiting", "err", err)
	}
	if err == nil && r.failed {
		r.q.log.Info("the queue is read again")
	}
	r.failed = err != nil
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view.connected, r.q.view.reading, r.q.view.readErr = err == nil, err == nil, err
}

// end stores the last position and closes everything.
func (r *reader) end() {
	if r.window != nil {
		_ = r.save() // shown and logged; the lines are read again
	}
	r.wake.Close()
	for _, l := range r.left {
		l.src.close()
	}
	if r.src != nil {
		r.src.close()
	}
	_ = r.dir.Close() // nothing is left to save
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.view = view{}
}

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
