// Package filerelay is the relay as a JSONL file that all sidecars of one host
// share: a message a line, appended by whoever has something to say and read
// to the end by everybody. It needs no server, and any program that can append
// a line or follow a file takes part.
//
// # Files
//
//	$RELAY_DIR/outbound.jsonl                        the queue
//	$RELAY_DIR/outbound.01795211093522000000.jsonl   a rotated segment of it
//	$RELAY_DIR/offsets/agent_a.outbound.json         how far agent_a has read
//	$RELAY_DIR/claims/<key>                          who claims a key first does what it stands for
//
// # Writing
//
// [Queue.Publish] appends a batch with one write under an exclusive lock on the
// queue file, after it has made sure that the file still is the queue and that
// it ends in a newline: a process killed in the middle of a write leaves a torn
// line, and the next append must not be glued onto it. Nothing is synced: the
// outbox above publishes again what a power cut took. When the file grew
// beyond Options.RotateSize the writer renames it to a segment, still under the
// lock, and removes segments that every known reader has passed, or that are
// older than Options.KeepFor. It waits with that while a program that keeps a byte
// offset in offsets/<name>.txt is alive, that is for 10 minutes after it wrote it:
// such a program would not hear what is in a new file.
//
// # Reading
//
// [Queue.Subscribe] hands over whole lines only, up to the last newline. Its
// position is kept as the file's identity, the offset, and a hash of the bytes
// before it, so that after a restart, a rotation, a truncation, a refill in
// place or a restored backup it is known whether the position still holds, and
// where to go on if not. When in doubt lines are read again, since readers drop
// repeats; lines are passed over only if they are longer than
// [relay.MaxLine], blank, or torn. Before a file that others renamed or
// replaced is left, its lock is taken once, so that no writer of ours is still
// inside, and it is read to its end. Since programs that take no lock may hold it open
// longer, it is looked at now and then afterwards.
//
// [Queue.Follow] reads in the same way from the oldest line that is kept, and stores
// nothing.
//
// # Waking up
//
// A change notice of the folder (inotify) is only a hint. Every
// Options.Recheck the reader looks anyway, and renews the notice when the folder was
// replaced. On a network file system, where neither locks nor notices can be
// relied on, a warning says so.
//
// # Faults
//
// A full or read-only disk, or a folder that was removed, fails Publish with the
// system's reason, shows in [Queue.Status], and is over when its cause is over.
package filerelay

import (
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

// Options configure a queue. They are copied.
type Options struct {
	Dir   string // RELAY_DIR; made when it is missing
	Queue string // "outbound" or "inbound": the file's name without .jsonl
	Agent string // whose position it is; any text
	// RotateSize is the size in bytes at which the writer begins a new file; 0
	// is 64 MiB.
	RotateSize int64
	// KeepFor is the age at which a segment is removed even if a known reader
	// still needs it, and at which a reader that stored no position counts as
	// gone; 0 is 24 h.
	KeepFor time.Duration
	// Capped: only the newest lines are kept, and the queue is read with Follow alone. A
	// rotation removes all segments but the newest.
	Capped bool
	// Recheck is how often the reader looks without a notice; 0 is 1 s.
	Recheck time.Duration
	// NoNotify leaves the change notices out: only Recheck wakes the reader.
	NoNotify bool
	Logger   *slog.Logger // nil discards
}

// Stats counts since New what an operator should know of.
type Stats struct {
	Skipped   uint64 // lines passed over: too long, or torn at the end of a left file
	Salvaged  uint64 // messages found behind a torn line
	Truncated uint64 // times the file was cut or refilled under the reader
	Late      uint64 // lines written to a file after it had been rotated away
	Rotated   uint64 // files this writer rotated
	Removed   uint64 // segments this writer removed
}

// Queue is one agent's access to a file queue. It is safe for concurrent use.
type Queue struct {
	opt   Options
	log   *slog.Logger
	stats counters

	turn   chan struct{} // held by the one Publish that writes; guards writer
	writer writer

	pruned     atomic.Int64 // when expired claims were last removed, in Unix nanoseconds
	subscribed atomic.Bool
	closed     context.Context // done after Close
	close      context.CancelFunc

	mu     sync.Mutex
	view   view // guarded by mu
	window *relay.Window[place]
}

var _ relay.Backend = (*Queue)(nil)

type counters struct {
	skipped, salvaged, truncated, late, rotated, removed atomic.Uint64
}

// view is what Status knows of the reader.
type view struct {
	connected, reading bool
	source             *source
	offset             int64
	readErr, saveErr   error
}

// New returns the queue that opt names. It does no I/O; errors are mistakes in opt.
func New(opt Options) (*Queue, error) {
	var wrong []error
	if opt.Dir == "" {
		wrong = append(wrong, errors.New("no folder"))
	}
	if opt.Queue == "" || safefile.Name(opt.Queue) != opt.Queue {
		wrong = append(wrong, fmt.Errorf("%.40q is no name for a queue", opt.Queue))
	}
	if opt.Agent == "" {
		wrong = append(wrong, errors.New("no agent name"))
	}
	if opt.RotateSize < 0 || opt.KeepFor < 0 || opt.Recheck < 0 {
		wrong = append(wrong, errors.New("a size or a time is negative"))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("file queue: %w", err)
	}
	if opt.RotateSize == 0 {
		opt.RotateSize = 64 << 20
	}
	if opt.KeepFor == 0 {
		opt.KeepFor = 24 * time.Hour
	}
	if opt.Recheck == 0 {
		opt.Recheck = time.Second
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{opt: opt, log: opt.Logger.With("queue", opt.Queue), turn: make(chan struct{}, 1)}
	q.writer.dir.Path = opt.Dir
	q.writer.log = jsonl.Log{Folder: &q.writer.dir, Name: liveName(opt.Queue), Max: opt.RotateSize}
	q.closed, q.close = context.WithCancel(context.Background())
	return q, nil
}

// Close ends a running Subscribe, which stores its position, and every Publish
// that waits; later calls of either fail. It may be called more than once.
func (q *Queue) Close() error {
	q.close()
	q.turn <- struct{}{} // bounded: what a Publish waits for has just ended
	defer func() { <-q.turn }()
	return q.writer.close()
}

// Stats returns the counters.
func (q *Queue) Stats() Stats {
	return Stats{
		Skipped:   q.stats.skipped.Load(),
		Salvaged:  q.stats.salvaged.Load(),
		Truncated: q.stats.truncated.Load(),
		Late:      q.stats.late.Load(),
		Rotated:   q.stats.rotated.Load(),
		Removed:   q.stats.removed.Load(),
	}
}

// Status looks at the folder to tell the lag; it is cheap, not free.
func (q *Queue) Status() relay.Status {
	q.mu.Lock()
	v, window := q.view, q.window
	q.mu.Unlock()
	s := relay.Status{Connected: v.connected, Reading: v.reading}
	if err := errors.Join(v.readErr, v.saveErr); err != nil {
		s.Error = err.Error()
	}
	if window != nil {
		s.Unsettled = window.Unsettled()
	}
	if v.source == nil {
		return s
	}
	lag, err := behind(q.opt.Dir, q.opt.Queue, v.source, v.offset)
	if err != nil && s.Error == "" {
		s.Connected, s.Error = false, err.Error()
	}
	s.Lag = lag
	return s
}

// behind counts the bytes that lie behind offset of src: the rest of its file,
// the later segments, and the queue file.
func behind(dir, queue string, src *source, offset int64) (lag int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("open folder: %w", err)
	}
	defer root.Close()
	numbers, err := segments(root, queue)
	if err != nil {
		return 0, err
	}
	names := []string{liveName(queue)}
	for _, n := range numbers {
		if n > src.after {
			names = append(names, segmentName(queue, n))
		}
	}
	for _, name := range names {
		f, err := safefile.Open(root, name, os.O_RDONLY)
		if err != nil {
			continue // rotated or removed meanwhile
		}
		if info, err := f.Stat(); err == nil {
			lag += info.Size()
			if id, err := idOf(f); err == nil && id == src.id {
				lag -= min(offset, info.Size())
			}
		}
		_ = f.Close() // only read
	}
	return lag, nil
}
