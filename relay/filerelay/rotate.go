package filerelay

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
)

// minAge is how long a segment is kept after all known readers have passed it:
// a reader that has just started has not stored its position yet. KeepFor may
// be shorter.
const minAge = time.Minute

// followedFor is how long a reader that knows no segments counts as alive after it
// wrote its offset.
const followedFor = 10 * time.Minute

// rotate renames the queue file to a segment when it has grown too large, makes
// a new one, and removes segments that no reader needs. The caller holds the
// lock; after a rotation the file is closed.
func (q *Queue) rotate(size int64) error {
	log := &q.writer.log
	if !log.Full(size) {
		return nil
	}
	root, err := q.writer.dir.Open(false)
	if err != nil {
		return err
	}
	if !q.opt.Capped && q.followedByOffset(root) {
		log.Later(size)
		return nil
	}
	numbers, err := segments(root, q.opt.Queue)
	if err != nil {
		return err
	}
	// Numbers from the time are never reused, even after all segments are
	// removed; max keeps the order if the clock was set back.
	number := uint64(max(1, time.Now().UnixNano()))
	if len(numbers) > 0 {
		last := numbers[len(numbers)-1]
		if last == maxNumber {
			return fmt.Errorf("no segment name is left after %s", segmentName(q.opt.Queue, last))
		}
		number = max(number, last+1)
	}
	if err := log.Rotate(segmentName(q.opt.Queue, number), size); err != nil {
		return err
	}
	q.stats.rotated.Add(1)
	log.Close()
	return q.clean(root, append(numbers, number))
}

// followedByOffset reports whether a program that knows no segments follows the
// queue file: it keeps its byte offset in offsets/<name>.txt, and would skip a new
// file up to that offset.
func (q *Queue) followedByOffset(root *os.Root) bool {
	dir, err := root.Open(offsetsDir)
	if err != nil {
		return false
	}
	defer dir.Close()
	list, _ := dir.ReadDir(-1) // after an error the entries read so far are used
	for _, entry := range list {
		if !strings.HasSuffix(entry.Name(), ".txt") {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) < followedFor {
			q.log.Debug("queue file is not rotated while a program follows it by offset", "file", entry.Name())
			return true
		}
	}
	return false
}

// clean removes the segments that every known reader has passed or that are older than KeepFor, and
// the oldest beyond maxSegments; of a capped queue all. The newest one always stays: it keeps the
// numbers rising, and programs may follow it by name.
func (q *Queue) clean(root *os.Root, numbers []uint64) error {
	needed, err := q.needed(root)
	if err != nil {
		return err
	}
	left := len(numbers)
	segments := func(yield func(string) bool) {
		for ; left > 1 && yield(segmentName(q.opt.Queue, numbers[len(numbers)-left])); left-- {
		}
	}
	removed, err := jsonl.Prune(root, segments, func(name string, info fs.FileInfo) bool {
		unread := numbers[len(numbers)-left] >= needed
		age := time.Since(info.ModTime())
		if (unread || age <= minAge) && age <= q.opt.KeepFor && left <= maxSegments && !q.opt.Capped {
			return false // the later ones are needed as well
		}
		if unread {
			q.log.Error("a segment was removed before a reader had read it", "file", name, "bytes", info.Size())
		}
		return true
	})
	q.stats.removed.Add(uint64(removed))
	return err
}

// needed returns the lowest segment number that a known reader may still need:
// one that stored a position within KeepFor. A broken position needs all of
// them.
func (q *Queue) needed(root *os.Root) (uint64, error) {
	dir, err := root.Open(offsetsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list readers: %w", err)
	}
	defer dir.Close()
	list, err := dir.ReadDir(-1)
	if err != nil {
		return 0, fmt.Errorf("list readers: %w", err)
	}
	lowest := uint64(math.MaxUint64)
	for _, entry := range list {
		if !strings.HasSuffix(entry.Name(), "."+q.opt.Queue+".json") {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) > q.opt.KeepFor {
			continue
		}
		c, err := loadCheckpoint(root, path.Join(offsetsDir, entry.Name()))
		if err != nil {
			return 0, nil //nolint:nilerr // the reader starts at the beginning
		}
		lowest = min(lowest, c.After+1)
	}
	return lowest, nil
}
