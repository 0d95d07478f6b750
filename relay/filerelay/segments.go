package filerelay

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
)

const (
	// maxSegments bounds the rotated files: the oldest beyond it are removed, read or not (with
	// the default size that is 4 GiB).
	maxSegments = 64
	// keepFor is the age at which a segment is removed although a reader needs it, and the age
	// of a stored position from which its reader no longer counts.
	keepFor = 24 * time.Hour
	// minAge is how long a segment stays after all known readers have read it: a reader that
	// has just started has not stored its position yet.
	minAge = time.Minute
	// followedFor is how long a program that knows no segments counts as alive after it wrote
	// its offset.
	followedFor = 10 * time.Minute
)

// segmentName is the name of a rotated file; names sort as their numbers do.
func segmentName(queue string, number uint64) string {
	return fmt.Sprintf("%s.%020d%s", queue, number, suffix)
}

// segmentNumber reads a name that segmentName made.
func segmentNumber(queue, name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, queue+".")
	digits, ended := strings.CutSuffix(digits, suffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && ended && len(digits) == 20 && err == nil
}

// segments lists the numbers of the rotated files after a 0, oldest first.
func segments(root *os.Root, queue string) ([]uint64, error) {
	names, err := safefile.Names(root)
	numbers := []uint64{0}
	for _, name := range names {
		if number, ok := segmentNumber(queue, name); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// rotate renames the queue file to a segment, makes a new one, and removes segments that no
// reader needs. The caller has the lock.
func (q *Queue) rotate(size int64) error {
	root, err := q.dir.Open(false)
	if err != nil {
		return err
	}
	numbers, err := segments(root, q.opt.Queue)
	passed, byOffset, failed := q.readers(root)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if byOffset && !q.opt.Capped {
		q.file.Later(size)
		return nil
	}
	// A number from the clock is not given out again, even after all segments were removed.
	number := max(uint64(time.Now().UnixNano()), numbers[len(numbers)-1]+1) // the clock may have been set back
	if err := q.file.Rotate(segmentName(q.opt.Queue, number), size); err != nil {
		return err
	}
	q.count(&q.stats.Rotated)
	return q.clean(root, append(numbers, number), passed)
}

// readers looks at the positions that readers stored. passed is the newest segment that all
// known readers have read. byOffset reports whether a program that knows no segments follows
// the queue file: it keeps its byte offset in offsets/<name>.txt, and would skip the beginning
// of a new file.
func (q *Queue) readers(root *os.Root) (passed uint64, byOffset bool, err error) {
	passed = math.MaxUint64
	list, err := fs.ReadDir(root.FS(), offsetsDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, entry := range list {
		info, gone := entry.Info()
		if gone != nil {
			continue
		}
		age := time.Since(info.ModTime())
		switch name := entry.Name(); {
		case strings.HasSuffix(name, ".txt"):
			byOffset = byOffset || age < followedFor
		case strings.HasSuffix(name, "."+q.opt.Queue+".json") && age <= keepFor:
			p, _ := q.stored(root, name) // after an error its reader may begin at the oldest line
			passed = min(passed, p.After)
		}
	}
	return passed, byOffset, err
}

// clean removes the segments that no reader needs, those older than keepFor and the oldest beyond
// maxSegments; of a capped queue all. The newest one always stays: programs may follow it by name.
func (q *Queue) clean(root *os.Root, numbers []uint64, passed uint64) (err error) {
	for i, number := range numbers[1 : len(numbers)-1] {
		name := segmentName(q.opt.Queue, number)
		info, gone := root.Stat(name)
		if gone != nil {
			continue
		}
		unread, age := number > passed, time.Since(info.ModTime())
		if !q.opt.Capped && (unread || age <= minAge) && age <= keepFor && len(numbers)-i-1 <= maxSegments {
			break // the later ones are needed as well
		}
		if unread {
			q.log.Error("a segment was removed before a reader had read it", "file", name, "bytes", info.Size())
		}
		if failed := root.Remove(name); failed == nil {
			q.count(&q.stats.Removed)
		} else {
			err = failed
		}
	}
	return err
}
