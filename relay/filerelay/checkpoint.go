package filerelay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// maxCheckpoint is the most bytes a checkpoint file may have; a larger one is
// broken.
const maxCheckpoint = 4096

// noSum is the sum at the beginning of a file.
var noSum = new(jsonl.Tail).Sum()

// errBroken is wrapped if a checkpoint can be read but is invalid.
var errBroken = errors.New("broken checkpoint")

// fileID identifies a file across renames; the zero value is no file.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// checkpoint is a reader's position on disk.
type checkpoint struct {
	File   fileID    `json:"file"`
	Offset int64     `json:"offset"` // everything before it in the file is settled
	Sum    jsonl.Sum `json:"sum"`    // of the bytes before Offset
	After  uint64    `json:"after"`  // all segments up to this number are settled
	// History is where this sidecar's history ends, while Offset is before that.
	History *border `json:"history,omitempty"`
}

// border is the end of the queue at this sidecar's first start: all segments
// up to After, and File up to Offset.
type border struct {
	File   fileID `json:"file"`
	Offset int64  `json:"offset"`
	After  uint64 `json:"after"`
}

// covers reports whether a line of src that starts at offset is history.
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
// before the first start and errBroken if the content is invalid.
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
// power cut an older position only means that more lines are read again.
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
