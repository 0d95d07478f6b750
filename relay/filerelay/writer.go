package filerelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const (
	// publishTimeout bounds a Publish whose context has no earlier end: the
	// lock may be held by a stopped process.
	publishTimeout = 10 * time.Second
	// maxWrite is the size beyond which a batch is divided into several writes.
	maxWrite = 4 << 20
	// maxReopen bounds how often in one call the file may be replaced under us;
	// then the call fails.
	maxReopen = 20
	// Waiting for the lock begins with lockWait and doubles up to maxLockWait.
	lockWait    = 50 * time.Microsecond
	maxLockWait = 10 * time.Millisecond
)

// errClosed is what Publish and Subscribe return after Close.
var errClosed = errors.New("file queue is closed")

// writer is the descriptor that Publish appends to, held over calls.
type writer struct {
	dir  safefile.Folder
	file *os.File // nil while none is open
	// rotateAt is the size at which a rotation that had to wait is tried again.
	rotateAt int64
	buf      []byte
}

// Publish appends lines to the queue file. A file queue does not forget what it
// accepted, so the receipt is empty and after is not looked at.
func (q *Queue) Publish(ctx context.Context, lines [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	if err := checkLines(lines); err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, publishTimeout,
		fmt.Errorf("the queue file was locked by another process for %v", publishTimeout))
	defer cancel()
	defer context.AfterFunc(q.closed, cancel)()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
	}
	if q.closed.Err() != nil {
		return "", fmt.Errorf("publish: %w", errClosed)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("publish: %w", context.Cause(ctx))
	}
	for len(lines) > 0 {
		data, n := q.writer.encode(lines)
		if err := q.append(ctx, data); err != nil {
			return "", fmt.Errorf("publish: %w", err)
		}
		lines = lines[n:]
	}
	return "", nil
}

func checkLines(lines [][]byte) error {
	for i, line := range lines {
		switch {
		case blank(line):
			return fmt.Errorf("line %d is blank", i+1)
		case len(line) >= relay.MaxLine:
			return fmt.Errorf("line %d has %d bytes, at most %d", i+1, len(line), relay.MaxLine-1)
		case bytes.IndexByte(line, '\n') >= 0:
			return fmt.Errorf("line %d holds a newline", i+1)
		}
	}
	return nil
}

// encode makes one slice of the first n lines, as many as fit in maxWrite.
func (w *writer) encode(lines [][]byte) (data []byte, n int) {
	data = w.buf[:0]
	for n < len(lines) && (n == 0 || len(data)+len(lines[n]) < maxWrite) {
		data = append(append(data, lines[n]...), '\n')
		n++
	}
	if cap(data) <= relay.MaxLine {
		w.buf = data
	}
	return data, n
}

// append writes data to the file that is the queue while its lock is held.
func (q *Queue) append(ctx context.Context, data []byte) error {
	w := &q.writer
	live := liveName(q.opt.Queue)
	for range maxReopen {
		root, err := w.dir.Open(true)
		if err != nil {
			return err
		}
		if w.file == nil {
			if w.file, err = safefile.Open(root, live, os.O_RDWR|os.O_CREATE|os.O_APPEND); err != nil {
				return fmt.Errorf("open queue file: %w", err)
			}
		}
		if err := lock(ctx, w.file); err != nil {
			return errors.Join(fmt.Errorf("lock queue file: %w", err), w.drop())
		}
		if !safefile.Same(root, live, w.file) {
			_ = w.drop() // rotated away or replaced: nothing of ours is in it
			continue
		}
		if _, err := safefile.Append(w.file, data); err != nil {
			return errors.Join(err, w.drop())
		}
		if err := q.rotate(root); err != nil {
			q.log.Error("queue file is not rotated", "err", err)
		}
		if w.file == nil {
			return nil
		}
		if err := safefile.Unlock(w.file); err != nil {
			return w.drop() // closing frees the lock, and the lines are written
		}
		return nil
	}
	return fmt.Errorf("queue file was replaced %d times in a row", maxReopen)
}

// lock waits for the lock on f. It asks again and again instead of blocking in
// the kernel, where a context could not end the wait.
func lock(ctx context.Context, f *os.File) error {
	for wait := lockWait; ; wait = min(2*wait, maxLockWait) {
		ok, err := safefile.TryLock(f)
		if ok || err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// drop closes the descriptor, which frees its lock.
func (w *writer) drop() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

func (w *writer) close() error { return errors.Join(w.drop(), w.dir.Close()) }
