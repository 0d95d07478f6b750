package relaytest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/relay"
)

// follower runs one Follow.
type follower struct {
	t      *testing.T
	lines  chan []byte
	caught chan bool
	stop   func()
}

// follow starts following b; it is stopped with the test.
func follow(t *testing.T, b relay.Backend) *follower {
	t.Helper()
	f := &follower{t: t, lines: make(chan []byte, 1<<16), caught: make(chan bool, 10)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- b.Follow(ctx, func(line []byte) { f.lines <- bytes.Clone(line) },
			func(whole bool) { f.caught <- whole })
	}()
	f.stop = sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Follow returned %v after its context was done, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Follow did not return after its context was done")
		}
	})
	t.Cleanup(f.stop)
	return f
}

// want takes exactly these lines in this order.
func (f *follower) want(lines ...[]byte) {
	f.t.Helper()
	for i, want := range lines {
		select {
		case got := <-f.lines:
			if !bytes.Equal(got, want) {
				f.t.Fatalf("line %d is %.80q, want %.80q", i+1, got, want)
			}
		case <-time.After(patience):
			f.t.Fatalf("line %d of %d did not come", i+1, len(lines))
		}
	}
}

// caughtUp waits for the call of caughtUp and checks its argument.
func (f *follower) caughtUp(want bool) {
	f.t.Helper()
	select {
	case whole := <-f.caught:
		if whole != want {
			f.t.Errorf("caught up, whole %v, want %v", whole, want)
		}
	case <-time.After(patience):
		f.t.Fatal("did not catch up")
	}
}

func testFollow(t *testing.T, _ Features, open Open) {
	writer := opened(t, open, "writer")
	publish(t, writer, Lines("w", 1, 3)...)
	b := opened(t, open, "b")
	f := follow(t, b)
	f.caughtUp(true)
	if got := len(f.lines); got != 3 {
		t.Errorf("caught up after %d lines, want 3", got)
	}
	f.want(Lines("w", 1, 3)...)
	for batch := range slices.Chunk(Lines("w", 4, 60), 7) {
		publish(t, writer, batch...)
	}
	f.want(Lines("w", 4, 60)...)
	f.stop()
	if len(f.caught) > 0 {
		t.Error("caught up twice")
	}

	publish(t, writer, Line("w", 61))
	follow(t, b).want(Lines("w", 1, 61)...) // no position was stored
}

func testFollowEmpty(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	f := follow(t, b)
	f.caughtUp(true)
	publish(t, b, Lines("b", 1, 5)...)
	f.want(Lines("b", 1, 5)...)
}

func testFollowBesideOthers(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	first, second, r := follow(t, b), follow(t, b), subscribe(t, b)
	eventually(t, "Reading", func() bool { return b.Status().Reading })
	publish(t, b, Lines("b", 1, 20)...)
	r.want(Lines("b", 1, 20)...)
	first.want(Lines("b", 1, 20)...)
	first.stop()
	if s := b.Status(); !s.Connected || !s.Reading {
		t.Errorf("after the end of a Follow the status is %+v", s)
	}
	publish(t, b, Lines("b", 21, 40)...)
	r.want(Lines("b", 21, 40)...)
	second.want(Lines("b", 1, 40)...)
}

func testFollowHostile(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	lines := [][]byte{[]byte("{"), []byte("null"), []byte("\x00"), []byte("\xff\xfe"), []byte("%s%d"),
		bytes.Repeat([]byte("["), 70_000), Line("b", 1)}
	publish(t, b, lines...)
	follow(t, b).want(lines...)
}

func testFollowClosed(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	done, caught := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Follow(context.Background(), func([]byte) {}, func(bool) { close(caught) }) // any result will do
	}()
	for _, came := range []chan struct{}{caught, done} {
		select {
		case <-came:
		case <-time.After(patience):
			t.Fatal("Follow did not catch up, or did not return after Close")
		}
		closed(t, b)
	}
}

func testClaim(t *testing.T, _ Features, open Open) {
	var queues []relay.Backend
	for i := range 4 {
		queues = append(queues, opened(t, open, fmt.Sprint("agent", i)))
	}
	claimed := race(t, queues, []string{"notice:1", "../x", "通知", ".", "", strings.Repeat("long", 500)}, time.Hour)
	for key, n := range claimed {
		if n != 1 {
			t.Errorf("%.20q was claimed %d times", key, n)
		}
	}
	closed(t, queues[0])
	again := opened(t, open, "agent0")
	holder, err := again.Claim(t.Context(), "notice:1", "another owner", time.Hour)
	if err != nil || !strings.HasPrefix(holder, "owner") {
		t.Fatalf("after a restart: got %q, %v, want the first owner", holder, err)
	}
	if same, err := again.Claim(t.Context(), "notice:1", holder, time.Hour); err != nil || same != holder {
		t.Errorf("the owner claims again: got %q, %v, want %q", same, err, holder)
	}
}

func testClaimExpires(t *testing.T, _ Features, open Open) {
	a, b := opened(t, open, "a"), opened(t, open, "b")
	for _, key := range []string{"short", "short too"} {
		if holder, err := a.Claim(t.Context(), key, "a", time.Second); err != nil || holder != "a" {
			t.Fatalf("claim %q: %v, %v", key, holder, err)
		}
	}
	if holder, err := a.Claim(t.Context(), "long", "a", time.Hour); err != nil || holder != "a" {
		t.Fatalf("claim: %v, %v", holder, err)
	}
	eventually(t, "the end of a claim", func() bool {
		n := race(t, []relay.Backend{a, b}, []string{"short"}, time.Hour)["short"]
		if n > 1 {
			t.Fatalf("%d claims of a key that was free again", n)
		}
		return n == 1
	})
	if holder, err := b.Claim(t.Context(), "long", "b", time.Hour); err != nil || holder != "a" {
		t.Errorf("a long claim: got %v, %v, want a", holder, err)
	}
}

// race lets all queues claim all keys, each several times, and counts the claims that
// succeeded.
func race(t *testing.T, queues []relay.Backend, keys []string, life time.Duration) map[string]int64 {
	t.Helper()
	firsts := make([]atomic.Int64, len(keys))
	var racing sync.WaitGroup
	for i, q := range queues {
		for j := range 3 {
			owner := fmt.Sprintf("owner %d of %d", j, i)
			racing.Go(func() {
				for i, key := range keys {
					holder, err := q.Claim(t.Context(), key, owner, life)
					if err != nil {
						t.Errorf("claim %.20q: %v", key, err)
					}
					if holder == owner {
						firsts[i].Add(1)
					}
				}
			})
		}
	}
	racing.Wait()
	claimed := map[string]int64{}
	for i, key := range keys {
		claimed[key] = firsts[i].Load()
	}
	return claimed
}

func testClaimFails(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if holder, err := b.Claim(ctx, "key", "b", time.Hour); err == nil || holder != "" {
		t.Errorf("under a done context: got %v, %v, want an error", holder, err)
	}
	closed(t, b)
	if holder, err := b.Claim(t.Context(), "key", "b", time.Hour); err == nil || holder != "" {
		t.Errorf("after close: got %v, %v, want an error", holder, err)
	}
}
