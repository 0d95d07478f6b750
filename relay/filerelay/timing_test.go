package filerelay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// The position is stored 200 ms after the first settled line, at once after a
// thousand, and the queue is looked at each second without notices.
func TestClock(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q, err := New(Options{Dir: dir, Queue: "outbound", Agent: "a", NoNotify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		var mu sync.Mutex
		var came []time.Time // guarded by mu
		arrivals := func() []time.Time {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return came
		}
		reading.Go(func() {
			if err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
				mu.Lock()
				came = append(came, time.Now())
				mu.Unlock()
				d.Settle()
			}); err != nil {
				t.Error(err)
			}
		})
		defer reading.Wait()
		defer cancel()
		stored := func() int64 {
			synctest.Wait()
			data, err := os.ReadFile(filepath.Join(dir, "offsets", "a.outbound.json"))
			if err != nil {
				t.Fatal(err)
			}
			c, err := parseCheckpoint(data)
			if err != nil {
				t.Fatal(err)
			}
			return c.Offset
		}
		write := func(lines ...[]byte) int64 {
			if _, err := q.Publish(ctx, lines, ""); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, "outbound.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		start := time.Now()
		time.Sleep(500 * time.Millisecond)
		size := write(relaytest.Line("a", 1))
		time.Sleep(400 * time.Millisecond)
		if len(arrivals()) != 0 {
			t.Error("a line came before the queue was looked at")
		}
		time.Sleep(200 * time.Millisecond) // 1.1 s
		if came := arrivals(); len(came) != 1 || came[0].Sub(start) != time.Second {
			t.Fatalf("%d lines came, want one after 1 s", len(came))
		}
		if got := stored(); got != 0 {
			t.Errorf("stored offset is %d 100 ms after the line was settled, want 0", got)
		}
		time.Sleep(150 * time.Millisecond) // 1.25 s
		if got := stored(); got != size {
			t.Errorf("stored offset is %d 250 ms after the line was settled, want %d", got, size)
		}
		time.Sleep(700 * time.Millisecond) // 1.95 s
		size = write(relaytest.Lines("a", 2, 1+saveEvery)...)
		time.Sleep(60 * time.Millisecond) // 2.01 s
		if came := arrivals(); len(came) != 1+saveEvery {
			t.Fatalf("%d lines came, want %d", len(came), 1+saveEvery)
		}
		if got := stored(); got != size {
			t.Errorf("stored offset is %d after %d lines, want %d at once", got, saveEvery, size)
		}
	})
}

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

// Only an expired claim waits for the lock that a paused process has, and returns an error
// about it in the end.
func TestClaimLocked(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, claimsDir)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, claimsLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := safefile.Lock(lock); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "key"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		q, err := New(Options{Dir: dir, Queue: "outbound", Agent: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		began := time.Now()
		if holder, err := q.Claim(t.Context(), "other", "a", time.Hour); err != nil || holder != "a" {
			t.Errorf("a free key: %q, %v", holder, err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a free key took %v", took)
		}
		holder, err := q.Claim(t.Context(), "key", "a", time.Hour)
		if holder != "" || !errors.Is(err, errClaimsLocked) {
			t.Errorf("an expired claim: %q, %v, want %v", holder, err, errClaimsLocked)
		}
		if took := time.Since(began); took != publishTimeout {
			t.Errorf("it took %v, want %v", took, publishTimeout)
		}
	})
}
