package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sort"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	retryFirst   = 50 * time.Millisecond // pause after a failed publish, doubled up to retryMax
	retryMax     = 2 * time.Second
	verifyEvery  = 2 * time.Second        // how often an idle box asks whether the backend still has its messages
	saveEvery    = 200 * time.Millisecond // how old the stored place may get
	publishLimit = 10 * time.Second       // for one call of the backend
	quickCall    = time.Second            // a call that takes less has room for more bytes
)

// Run publishes the messages in the box, and each that is added, until ctx is
// done; then it makes a last attempt of at most grace. Only one call may run at
// a time.
func (b *Box) Run(ctx context.Context, to relay.Publisher, grace time.Duration) {
	tick := time.NewTicker(verifyEvery)
	defer tick.Stop()
	save := time.NewTimer(saveEvery)
	defer save.Stop()
	armed := true
	pauses := wait.NewBackoff(retryFirst, retryMax)
	for ctx.Err() == nil {
		more, err := b.step(ctx, to)
		b.note(err)
		if err != nil && ctx.Err() == nil {
			_ = pauses.Sleep(ctx)
			continue
		}
		pauses.Reset()
		if more {
			if !armed {
				save.Reset(saveEvery)
				armed = true
			}
			select {
			case <-save.C: // after a crash a long backlog must not be published again from its start
				armed = false
				b.logErr("save outbox state", b.Save())
			default:
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
			if b.opts.Gather > 0 {
				_ = wait.Sleep(ctx, b.opts.Gather)
			}
		case <-save.C:
			armed = false
			b.logErr("save outbox state", b.Save())
		case now := <-tick.C:
			b.note(b.verify(ctx, to))
			b.prune(now)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for more := true; more && last.Err() == nil; {
		var err error
		if more, err = b.step(last, to); err != nil {
			break
		}
	}
	b.logErr("save outbox state", b.Save())
}

// step publishes one batch and reports whether there may be another.
func (b *Box) step(ctx context.Context, to relay.Publisher) (more bool, err error) {
	at := b.place()
	lines, behind, err := b.next(at, place{Segment: 1<<64 - 1})
	if err != nil {
		return false, err
	}
	if len(lines) == 0 {
		b.advance(behind, at.Receipt, 0) // past torn lines
		return false, nil
	}
	receipt, err := b.publish(ctx, to, lines, at.Receipt)
	if errors.Is(err, relay.ErrForgotten) {
		return true, b.again(ctx, to)
	}
	if err != nil {
		return false, fmt.Errorf("publish: %w", err)
	}
	b.published.Add(int64(len(lines)))
	b.advance(behind, receipt, len(lines))
	return true, nil
}

// publish calls the backend. A network may be too narrow for a whole batch within the limit of a call: after one
// that was not answered in time the next is smaller, and as long as calls take little time it grows again.
func (b *Box) publish(ctx context.Context, to relay.Publisher, lines [][]byte, after relay.Receipt) (
	relay.Receipt, error) {
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	began := time.Now()
	receipt, err := to.Publish(limited, lines, after)
	if len(lines) == 0 {
		return receipt, err
	}
	bytes := int64(0)
	for _, line := range lines {
		bytes += int64(len(line))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	late, ok := errors.AsType[net.Error](err)
	switch { // few bytes say nothing about the network
	case ok && late.Timeout() && ctx.Err() == nil && bytes > leastBatch:
		b.batch = max(min(b.batch, bytes)/2, leastBatch)
	case err == nil && time.Since(began) < quickCall && (bytes >= b.batch/4 || len(lines) == batchLines):
		b.batch = min(2*b.batch, batchBytes)
	}
	return receipt, err
}

// verify asks whether the backend still has what it accepted.
func (b *Box) verify(ctx context.Context, to relay.Publisher) error {
	at := b.place()
	if at.Receipt == "" {
		return nil
	}
	_, err := b.publish(ctx, to, nil, at.Receipt)
	if errors.Is(err, relay.ErrForgotten) {
		return b.again(ctx, to)
	}
	if err == nil {
		b.mu.Lock()
		b.notePoint(at) // else one that is idle for long would have none before its next message
		b.mu.Unlock()
	}
	return err
}

// again publishes, in order, the kept messages that the backend lost: those behind the newest point that it
// still has, without one all. Messages whose text was final more than KeepFor ago are left out: no bot
// would act on them. The time of other lines is that of Options.At.
func (b *Box) again(ctx context.Context, to relay.Publisher) error {
	at, err := b.stillThere(ctx, to)
	if err != nil {
		return fmt.Errorf("find out what the backend has: %w", err)
	}
	b.opts.Logger.Warn("the backend has lost messages; publishing the recent ones again", "folder", b.root.Name())
	end := b.place()
	oldest := relay.MillisOf(time.Now().Add(-b.opts.KeepFor))
	for before(at, end) {
		lines, behind, err := b.next(at, end)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			break
		}
		recent := lines[:0]
		for _, line := range lines {
			if at, err := b.opts.At(line); err == nil && at >= oldest {
				recent = append(recent, line)
			}
		}
		if behind.Receipt = at.Receipt; len(recent) > 0 {
			if behind.Receipt, err = b.publish(ctx, to, recent, at.Receipt); err != nil {
				return fmt.Errorf("publish again: %w", err)
			}
			b.republished.Add(int64(len(recent)))
		}
		at = behind
		b.mu.Lock()
		b.notePoint(at)
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.at.Receipt = at.Receipt
	b.mu.Unlock()
	return nil
}

// stillThere is the newest point that the backend has, or the place of the oldest kept message, with no
// receipt. It forgets the points that the backend does not have. If it has one, it has all before it.
func (b *Box) stillThere(ctx context.Context, to relay.Publisher) (at place, err error) {
	b.mu.Lock()
	points := b.points.Places()
	if len(b.segments) > 0 {
		at.Segment = b.segments[0].first
	}
	b.mu.Unlock()
	lost := sort.Search(len(points), func(i int) bool {
		if err != nil {
			return true
		}
		_, gone := b.publish(ctx, to, nil, points[i].Receipt)
		if !errors.Is(gone, relay.ErrForgotten) {
			err = gone
		}
		return gone != nil
	})
	if err != nil {
		return place{}, err
	}
	if lost > 0 {
		at = points[lost-1]
	}
	b.mu.Lock()
	b.points.Keep(lost)
	b.mu.Unlock()
	return at, nil
}

// notePoint keeps a place that the backend confirmed. b.mu is held.
func (b *Box) notePoint(at place) {
	if at.Receipt != "" {
		b.points.Note(at)
	}
}

// finalAt is when the text of a message was final.
func finalAt(line []byte) (relay.Millis, error) {
	m, err := relay.Decode(line)
	return m.Final(), err
}

// Unpublished calls take for each line that the backend does not have yet, the oldest
// first.
func (b *Box) Unpublished(take func(line []byte)) error {
	for at := b.place(); ; {
		lines, behind, err := b.next(at, place{Segment: 1<<64 - 1})
		if err != nil || len(lines) == 0 {
			return err
		}
		for _, line := range lines {
			take(line)
		}
		at = behind
	}
}

func before(x, y place) bool {
	return x.Segment < y.Segment || x.Segment == y.Segment && x.Offset < y.Offset
}

func (b *Box) place() place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

func (b *Box) advance(to place, receipt relay.Receipt, lines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	to.Receipt, b.at.Receipt = receipt, receipt
	if lines > 0 { // else the backend confirmed nothing new, and the next message would get no point
		b.notePoint(to)
	}
	if before(to, b.at) {
		return // dropped meanwhile
	}
	b.dropPublished(to)
	for _, s := range b.segments {
		if s.first < b.at.Segment || s.first > to.Segment {
			continue
		}
		from, until := int64(0), s.size
		if s.first == b.at.Segment {
			from = b.at.Offset
		}
		if s.first == to.Segment {
			until = to.Offset
		}
		b.pending -= until - from
	}
	b.count -= int64(lines)
	if b.pending == 0 {
		b.count = 0 // torn lines of an earlier process were counted as messages
	}
	b.at.Segment, b.at.Offset = to.Segment, to.Offset
}

// dropPublished drops the lines before a place from memory.
func (b *Box) dropPublished(to place) {
	n := len(b.segments)
	if len(b.fresh) == 0 || to.Segment != b.segments[n-1].first {
		return
	}
	i := 0
	for ; i < len(b.fresh) && b.fresh[i].start < to.Offset; i++ {
		b.held -= len(b.fresh[i].line)
		b.fresh[i] = fresh{}
	}
	if b.fresh = b.fresh[i:]; len(b.fresh) == 0 {
		b.dropFresh()
	}
}

// freshAt returns a batch of lines of s from an offset on, and the offset after them,
// without reading the file. It returns none if they are not in memory.
func (b *Box) freshAt(s segment, from int64) (lines [][]byte, behind int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fresh) == 0 || b.fresh[0].start != from || b.segments[len(b.segments)-1].first != s.first {
		return nil, from
	}
	for _, l := range b.fresh {
		if len(lines) == batchLines || l.end > s.size || l.end-from > b.batch && len(lines) > 0 {
			break
		}
		lines, behind = append(lines, l.line), l.end
	}
	return lines, behind
}

// next reads a batch of the lines between at and end, and returns the place
// after them. It returns no lines at the end.
func (b *Box) next(at, end place) (lines [][]byte, behind place, err error) {
	for {
		s, from, ok := b.segmentAt(at)
		if from.Segment == end.Segment {
			s.size = min(s.size, end.Offset)
		}
		if !ok || from.Segment > end.Segment || from.Offset >= s.size {
			return nil, at, nil
		}
		at.Segment, at.Offset = from.Segment, from.Offset
		lines, behind := b.freshAt(s, at.Offset)
		if len(lines) > 0 {
			return lines, place{Segment: at.Segment, Offset: behind}, nil
		}
		lines, behind, err := b.read(s, at.Offset)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, jsonl.ErrReplaced):
			b.opts.Logger.Error("an outbox file was removed or cut; its messages are lost", "file", s.name())
			at.Offset = s.size
		case err != nil:
			return nil, at, fmt.Errorf("read outbox: %w", err)
		default:
			at.Offset = behind
		}
		if len(lines) > 0 {
			return lines, at, nil
		}
	}
}

// segmentAt finds the segment that holds the first byte not before at.
func (b *Box) segmentAt(at place) (segment, place, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.segments {
		if s.first < at.Segment {
			continue
		}
		if s.first > at.Segment {
			at = place{Segment: s.first}
		}
		if at.Offset < s.size {
			return *s, at, true
		}
	}
	return segment{}, at, false
}

// read returns a batch of lines of s from an offset on, and the offset after them. It skips
// a torn line, whose Put had failed. A file that ends at the offset was cut.
func (b *Box) read(s segment, from int64) (lines [][]byte, behind int64, err error) {
	f, err := safefile.Open(b.root, s.name(), os.O_RDONLY)
	if err != nil {
		return nil, from, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, from, err
	}
	size := min(s.size, info.Size())
	if size <= from {
		return nil, from, jsonl.ErrReplaced
	}
	t, err := jsonl.At(f, relay.MaxLine, from)
	if err != nil {
		return nil, from, err
	}
	b.mu.Lock()
	batch := b.batch
	b.mu.Unlock()
	next := int64(-1) // where the first line begins that is left for the next batch
	n, err := t.Read(f, size, func(l jsonl.Line) bool {
		if len(lines) > 0 && l.End-from > batch {
			next = l.Start
			return false
		}
		if json.Valid(l.Text) {
			lines = append(lines, bytes.Clone(l.Text))
		}
		return len(lines) < batchLines
	})
	if n == 0 && err == nil {
		return nil, size, nil // a line without an end
	}
	if next >= 0 {
		return lines, next, err
	}
	return lines, t.Offset(), err
}

// prune removes segments that are published and no longer kept.
func (b *Box) prune(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept int64
	for _, s := range b.segments {
		kept += s.size
	}
	for len(b.segments) > 1 && b.segments[0].first < b.at.Segment {
		s := b.segments[0]
		info, err := b.root.Stat(s.name())
		if err == nil && now.Sub(info.ModTime()) < b.opts.KeepFor && kept-b.pending <= b.opts.Size/keptPart {
			return
		}
		if err := b.root.Remove(s.name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.opts.Logger.Warn("remove old outbox file", "file", s.name(), "err", err)
			return
		}
		kept -= s.size
		b.segments = b.segments[1:]
	}
}

// Save stores the published place if it has changed.
func (b *Box) Save() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.saveState()
}

func (b *Box) saveState() error {
	state := b.at
	state.Seq = b.seq
	if state == b.saved || state.Seq == 0 {
		return nil
	}
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := safefile.ReplaceFast(b.root, stateFile, data); err != nil {
		return err
	}
	b.saved = state
	return nil
}

func (b *Box) note(err error) {
	if err == nil {
		b.lastErr.Store(nil)
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	b.failed.Add(1)
	if b.lastErr.Swap(&err) == nil {
		b.opts.Logger.Error("outbox waits for the backend", "err", err)
	}
}

func (b *Box) logErr(step string, err error) {
	if err != nil {
		b.opts.Logger.Error(step, "err", err)
	}
}

func seqOf(line []byte) relay.Seq {
	var m struct {
		Seq relay.Seq `json:"seq"`
	}
	_ = json.Unmarshal(line, &m) // stays 0 for a torn line
	return m.Seq
}
