package outcome

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"feishu-relay/internal/jsonl"
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
	file      jsonl.Log // in folder; guarded by appending
	rotate    int64     // rotateSize
	start     int64     // startSize
}

var _ Store = (*Files)(nil)

// OpenFiles shares the outcomes of agent in the folder dir, which is made when
// it is needed. The agent has no other writer at a time.
func OpenFiles(dir, agent string, logger *slog.Logger) (*Files, error) {
	if dir == "" || agent == "" {
		return nil, errors.New("outcomes: wants a folder and an agent's name")
	}
	f := &Files{
		folder: safefile.Folder{Path: dir, Closed: errClosed},
		name:   safefile.Name(agent),
		log:    cmp.Or(logger, slog.New(slog.DiscardHandler)),
		rotate: rotateSize,
		start:  startSize,
	}
	f.file = jsonl.Log{Folder: &f.folder, Name: f.name + fileEnd, Alone: true}
	return f, nil
}

// Append adds lines to the agent's file, in one write.
func (f *Files) Append(ctx context.Context, lines [][]byte) error {
	if len(lines) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	f.appending.Lock()
	defer f.appending.Unlock()
	data := append(bytes.Join(lines, []byte{'\n'}), '\n')
	err := f.file.Do(0, func(size int64) error {
		if size > 0 && size+int64(len(data)) > f.rotate {
			return cmp.Or(f.file.Rotate(f.name+olderEnd, size), jsonl.ErrMoved)
		}
		_, err := f.file.Append(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("share outcomes: %w", err)
	}
	return nil
}

// Close closes the folder. A Follow that goes on finds it closed, and waits for
// the end of its ctx.
func (f *Files) Close() error {
	f.appending.Lock()
	defer f.appending.Unlock()
	f.file.Close()
	return f.folder.Close()
}
