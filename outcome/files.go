package outcome

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"feishu-relay/internal/safefile"
)

const (
	// rotateSize is how long an agent's file gets; then it takes the place of the
	// generation before it.
	rotateSize = 4 << 20

	fileEnd  = ".jsonl"
	olderEnd = ".jsonl.1" // of the generation before; no agent's name gives a file that ends in it
)

var errClosed = errors.New("the outcomes' store is closed")

// Files is a [Store] of files in one folder, one for each agent.
type Files struct {
	folder safefile.Folder
	name   string // of this agent's file, without its end
	log    *slog.Logger

	appending sync.Mutex
	rotate    int64 // rotateSize
	start     int64 // startSize
}

var _ Store = (*Files)(nil)

// OpenFiles shares the outcomes of agent in the folder dir, which is made when
// it is needed. The agent has no other writer at a time.
func OpenFiles(dir, agent string, logger *slog.Logger) (*Files, error) {
	if dir == "" || agent == "" {
		return nil, errors.New("outcomes: wants a folder and an agent's name")
	}
	return &Files{
		folder: safefile.Folder{Path: dir, Closed: errClosed},
		name:   safefile.Name(agent),
		log:    cmp.Or(logger, slog.New(slog.DiscardHandler)),
		rotate: rotateSize,
		start:  startSize,
	}, nil
}

// Append adds lines to the agent's file, in one write.
func (f *Files) Append(ctx context.Context, lines [][]byte) error {
	if len(lines) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	f.appending.Lock()
	defer f.appending.Unlock()
	data := append(bytes.Join(lines, []byte{'\n'}), '\n')
	root, err := f.folder.Open(true)
	if err != nil {
		return fmt.Errorf("share outcomes: %w", err)
	}
	if err := f.makeRoom(root, int64(len(data))); err != nil {
		return fmt.Errorf("share outcomes: %w", err)
	}
	file, err := safefile.Open(root, f.name+fileEnd, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("share outcomes: %w", err)
	}
	_, err = safefile.Append(file, data)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("share outcomes: %w", err)
	}
	return nil
}

// makeRoom rotates the file that size more bytes would make too long.
func (f *Files) makeRoom(root *os.Root, size int64) error {
	info, err := root.Stat(f.name + fileEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() == 0 || info.Size()+size <= f.rotate {
		return err
	}
	return root.Rename(f.name+fileEnd, f.name+olderEnd)
}

// Close closes the folder. A Follow that goes on finds it closed, and waits for
// the end of its ctx.
func (f *Files) Close() error { return f.folder.Close() }
