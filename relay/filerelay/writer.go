package filerelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const (
	// publishTimeout bounds a Publish whose context does not end earlier: a
	// stopped process may hold the lock.
	publishTimeout = 10 * time.Second
	// maxWrite is the size in bytes beyond which a batch is split into several
	// writes.
	maxWrite = 4 << 20
)

// errLocked is returned by a Publish that did not get the lock in time.
var errLocked = fmt.Errorf("the queue file was locked by another process for %v", publishTimeout)

// errClosed is returned by calls after Close.
var errClosed = errors.New("file queue is closed")

// writer is the file that Publish appends to, held open between calls.
type writer struct {
	dir safefile.Folder
	log jsonl.Log // in dir
	buf []byte
}

// Publish appends lines to the queue file. A file queue does not lose lines it
// accepted, so the receipt is empty and after is ignored.
func (q *Queue) Publish(ctx context.Context, lines [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	if err := checkLines(lines); err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, publishTimeout, errLocked)
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

// encode joins the first n lines, as many as fit in maxWrite.
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

// append writes data to the current queue file while holding its lock.
func (q *Queue) append(ctx context.Context, data []byte) error {
	w := &q.writer
	err := jsonl.Retry(ctx, func(waited time.Duration) error {
		return w.log.Do(waited, func(int64) error {
			at, err := w.log.Append(data)
			if err != nil {
				return err
			}
			if err := q.rotate(at + int64(len(data))); err != nil {
				q.log.Error("the queue file cannot be rotated", "err", err)
			}
			return nil
		})
	})
	if err != nil {
		w.log.Close() // which also releases the lock
		return fmt.Errorf("append to queue file: %w", err)
	}
	return nil
}

func (w *writer) close() error {
	w.log.Close()
	return w.dir.Close()
}
