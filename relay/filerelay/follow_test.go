package filerelay_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// followed runs a Follow until the test ends.
func followed(t *testing.T, q *filerelay.Queue) (got chan []byte, caught chan bool) {
	t.Helper()
	got, caught = make(chan []byte, 1<<16), make(chan bool, 10)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		must(t, q.Follow(ctx, func(line []byte) { got <- bytes.Clone(line) }, func(whole bool) { caught <- whole }))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return got, caught
}

func wantLines(t *testing.T, got chan []byte, want ...[]byte) {
	t.Helper()
	for i, line := range want {
		select {
		case text := <-got:
			if !bytes.Equal(text, line) {
				t.Fatalf("line %d is %.80s, want %.80s", i+1, text, line)
			}
		case <-time.After(time.Minute):
			t.Fatalf("line %d did not come", i+1)
		}
	}
}

func capped(t *testing.T, dir string) *filerelay.Queue {
	t.Helper()
	q, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outcomes", Agent: "a", RotateSize: 10_000, Capped: true,
		Recheck: 10 * time.Millisecond})
	must(t, err)
	t.Cleanup(func() { must(t, q.Close()) })
	return q
}

// Of a capped queue only the newest lines are kept, though a program that follows another
// queue of the folder by its byte offset keeps that one from being rotated.
func TestCapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "offsets", "naive.txt"), []byte("5"), 0o600))
	q := capped(t, dir)
	got, _ := followed(t, q)
	const n = 1000
	for i := 1; i <= n; i++ {
		_, err := q.Publish(t.Context(), relaytest.Lines("a", i, i), "")
		must(t, err)
		wantLines(t, got, relaytest.Line("a", i))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	must(t, err)
	if len(files) != 2 {
		t.Errorf("%d files are left, want the queue and the segment before it: %q", len(files), files)
	}
	got, caught := followed(t, capped(t, dir))
	if whole := <-caught; whole {
		t.Error("what is kept is not all there was")
	}
	kept := len(got)
	wantLines(t, got, relaytest.Lines("a", n-kept+1, n)...)
}

// What was shared is removed beneath who follows, who goes on with what comes.
func TestFollowAnotherFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "relay")
	q := capped(t, dir)
	got, _ := followed(t, q)
	for round := range 4 {
		news := relaytest.Lines("a", 10*round+1, 10*round+3)
		_, err := q.Publish(t.Context(), news, "")
		must(t, err)
		wantLines(t, got, news...)
		if round%2 == 0 {
			must(t, os.RemoveAll(dir))
		} else {
			must(t, os.Truncate(filepath.Join(dir, "outcomes.jsonl"), 0))
		}
	}
}
