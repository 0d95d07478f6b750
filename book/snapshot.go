package book

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"time"

	"feishu-relay/internal/jsonl"
)

const (
	snapshotBuffer = 256 << 10 // bytes of one write of a snapshot
	moveAtOnce     = 1024      // records that get their new places while mu is held
)

// maybeSnapshot begins a snapshot if one is due: commits go to a new log, and what was in
// the book before it is copied on another goroutine.
func (b *Book) maybeSnapshot(now time.Time) {
	b.mu.Lock()
	size, live := b.size(), b.index.live
	large := size-live > max(live, b.opts.garbage) && size >= b.retry
	aged := b.opts.Forget > 0 && !b.garbageSince.IsZero() && now.Sub(b.garbageSince) >= b.opts.Forget
	running := b.index.ghosts != nil
	b.mu.Unlock()
	if running || !large && !aged || b.torn { // if torn, a failed batch would count after a restart
		return
	}
	n := b.log.n + 1
	if err := b.begin(n); err != nil {
		b.ended(now, err)
		return
	}
	b.mu.Lock()
	files := b.files[:len(b.files)-1]
	b.index.ghosts, b.index.frozen, b.garbageSince = map[spot]bool{}, n, time.Time{}
	b.mu.Unlock()
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(context.Background())
	b.running.Go(func() { b.ended(now, b.snapshot(ctx, files, n)) })
}

// ended is called when the snapshot that was begun at a time has ended. After an error the next
// one begins when the files have grown by a quarter, or after Options.Forget.
func (b *Book) ended(begun time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.ghosts, b.retry = nil, 0
	if err == nil {
		b.snapshots++
		return
	}
	b.retry, b.garbageSince = b.size()+max(b.size()/4, b.opts.garbage), begun
	if !errors.Is(err, context.Canceled) {
		b.opts.Logger.Warn("no snapshot of the book was written; its log grows until one is", "err", err)
	}
}

// move is a record's place and where it is in the snapshot.
type move struct {
	place *place
	at    int64
}

// snapshot replaces the files old, which are before log n, with a file of the records in
// them. A kill before the rename leaves the old files, and after it the new one.
func (b *Book) snapshot(ctx context.Context, old []*file, n int) error {
	moves, err := b.copyRecords(ctx, old)
	if err == nil {
		err = b.disk.rename(tempName, snapshotName(n))
	}
	if err == nil {
		err = b.disk.syncDir()
	}
	if err != nil {
		b.disk.remove(tempName)
		return err
	}
	snap, err := b.disk.open(snapshotName(n), n)
	if err != nil {
		return err
	}
	if info, err := snap.Stat(); err != nil {
		return errors.Join(err, snap.Close())
	} else {
		snap.size = info.Size()
	}
	for some := range slices.Chunk(moves, moveAtOnce) {
		b.mu.Lock()
		for _, m := range some {
			if m.place.file.n < n { // else it was committed again
				m.place.file, m.place.at = snap, m.at
			}
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.files = append([]*file{snap}, b.files[len(old):]...)
	b.mu.Unlock()
	for _, f := range old {
		_ = f.Close() // nothing was written to it
		b.disk.remove(f.name)
	}
	return nil
}

// copyRecords writes the lines of the records in old to the temporary file.
func (b *Book) copyRecords(ctx context.Context, old []*file) (moves []move, err error) {
	temp, err := b.disk.create(tempName, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, temp.Close()) }()
	w := bufio.NewWriterSize(&appender{&b.disk, temp}, snapshotBuffer)
	at := int64(0)
	for _, f := range old {
		if err := f.lines(f.size, func(text jsonl.Line, _ int) error {
			l, ok := parsePlain(text.Text) // no need to check the value again
			if !ok {
				l, _ = parse(text.Text)
			}
			b.mu.Lock()
			p := b.index.find(string(l.kind), string(l.key))
			is := p != nil && p.file == f && p.at == text.Start
			was := b.index.ghosts[spot{f, text.Start}]
			b.mu.Unlock()
			if is {
				moves = append(moves, move{p, at})
			}
			if !is && !was {
				return ctx.Err()
			}
			at += int64(len(text.Text)) + 1
			_, _ = w.Write(text.Text) // Flush returns the first error
			return errors.Join(w.WriteByte('\n'), ctx.Err())
		}); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return moves, b.disk.sync(temp)
}

// appender is the end of a file that is being made.
type appender struct {
	disk *disk
	file *file
}

func (a *appender) Write(data []byte) (int, error) {
	if err := a.disk.write(a.file, data, a.file.size); err != nil {
		return 0, err
	}
	a.file.size += int64(len(data))
	return len(data), nil
}
