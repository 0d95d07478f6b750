package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 60 * time.Second

// world is a real store, of which any number are opened at one place.
type world struct {
	open func(*testing.T) mailbox.Store
	away func(*testing.T) (back func()) // breaks the store for mail to "b"
	dir  string                         // of files; "" for Redis
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sender is a box at work on a store.
type sender struct {
	*outgoing
	store mailbox.Store
	died  chan DeadLetter
}

// sending starts a box that waits 20 ms for an acknowledgement, and retries
// almost at once; change may be nil.
func sending(t *testing.T, w world, change func(*outgoingOptions)) *sender {
	t.Helper()
	s := &sender{store: w.open(t), died: make(chan DeadLetter, 100)}
	opts := outgoingOptions{Store: s.store, Died: func(d DeadLetter) { s.died <- d },
		AckTimeout: 20 * time.Millisecond, RetryBase: time.Millisecond, MaxRetries: 3,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&opts)
	}
	var roots []*os.Root
	for _, name := range []string{"unacked", "dead"} {
		root, err := safefile.OpenDir(filepath.Join(t.TempDir(), name))
		must(t, err)
		t.Cleanup(func() { _ = root.Close() })
		roots = append(roots, root)
	}
	var err error
	s.outgoing, err = openOutgoing(roots[0], roots[1], opts.withDefaults())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = s.store.Close() })
	return s
}
