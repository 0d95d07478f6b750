package filerelay

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay/relaytest"
)

// A stopped process that holds the lock does not block the others forever.
func TestLockIsNotAwaitedForEver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q, err := New(Options{Dir: dir, Queue: "outbound", Agent: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		holder, err := os.Create(filepath.Join(dir, "outbound.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if err := safefile.Lock(holder); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := q.Publish(t.Context(), relaytest.Lines("a", 1, 1), ""); err == nil {
			t.Error("publish beside a held lock returned no error")
		}
		if got := time.Since(start); got != publishTimeout {
			t.Errorf("publish returned after %v, want %v", got, publishTimeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, err := q.Publish(ctx, relaytest.Lines("a", 1, 1), ""); err == nil || time.Since(start) != time.Second {
			t.Errorf("publish under a context of 1 s returned %v after %v", err, time.Since(start))
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := q.Publish(t.Context(), relaytest.Lines("a", 1, 1), ""); err == nil {
				t.Error("publish that waited when the queue was closed returned no error")
			}
		})
		time.Sleep(time.Second)
		start = time.Now()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		if got := time.Since(start); got > 2*jsonl.MaxLockPause {
			t.Errorf("Close took %v beside a Publish that waits", got)
		}
		if err := holder.Close(); err != nil {
			t.Error(err)
		}
	})
}
