// Package filerelay is the relay as a JSONL file that all sidecars of one host
// share, with one message a line: the sender's sidecar appends it, and all
// sidecars read it. It needs no server, and any program that can append a line
// or follow a file can take part.
//
// # Files
//
//	$RELAY_DIR/outbound.jsonl                        the queue
//	$RELAY_DIR/outbound.01795211093522000000.jsonl   a rotated segment of it
//	$RELAY_DIR/offsets/agent_a.outbound.json         how far agent_a has read
//	$RELAY_DIR/claims/<key>                          who has claimed a key
//
// # Writing
//
// [Queue.Publish] appends its lines with one write under the lock of the queue file, after it
// checked that the file is still the queue and ends in a newline: a killed process may have
// left a torn line. Nothing is synced: a power cut can lose the last lines. A file of
// Options.RotateSize becomes a segment, still under the lock.
//
// # Reading
//
// [Queue.Subscribe] hands over whole lines only. Its position is the number of the segment
// before the file, the offset in the file, and a hash of the bytes before it. If the bytes do
// not fit, because the file was cut, replaced or restored, the file is read from its
// beginning: readers drop repeats by id and age. A file that another program renamed is read
// to its end while the reader runs; after a restart it is not looked for.
//
// Change notices of the folder (inotify) are hints. Every Options.Recheck the reader looks anyway,
// also at the file before the current one, which a program that takes no lock may hold open.
//
// # Faults
//
// A full or read-only disk, or a folder that was removed, makes Publish fail
// with the system's error and shows in [Queue.Status]. Both recover when the
// cause is gone.
package filerelay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const (
	suffix     = ".jsonl"
	offsetsDir = "offsets"
	// callTimeout bounds a Publish or a Claim whose context does not end earlier: a stopped
	// process may have the lock.
	callTimeout = 10 * time.Second
)

var (
	errClosed = errors.New("file queue is closed")
	errLocked = fmt.Errorf("a lock in the folder was held by another process for %v", callTimeout)
)

// Options configure a queue. They are copied.
type Options struct {
	Dir        string // RELAY_DIR; made when it is missing
	Queue      string // "outbound" or "inbound": the file's name without .jsonl
	Agent      string // owner of the reading position; any text
	RotateSize int64  // size in bytes at which the writer begins a new file; 0 is 64 MiB
	// Capped: only the newest lines are kept. A rotation removes all segments but the newest,
	// read or not.
	Capped   bool
	Sync     bool          // Publish returns when the disk has the lines: they survive a power cut
	Recheck  time.Duration // how often the reader looks without a notice; 0 is 1 s
	NoNotify bool          // only Recheck wakes the reader
	Logger   *slog.Logger  // nil discards
}

// Stats counts events since New.
type Stats struct {
	Skipped   uint64 // lines skipped because they are too long
	Salvaged  uint64 // messages found after a torn one in the same line
	Truncated uint64 // times the file was cut or refilled while it was read
	Late      uint64 // lines written to a file after it had been rotated away
	Rotated   uint64 // files this writer rotated
	Removed   uint64 // segments this writer removed
}

// Queue is one agent's access to a file queue. It is safe for concurrent use.
type Queue struct {
	opt    Options
	log    *slog.Logger
	name   string          // of the queue file
	closed context.Context // done after Close
	close  context.CancelFunc

	writing sync.Mutex      // held during an attempt to write; guards file
	dir     safefile.Folder // of file
	file    jsonl.Log

	pruned     atomic.Int64 // when expired claims were last removed, in Unix nanoseconds
	subscribed atomic.Bool

	mu    sync.Mutex
	stats Stats // guarded by mu
	view  view  // guarded by mu
}

var _ relay.Backend = (*Queue)(nil)

// view is the state of the reader that Status returns.
type view struct {
	ready            bool // the last reading went well
	at               place
	window           *relay.Window[place] // nil before reading
	readErr, saveErr error
}

// New returns the queue that opt names. It does no I/O; an error reports a mistake
// in opt.
func New(opt Options) (*Queue, error) {
	if opt.Dir == "" || opt.Agent == "" || opt.Queue == "" || safefile.Name(opt.Queue) != opt.Queue {
		return nil, errors.New("file queue: a folder, an agent and a queue that is a file name are required")
	}
	opt.RotateSize = cmp.Or(opt.RotateSize, 64<<20)
	opt.Recheck = cmp.Or(opt.Recheck, time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	q := &Queue{opt: opt, log: opt.Logger.With("queue", opt.Queue), name: opt.Queue + suffix}
	q.dir = safefile.Folder{Path: opt.Dir, Closed: errClosed}
	q.file = jsonl.Log{Folder: &q.dir, Name: q.name, Max: opt.RotateSize}
	q.closed, q.close = context.WithCancel(context.Background())
	return q, nil
}

// Close ends a running Subscribe, which stores its position, and every call that waits; later
// calls fail. It may be called more than once.
func (q *Queue) Close() error {
	q.close()
	q.writing.Lock()
	defer q.writing.Unlock()
	q.file.Close()
	return q.dir.Close()
}

// count adds one to a field of q.stats.
func (q *Queue) count(field *uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*field++
}

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Status lists the folder to compute the lag.
func (q *Queue) Status() relay.Status {
	q.mu.Lock()
	v := q.view
	q.mu.Unlock()
	s := relay.Status{Connected: v.ready, Reading: v.ready}
	if err := errors.Join(v.readErr, v.saveErr); err != nil {
		s.Error = err.Error()
	}
	if v.window != nil {
		s.Unsettled = v.window.Unsettled()
	}
	if v.ready {
		s.Lag = q.lag(v.at)
	}
	return s
}

// lag counts the bytes after a place: the rest of its file and the later ones.
func (q *Queue) lag(at place) (lag int64) {
	list, _ := os.ReadDir(q.opt.Dir) // the reader shows an error
	for _, entry := range list {
		number, ok := segmentNumber(q.opt.Queue, entry.Name())
		if entry.Name() != q.name && (!ok || number <= at.After) {
			continue
		}
		if info, err := entry.Info(); err == nil { // else it was removed since it was listed
			lag += info.Size()
		}
	}
	return max(lag-at.Offset, 0)
}

// Publish appends lines to the queue file. A file queue does not lose lines it
// accepted, so the receipt is empty and after is ignored.
func (q *Queue) Publish(ctx context.Context, lines [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	var data []byte
	for i, line := range lines {
		if blank(line) || len(line) >= relay.MaxLine || bytes.IndexByte(line, '\n') >= 0 {
			return "", fmt.Errorf("publish: line %d is blank, has %d bytes or more, or holds a newline", i+1, relay.MaxLine)
		}
		data = append(append(data, line...), '\n')
	}
	return "", q.retry(ctx, func() error { return q.append(data) })
}

// retry calls try until it no longer returns [jsonl.ErrLocked], within the time of a call.
func (q *Queue) retry(ctx context.Context, try func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errLocked)
	defer cancel()
	defer context.AfterFunc(q.closed, cancel)()
	return jsonl.Retry(ctx, try)
}

// append writes data to the queue file, unless the file is locked.
func (q *Queue) append(data []byte) error {
	if !q.writing.TryLock() {
		return jsonl.ErrLocked
	}
	defer q.writing.Unlock()
	err := q.file.Do(func(int64) error {
		at, err := q.file.Append(data)
		if err == nil && q.opt.Sync {
			err = q.file.File().Sync()
		}
		if size := at + int64(len(data)); err == nil && q.file.Full(size) {
			if err := q.rotate(size); err != nil {
				q.file.Later(size)
				q.log.Error("the queue file cannot be rotated", "err", err)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, jsonl.ErrLocked) {
		q.file.Close() // the next call opens it again
	}
	return err
}
