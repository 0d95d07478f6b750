package outcome

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
)

// enough is how long a test waits for what must come; then it fails.
const enough = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openBox opens the outbox of a sidecar's outcomes in a folder.
func openBox(t testing.TB, dir, secret string, log *slog.Logger) *outbox.Box {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	b, err := outbox.Open(root, BoxOptions(secret, time.Minute, log))
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(enough)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never came: %s", what)
		}
	}
}

// run runs a Log of an agent over q until the test ends.
func run(t *testing.T, q Queue, agent relay.AgentName, secret string) *Log {
	t.Helper()
	l := New(Options{Box: openBox(t, t.TempDir(), secret, logger(t)), Queue: q, Agent: agent,
		Secret: secret, Logger: logger(t)})
	running(t, l)
	return l
}

// running runs l until the test ends or stop is called.
func running(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// about is an outcome of the i-th message.
func about(i int, change func(*Outcome)) Outcome {
	o := Outcome{Channel: "feishu", ChatID: "oc_1", RelayMsgID: relay.MessageID(fmt.Sprintf("om_%05d", i)), Sender: "someone"}
	if change != nil {
		change(&o)
	}
	return o
}
