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
// [Queue.Publish] appends a batch with one write under an exclusive lock on the
// queue file, after checking that the file is still the queue and ends in a
// newline: a process killed in the middle of a write leaves a torn line, and the
// next append must not be glued onto it. Nothing is synced: the outbox above
// publishes again the lines that a power cut lost. When the file has grown beyond
// Options.RotateSize the writer renames it to a segment, still under the lock, and
// removes segments that every known reader has passed, or that are older than
// Options.KeepFor. It does not rotate while a program that keeps a byte offset in
// offsets/<name>.txt is alive, that is, has written it in the last 10 minutes:
// such a program would not read a new file.
//
// # Reading
//
// [Queue.Subscribe] hands over whole lines only, up to the last newline. Its position
// is stored as the file's identity, the offset, and a hash of the bytes before it. Where
// that does not fit, after a truncation, a refill in place or a restored backup, the file
// is read from its beginning, since readers drop repeats; a copy that a program made before
// it truncated the file is not read. Lines are skipped only if
// they are longer than [relay.MaxLine], blank, or torn. Before the reader leaves a
// file that others renamed or replaced, it takes the file's lock once, so that no
// sidecar is still writing to it, and reads it to its end. Programs that take no lock
// may hold it open longer, so the reader checks it now and then afterwards.
//
// [Queue.Follow] reads in the same way from the oldest line that is kept, and stores
// nothing.
//
// # Waking up
//
// A change notice of the folder (inotify) is only a hint. Every Options.Recheck the
// reader looks anyway, and renews the notice if the folder was replaced. On a
// network file system neither locks nor notices are reliable; a warning is logged
// there.
//
// # Faults
//
// A full or read-only disk, or a folder that was removed, makes Publish fail
// with the system's error and shows in [Queue.Status]. Both recover when the
// cause is gone.
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
	Agent string // owner of the reading position; any text
	// RotateSize is the size in bytes at which the writer begins a new file; 0
	// is 64 MiB.
	RotateSize int64
	// KeepFor is the age at which a segment is removed even if a known reader
	// still needs it, and how long a reader that stores no position still
	// counts as known; 0 is 24 h.
	KeepFor time.Duration
	// Capped: only the newest lines are kept, and the queue is read with Follow alone. A
	// rotation removes all segments but the newest.
	Capped bool
	// Recheck is how often the reader looks without a notice; 0 is 1 s.
	Recheck time.Duration
	// NoNotify disables change notices: only Recheck wakes the reader.
	NoNotify bool
	Logger   *slog.Logger // nil discards
}

// Stats counts events since New.
type Stats struct {
	Skipped   uint64 // lines skipped: too long, or torn at the end of a left file
	Salvaged  uint64 // messages found after a torn one in the same line
	Truncated uint64 // times the file was cut or refilled while it was read
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
	view   readerView // guarded by mu
	window *relay.Window[place]
}

var _ relay.Backend = (*Queue)(nil)

type counters struct {
	skipped, salvaged, truncated, late, rotated, removed atomic.Uint64
}

// readerView is the state of the reader that Status returns.
type readerView struct {
	connected, reading bool
	source             *source
	offset             int64
	readErr, saveErr   error
}

// New returns the queue that opt names. It does no I/O; an error reports mistakes
// in opt.
func New(opt Options) (*Queue, error) {
	var wrong []error
	if opt.Dir == "" {
		wrong = append(wrong, errors.New("no folder"))
	}
	if opt.Queue == "" || safefile.Name(opt.Queue) != opt.Queue {
		wrong = append(wrong, fmt.Errorf("%.40q is not a name for a queue", opt.Queue))
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
	q.turn <- struct{}{} // bounded: closing has ended what a Publish waits for
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

// Status reads the folder to compute the lag, which costs a few system calls.
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

// behind counts the bytes after offset of src: the rest of its file, the later
// segments, and the queue file.
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
