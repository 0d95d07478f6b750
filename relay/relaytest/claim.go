package relaytest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/relay"
)

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
	Eventually(t, "the end of a claim", func() bool {
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
