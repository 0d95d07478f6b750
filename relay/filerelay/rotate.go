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

	"feishu-relay/internal/safefile"
)

// minAge is how long a segment stays that all known readers have passed: one
// that starts just now has not stored its position yet. KeepFor may be shorter.
const minAge = time.Minute

// followedFor is how long after it noted its offset a reader that knows no segments
// counts as alive.
const followedFor = 10 * time.Minute

// rotate renames the queue file to a segment when it has grown too large, makes
// a new one, and removes what nobody needs. The caller holds the lock; after a
// rotation the descriptor is closed.
func (q *Queue) rotate(root *os.Root) error {
	info, err := q.writer.file.Stat()
	if err != nil || info.Size() < max(q.opt.RotateSize, q.writer.rotateAt) {
		return err
	}
	if q.followedByOffset(root) {
		q.writer.rotateAt = info.Size() + q.opt.RotateSize/64
		return nil
	}
	numbers, err := segments(root, q.opt.Queue)
	if err != nil {
		return err
	}
	// The time makes numbers that are never used again, also when all segments
	// are gone; a clock that was set back does not break the order.
	number := uint64(max(1, time.Now().UnixNano()))
	if len(numbers) > 0 {
		last := numbers[len(numbers)-1]
		if last == maxNumber {
			return fmt.Errorf("no name is left behind %s", segmentName(q.opt.Queue, last))
		}
		number = max(number, last+1)
	}
	live := liveName(q.opt.Queue)
	if err := root.Rename(live, segmentName(q.opt.Queue, number)); err != nil {
		return err
	}
	q.stats.rotated.Add(1)
	q.writer.rotateAt = 0
	dropErr := q.writer.drop()
	f, err := safefile.Open(root, live, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err == nil {
		err = f.Close()
	}
	return errors.Join(dropErr, err, q.clean(root, append(numbers, number)))
}

// followedByOffset reports whether a program that knows no segments follows the
// queue file: it notes its byte offset in offsets/<name>.txt, and would wait at that
// offset of a new file until that is as long.
func (q *Queue) followedByOffset(root *os.Root) bool {
	dir, err := root.Open(offsetsDir)
	if err != nil {
		return false
	}
	defer dir.Close()
	list, _ := dir.ReadDir(-1) // what can be listed tells
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

// clean removes the segments that every known reader has passed or that are
// older than KeepFor, and the oldest beyond maxSegments. The newest one stays:
// it keeps the numbers rising and serves programs that follow it by name.
func (q *Queue) clean(root *os.Root, numbers []uint64) error {
	needed, err := q.needed(root)
	if err != nil {
		return err
	}
	var wrong []error
	for i, n := range numbers[:len(numbers)-1] {
		name := segmentName(q.opt.Queue, n)
		info, err := root.Stat(name)
		if err != nil {
			continue // another writer removed it
		}
		age := time.Since(info.ModTime())
		passed := n < needed && age > minAge
		if !passed && age <= q.opt.KeepFor && len(numbers)-i <= maxSegments {
			break // the later ones are needed as well
		}
		if n >= needed {
			q.log.Error("segment is removed though a reader has not passed it", "file", name, "bytes", info.Size())
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, err)
			continue
		}
		q.stats.removed.Add(1)
	}
	return errors.Join(wrong...)
}

// needed returns the lowest segment number that a known reader may still need:
// one that stored a position within KeepFor. A broken position needs everything.
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
