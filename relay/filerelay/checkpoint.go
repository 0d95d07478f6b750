package filerelay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"feishu-relay/internal/safefile"
)

const (
	// guardSize is how many bytes before a place tell whether it still is the
	// same place.
	guardSize = 256
	// maxCheckpoint is the most bytes a checkpoint file may have; a larger one
	// is broken.
	maxCheckpoint = 4096
)

// errBroken is wrapped when a checkpoint can be read and makes no sense.
var errBroken = errors.New("broken checkpoint")

// fileID identifies a file over its renames; the zero value is no file.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// checkpoint is a reader's position on disk.
type checkpoint struct {
	File   fileID `json:"file"`
	Offset int64  `json:"offset"` // everything before it in the file is settled
	Sum    sum    `json:"sum"`    // of the bytes before Offset
	After  uint64 `json:"after"`  // all segments up to this number are settled
	// History is where this sidecar's history ends, while Offset lies before it.
	History *border `json:"history,omitempty"`
}

// border is the end of the queue at this sidecar's first start: all segments
// up to After, and File up to Offset.
type border struct {
	File   fileID `json:"file"`
	Offset int64  `json:"offset"`
	After  uint64 `json:"after"`
}

// covers tells whether a line of src that starts at offset is history.
func (b *border) covers(src *source, offset int64) bool {
	switch {
	case b == nil:
		return false
	case src.id == b.File:
		return offset < b.Offset
	case src.file == nil:
		return true // nothing was read yet
	}
	return src.number != 0 && src.number <= b.After
}

// sum tells one place from another by what stands before it; 16 hex digits in
// the checkpoint, since numbers of this size do not survive every JSON tool.
type sum uint64

// sumOf hashes what stands before a place; only the last guardSize bytes count.
func sumOf(before []byte) sum {
	return sum(xxhash.Sum64(before[max(0, len(before)-guardSize):]))
}

func (s sum) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(s)), nil }

func (s *sum) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return errors.New("sum is not 16 hex digits")
	}
	*s = sum(n)
	return nil
}

// parseCheckpoint reads a stored position. Errors wrap errBroken.
func parseCheckpoint(data []byte) (checkpoint, error) {
	var c checkpoint
	if len(data) > maxCheckpoint {
		return c, fmt.Errorf("%w: %d bytes", errBroken, len(data))
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return checkpoint{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	if c.Offset < 0 || c.History != nil && c.History.Offset < 0 {
		return checkpoint{}, fmt.Errorf("%w: negative offset", errBroken)
	}
	if c.After > maxNumber || c.History != nil && c.History.After > maxNumber {
		return checkpoint{}, fmt.Errorf("%w: no such segment", errBroken)
	}
	return c, nil
}

// checkpointName is the file of one reader's position, below the queue's folder.
func checkpointName(queue, agent string) string {
	return path.Join(offsetsDir, safefile.Name(agent)+"."+queue+".json")
}

// loadCheckpoint reads the checkpoint file name. Errors wrap fs.ErrNotExist
// before the first start and errBroken when the content makes no sense.
func loadCheckpoint(root *os.Root, name string) (checkpoint, error) {
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return parseCheckpoint(data)
}

// storeCheckpoint replaces the checkpoint file name. It is not synced: after a
// power cut an older position only reads more again.
func storeCheckpoint(root *os.Root, name string, c checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("store checkpoint: %w", err)
	}
	if err = safefile.ReplaceFast(root, name, append(data, '\n')); err != nil {
		return fmt.Errorf("store checkpoint: %w", err)
	}
	return nil
}

// makeOffsets makes the folder of the checkpoints.
func makeOffsets(root *os.Root) error {
	sub, err := safefile.OpenSub(root, offsetsDir)
	if err != nil {
		return err
	}
	return sub.Close()
}
