// Package outbox keeps an agent's own messages on disk until the backend has
// them, and for a while longer.
//
// # Promise
//
// A message that [Box.Put] accepted reaches the backend, even if that is down
// or the process is killed at any point: the message is in a file before Put
// returns. Messages are published in the order of Put, each at least once; a
// repeat has the same id. Published messages are kept for KeepFor, and those that the
// backend has lost ([relay.ErrForgotten]) are published again.
//
// # Disk
//
// A box is a folder of segments, JSONL files named for the first `seq` they hold, whose lines
// are the encoded messages, and `state.json`, the place up to which they are published. A
// segment is removed once all of it is published and KeepFor has passed, or too many bytes
// are kept. When Options.Size bytes wait for a backend, Put refuses with [ErrFull], or with
// Options.Drop the oldest are removed.
//
// # Other lines
//
// [Box.Append] accepts any JSON objects that contain their `seq`, several in one
// write.
package outbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// Bounds.
const (
	maxPending  = 256 << 20 // default of Options.Size
	keptPart    = 4         // at most Size / keptPart bytes of published messages are kept
	maxKept     = maxPending / keptPart
	segmentPart = 32 // a new segment begins after Size / segmentPart bytes
	segmentSize = maxPending / segmentPart
	batchLines  = 200     // lines handed to the backend at once
	batchBytes  = 1 << 20 // or this many bytes, where they are not too many for the network
	leastBatch  = 1 << 15 // which are never too many
	maxFresh    = 1 << 20 // bytes of unpublished lines kept in memory; others are read from the disk
)

// ErrFull means that the backend has been unreachable for too long and no more
// messages are kept for it.
var ErrFull = errors.New("outbox is full: the relay backend has been away for too long")

// Options of a box. The zero value of each field is usable.
type Options struct {
	Secret  string        // RELAY_SECRET: messages are signed with it
	KeepFor time.Duration // how long published messages stay; 0: 10 minutes
	Sync    bool          // Put returns only when the disk has the message (fsync)
	Size    int64         // bytes that wait for the backend at most; 0: 256 MiB
	Drop    bool          // beyond Size the oldest are removed; else Put returns ErrFull
	Gather  time.Duration // messages put within this time are published together; 0: no waiting
	// At returns the time of the event in a line: lines older than KeepFor are not
	// published again. Nil: the time when the message's text was final.
	At     func(line []byte) (relay.Millis, error)
	Logger *slog.Logger // nil: discard
}

// Box is one agent's outbox for one queue. Its methods are safe for concurrent use.
type Box struct {
	root *os.Root
	opts Options
	wake chan struct{}

	mu       sync.Mutex
	segments []*segment          // oldest first; the last one is written to; guarded by mu
	seq      relay.Seq           // of the newest message; guarded by mu
	file     *os.File            // the last segment; guarded by mu
	ended    bool                // file is known to be empty or to end in a newline; guarded by mu
	fresh    []fresh             // the newest lines of the last segment, oldest first; guarded by mu
	held     int                 // bytes of fresh; guarded by mu
	pending  int64               // bytes not published; guarded by mu
	at       place               // published up to here; guarded by mu
	points   relay.Points[place] // places that the backend confirmed; guarded by mu
	batch    int64               // bytes handed to the backend at once; guarded by mu
	saved    place               // the place in the state file; guarded by mu
	count    int64               // messages not published; guarded by mu
	closed   bool                // guarded by mu

	syncing sync.Mutex
	synced  atomic.Uint64 // the newest seq that fsync covers

	published, republished, dropped, failed atomic.Int64
	lastErr                                 atomic.Pointer[error]
}

type segment struct {
	first relay.Seq
	size  int64
}

// fresh is a line of the last segment that is kept in memory, so that the
// publisher need not read the file.
type fresh struct {
	line       []byte // without its newline
	start, end int64  // in the segment
}

func (s *segment) name() string { return fmt.Sprintf("%020d.jsonl", s.first) }

// place is the stored state: the offset in a segment up to which everything is
// published, and the backend's proof of it.
type place struct {
	Segment relay.Seq     `json:"segment"`
	Offset  int64         `json:"offset"`
	Receipt relay.Receipt `json:"receipt"`
	Seq     relay.Seq     `json:"seq"` // newest seq assigned when this was written
}

const stateFile = "state.json"

// Open opens the box in folder root, with the messages an earlier process left
// in it.
func Open(root *os.Root, opts Options) (*Box, error) {
	opts.KeepFor = cmp.Or(opts.KeepFor, 10*time.Minute)
	opts.Size = cmp.Or(opts.Size, maxPending)
	if opts.At == nil {
		opts.At = finalAt
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	b := &Box{root: root, opts: opts, wake: make(chan struct{}, 1), batch: batchBytes}
	if err := b.load(); err != nil {
		return nil, fmt.Errorf("open outbox %s: %w", root.Name(), err)
	}
	return b, nil
}

func (b *Box) load() error {
	names, err := fs.ReadDir(b.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range names {
		if strings.HasPrefix(entry.Name(), stateFile+".") {
			_ = b.root.Remove(entry.Name()) // left by a killed process; no other process uses the box
			continue
		}
		digits, _ := strings.CutSuffix(entry.Name(), ".jsonl")
		first, err := strconv.ParseUint(digits, 10, 64)
		s := &segment{first: relay.Seq(first)}
		if err != nil || entry.Name() != s.name() || !entry.Type().IsRegular() {
			continue // another program's file, or a copy of a segment
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		s.size = info.Size()
		b.segments = append(b.segments, s)
	}
	slices.SortFunc(b.segments, func(x, y *segment) int { return cmp.Compare(x.first, y.first) })

	data, err := safefile.ReadFile(b.root, stateFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && (json.Unmarshal(data, &b.at) != nil || b.at.Offset < 0 || b.at.Segment > b.at.Seq) {
		b.opts.Logger.Warn("outbox state is broken; messages may be published again", "folder", b.root.Name())
		b.at = place{}
	}
	b.seq = b.at.Seq
	if n := len(b.segments); n > 0 {
		if err := b.reopen(b.segments[n-1]); err != nil {
			return err
		}
		if b.at.Segment < b.segments[0].first {
			b.at.Segment, b.at.Offset = b.segments[0].first, 0
		}
	}
	return b.countPending()
}

// reopen continues writing to s, the last segment of an earlier process. It
// ends a torn line with a newline.
func (b *Box) reopen(s *segment) (err error) {
	if b.file, err = safefile.Open(b.root, s.name(), os.O_RDWR|os.O_APPEND); err != nil {
		return err
	}
	if size, err := safefile.EndLine(b.file); err == nil {
		s.size, b.ended = size, true
	} else { // the next append does it
		b.opts.Logger.Warn("a torn line of the outbox cannot be ended", "err", err)
	}
	last, err := b.lastSeq(s)
	b.seq = max(b.seq, last, s.first-1)
	if s.size > 0 {
		b.seq = max(b.seq, s.first) // even if its line is torn: the next segment needs another name
	}
	return err
}

// lastSeq is the seq of the last whole line of s, which is open; 0 if it has
// none. Only the last line may be torn.
func (b *Box) lastSeq(s *segment) (last relay.Seq, err error) {
	end := make([]byte, min(s.size, 2*relay.MaxLine))
	if _, err := b.file.ReadAt(end, s.size-int64(len(end))); err != nil {
		return 0, err
	}
	for line := range bytes.Lines(end) {
		last = max(last, seqOf(line))
	}
	return last, nil
}

func (b *Box) countPending() error {
	b.pending, b.count = 0, 0
	for _, s := range b.segments {
		from := int64(0)
		switch {
		case s.first < b.at.Segment:
			continue
		case s.first == b.at.Segment:
			b.at.Offset = min(b.at.Offset, s.size)
			from = b.at.Offset
		}
		b.pending += s.size - from
		n, err := b.linesOf(s, from)
		if err != nil {
			return err
		}
		b.count += n
	}
	return nil
}

// linesOf counts the lines of s after an offset.
func (b *Box) linesOf(s *segment, from int64) (n int64, err error) {
	f, err := safefile.Open(b.root, s.name(), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	t, err := jsonl.At(f, relay.MaxLine, from)
	if err == nil {
		_, err = t.Read(f, s.size, func(jsonl.Line) bool { n++; return true })
	}
	return n, errors.Join(err, f.Close())
}

// Put is [Box.Write] and [Box.Await].
func (b *Box) Put(m relay.Message) (relay.Message, error) {
	m, err := b.Write(m)
	if err != nil {
		return m, err
	}
	return m, b.Await()
}

// Write gives m its `seq`, encodes and signs it and writes it to the segment.
// When it returns, the message will be published even if this process dies; for
// power cuts see [Box.Await]. The returned message is m with its seq.
func (b *Box) Write(m relay.Message) (relay.Message, error) {
	err := b.Append(1, func(_ int, seq relay.Seq) ([]byte, error) {
		m.Seq = seq
		return m.Encode()
	})
	return m, err
}

// Append writes n lines together: all of them or, after an error, none. Only if the
// remains of a failed write cannot be removed may some be published in spite of the error,
// each with a seq that no other line gets. encode returns the i-th line, from 0, as a JSON
// object that contains its seq.
func (b *Box) Append(n int, encode func(i int, seq relay.Seq) ([]byte, error)) error {
	b.mu.Lock()
	err := b.append(n, encode)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	wait.Wake(b.wake)
	return nil
}

// Await returns when all messages written so far are on disk. Without Options.Sync it
// does not wait. Callers that wait at the same time share one fsync. Without
// Options.Gather it lets the publisher run first.
func (b *Box) Await() error {
	if b.opts.Gather == 0 {
		runtime.Gosched() // else the publisher, just woken, would start only when the caller blocks
	}
	if !b.opts.Sync {
		return nil
	}
	b.mu.Lock()
	seq := b.seq
	b.mu.Unlock()
	return b.sync(seq)
}

func (b *Box) append(n int, encode func(i int, seq relay.Seq) ([]byte, error)) error {
	if b.closed {
		return fmt.Errorf("write outbox: %w", os.ErrClosed)
	}
	if b.pending >= b.opts.Size {
		if !b.opts.Drop {
			return ErrFull
		}
		b.drop()
	}
	var lines []byte
	for i := range n {
		line, err := encode(i, b.seq+1+relay.Seq(i))
		if err == nil && b.opts.Secret != "" {
			line, err = relay.Sign(line, b.opts.Secret)
		}
		if err != nil {
			return err
		}
		if line = append(line, '\n'); i == 0 {
			lines = line
		} else {
			lines = append(lines, line...)
		}
	}
	if err := b.segmentFor(b.seq + 1); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	s := b.segments[len(b.segments)-1]
	write := safefile.Append
	if b.ended {
		write = safefile.AppendLines
	}
	at, err := write(b.file, lines)
	b.ended = err == nil
	if err != nil {
		b.cutBack(s, n)
		return fmt.Errorf("write outbox: %w", err)
	}
	size := at + int64(len(lines))
	b.pending += size - s.size
	b.count += int64(n)
	s.size = size
	for line := range bytes.Lines(lines) {
		b.seq++
		end := at + int64(len(line))
		line = line[:len(line)-1]
		b.keepFresh(fresh{line, at, end})
		at = end
	}
	return nil
}

// cutBack removes the remains of a failed write of n lines from s, the last segment. If
// that fails too, their seqs stay used: the lines may be published.
func (b *Box) cutBack(s *segment, n int) {
	info, err := b.file.Stat()
	if err == nil && info.Size() > s.size {
		err = b.file.Truncate(s.size)
	}
	if err == nil {
		return
	}
	b.opts.Logger.Warn("the remains of a failed write cannot be removed from the outbox", "file", s.name(), "err", err)
	b.seq += relay.Seq(n)
}

// keepFresh keeps the newest line in memory for the publisher. When the memory is full
// it drops all lines: the publisher is behind and reads the file.
func (b *Box) keepFresh(l fresh) {
	if n := len(b.fresh); b.held+len(l.line) > maxFresh || n > 0 && b.fresh[n-1].end != l.start {
		b.dropFresh()
	}
	b.fresh = append(b.fresh, l)
	b.held += len(l.line)
}

func (b *Box) dropFresh() { b.fresh, b.held = nil, 0 }

// drop removes the oldest segments until there is room. It keeps the last one.
func (b *Box) drop() {
	for b.pending >= b.opts.Size && len(b.segments) > 1 {
		s, from := b.segments[0], int64(0)
		if s.first == b.at.Segment {
			from = b.at.Offset
		}
		if s.first >= b.at.Segment { // not all of it is published
			n, err := b.linesOf(s, from)
			b.logErr("count what is dropped from the outbox", err)
			b.dropped.Add(n)
			b.count -= n
			b.pending -= s.size - from
			b.at.Segment, b.at.Offset = b.segments[1].first, 0
		}
		if err := b.root.Remove(s.name()); !errors.Is(err, fs.ErrNotExist) {
			b.logErr("remove old outbox file", err)
		}
		b.segments = b.segments[1:]
	}
}

// segmentFor begins a new segment if the last one is full.
func (b *Box) segmentFor(seq relay.Seq) error {
	if n := len(b.segments); n > 0 && b.segments[n-1].size < b.opts.Size/segmentPart {
		return nil
	}
	s := &segment{first: seq}
	f, err := safefile.Open(b.root, s.name(), os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	if b.opts.Sync {
		if err := b.syncBoth(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if b.file != nil {
		_ = b.file.Close()
	}
	b.file, b.ended = f, false
	b.segments = append(b.segments, s)
	b.dropFresh()
	return nil
}

// syncBoth syncs the last segment, before it is closed, and the folder, which
// has a new one.
func (b *Box) syncBoth() error {
	if b.file != nil {
		if err := b.file.Sync(); err != nil {
			return err
		}
	}
	dir, err := b.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sync waits until all lines up to seq are on disk. Callers that wait at the
// same time share one fsync.
func (b *Box) sync(seq relay.Seq) error {
	b.syncing.Lock()
	defer b.syncing.Unlock()
	if b.synced.Load() >= uint64(seq) {
		return nil
	}
	b.mu.Lock()
	f, upTo := b.file, b.seq
	b.mu.Unlock()
	if f == nil {
		return nil // Close has synced the file
	}
	// A closed file was synced by Close, or when the next segment began.
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("sync outbox: %w", err)
	}
	b.synced.Store(uint64(upTo))
	return nil
}

// Stats is the state of a box.
type Stats struct {
	Pending     int64  `json:"pending"`       // messages that wait for the backend
	Bytes       int64  `json:"pending_bytes"` // their size
	Published   int64  `json:"published"`     // since start, repeats not counted
	Republished int64  `json:"republished"`   // published again after the backend had lost them
	Dropped     int64  `json:"-"`             // removed before they were published, with Options.Drop
	Failed      int64  `json:"failed"`        // publish attempts
	Error       string `json:"error,omitempty"`
}

// Stats returns the state of b.
func (b *Box) Stats() Stats {
	b.mu.Lock()
	s := Stats{Pending: b.count, Bytes: b.pending}
	b.mu.Unlock()
	s.Published, s.Republished, s.Failed = b.published.Load(), b.republished.Load(), b.failed.Load()
	s.Dropped = b.dropped.Load()
	if err := b.lastErr.Load(); err != nil {
		s.Error = (*err).Error()
	}
	return s
}

// Close closes the files. The next process publishes the messages that wait. It
// may be called more than once; a later Put fails with [os.ErrClosed].
func (b *Box) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	err := b.saveState()
	if b.file != nil {
		if b.opts.Sync {
			err = errors.Join(err, b.file.Sync())
		}
		err = errors.Join(err, b.file.Close())
		b.file = nil
	}
	return err
}
