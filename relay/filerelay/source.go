package filerelay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// maxLooks is how often a call lists the segments if they change meanwhile.
const maxLooks = 20

// source is a file that the reader reads or has read.
type source struct {
	file   *os.File // nil before it is found
	id     fileID
	number uint64 // of a segment; 0: the queue file, or one that others renamed
	after  uint64 // all segments up to this number precede it
}

// place is a position in src, after a line.
type place struct {
	src    *source
	offset int64
	sum    jsonl.Sum // of the bytes before it
}

func openSource(root *os.Root, name string, number, after uint64) (*source, error) {
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open queue file: %w", err)
	}
	id, err := idOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open queue file: %w", err), f.Close())
	}
	return &source{file: f, id: id, number: number, after: after}, nil
}

func (s *source) close() {
	if s.file != nil {
		_ = s.file.Close() // only read
	}
}

// at returns the place at offset of s; false if want is not the sum of the
// bytes before it.
func (s *source) at(offset int64, want jsonl.Sum) (jsonl.Tail, bool) {
	t, err := jsonl.At(s.file, relay.MaxLine, offset)
	return t, err == nil && t.Sum() == want
}

// size is the current size of the file in bytes.
func (s *source) size() (int64, error) {
	info, err := s.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// rest returns the bytes after t, at most a line.
func (s *source) rest(t *jsonl.Tail) ([]byte, error) {
	size, err := s.size()
	if err != nil {
		return nil, err
	}
	return t.Rest(s.file, size)
}

// locate finds the file of a stored position, under whatever name, in which the position is still valid. It
// returns nil if there is none.
func locate(root *os.Root, queue string, c checkpoint) (*source, error) {
	list, err := candidates(root, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		number, _ := segmentNumber(queue, name)
		src, err := openSource(root, name, number, c.After)
		if err != nil {
			continue // removed meanwhile, a folder, or unreadable
		}
		if src.id == c.File {
			if _, found := src.at(c.Offset, c.Sum); found {
				return src, nil
			}
		}
		src.close()
	}
	return nil, nil
}

// successor opens the file after cur: the next segment, else the queue file. It
// returns nil if that is cur itself or does not exist now.
func successor(root *os.Root, queue string, cur *source) (*source, error) {
	for range maxLooks {
		numbers, err := segments(root, queue)
		if err != nil {
			return nil, err
		}
		from := cur.after
		if cur.number != 0 {
			from = cur.number
		} else if n, ok := rotatedTo(root, queue, numbers, cur); ok {
			from = n
		}
		if i, _ := slices.BinarySearch(numbers, from+1); i < len(numbers) {
			src, err := openSource(root, segmentName(queue, numbers[i]), numbers[i], from)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since it was listed
			}
			return src, err
		}
		src, err := openSource(root, liveName(queue), 0, from)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// A rotation since the list was made would cause a segment to be
		// skipped.
		again, listErr := segments(root, queue)
		if listErr == nil && len(again) > 0 && again[len(again)-1] > from {
			if src != nil {
				src.close()
			}
			continue
		}
		if src != nil && (listErr != nil || src.id == cur.id) {
			src.close()
			src = nil
		}
		return src, listErr
	}
	return nil, fmt.Errorf("segments changed %d times in a row", maxLooks)
}

// rotatedTo finds the segment that cur has become.
func rotatedTo(root *os.Root, queue string, numbers []uint64, cur *source) (uint64, bool) {
	if cur.file == nil {
		return 0, false
	}
	for _, n := range slices.Backward(numbers) {
		if safefile.Same(root, segmentName(queue, n), cur.file) {
			return n, true
		}
	}
	return 0, false
}
