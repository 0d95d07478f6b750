package filerelay

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/safefile"
)

const (
	suffix     = ".jsonl"
	offsetsDir = "offsets"

	// maxSegments bounds the rotated files: at each rotation the oldest ones
	// beyond it are removed, read or not, with an error in the log (with the
	// default size that is 4 GiB unread).
	maxSegments = 64
	// maxNumber is the highest number of a segment: a file with a higher one is
	// not a segment, and a writer that reached it stops rotating.
	maxNumber = math.MaxInt64
	// maxCandidates is the most files that are searched for a lost position.
	maxCandidates = 200
)

func liveName(queue string) string { return queue + suffix }

// segmentName is the name of a rotated file; names sort as their numbers do.
func segmentName(queue string, number uint64) string {
	return fmt.Sprintf("%s.%020d%s", queue, number, suffix)
}

// segmentNumber reads a name that segmentName made.
func segmentNumber(queue, name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, queue+".")
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, suffix); !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && n <= maxNumber
}

// segments lists the numbers of the rotated files, oldest first.
func segments(root *os.Root, queue string) ([]uint64, error) {
	list, err := safefile.Names(root)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range list {
		if n, ok := segmentNumber(queue, name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// candidates lists the files that may hold a reader's lost position: the queue
// file, the segments from the newest on, and the names that other rotators give
// the queue file (outbound.jsonl.1, outbound.jsonl-20261120).
func candidates(root *os.Root, queue string) ([]string, error) {
	list, err := safefile.Names(root)
	if err != nil {
		return nil, err
	}
	live := liveName(queue)
	var ours, others []string
	for _, name := range list {
		if _, ok := segmentNumber(queue, name); ok {
			ours = append(ours, name)
		} else if name != live && strings.HasPrefix(name, live) {
			others = append(others, name)
		}
	}
	slices.Sort(ours)
	slices.Reverse(ours)
	slices.Sort(others)
	all := append(append([]string{live}, ours...), others...)
	return all[:min(len(all), maxCandidates)], nil
}
