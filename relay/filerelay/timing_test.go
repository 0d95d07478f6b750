package filerelay_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// A stopped process that holds the lock does not block the others forever.
func TestLockIsNotAwaitedForEver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, dir, "a", filerelay.Options{})
		holder, err := os.Create(live(dir))
		must(t, err)
		defer holder.Close()
		_, err = safefile.TryLock(holder)
		must(t, err)
		start := time.Now()
		fails := func(ctx context.Context, after time.Duration) {
			t.Helper()
			_, err := q.Publish(ctx, relaytest.Lines("a", 1, 1), "")
			if got := time.Since(start); err == nil || got < after || got > after+2*time.Millisecond {
				t.Errorf("publish beside a held lock returned %v after %v, want an error after %v", err, got, after)
			}
		}
		fails(t.Context(), 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(ctx, 11*time.Second)
		time.AfterFunc(time.Second, func() { must(t, q.Close()) })
		fails(t.Context(), 12*time.Second)
	})
}
