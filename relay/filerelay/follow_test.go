package filerelay_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// Of a capped queue only the newest lines are kept, even if a program follows the folder by its
// byte offset.
func TestCapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "offsets", "naive.txt"), []byte("5"), 0o600))
	q := queue(t, dir, "a", filerelay.Options{RotateSize: 10_000, Capped: true})
	h := follow(t, q)
	h.wait(1) // caught up
	const n = 1000
	for i := 1; i <= n; i++ {
		publish(t, q, relaytest.Line("a", i))
		if got := h.wait(i + 1)[i]; got != string(relaytest.Line("a", i)) {
			t.Fatalf("line %d is %.80q", i, got)
		}
	}
	if got := len(segmentsOf(t, dir)); got != 1 {
		t.Errorf("%d segments are left, want 1", got)
	}
	h = follow(t, queue(t, dir, "b", filerelay.Options{}))
	eventually(t, "caught up", func() bool { return strings.Contains(strings.Join(h.got(), ""), "caught up: false") })
	kept := len(h.got()) - 1
	if got := h.got()[0]; got != string(relaytest.Line("a", n-kept+1)) {
		t.Errorf("the first of the newest %d lines is %.80q", kept, got)
	}
}

// What is followed is removed or cut, and goes on with what comes then.
func TestFollowAnotherFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "relay")
	q := queue(t, dir, "a", filerelay.Options{})
	h := follow(t, q)
	h.wait(1) // caught up
	for round := range 4 {
		lines := relaytest.Lines("a", 3*round+1, 3*round+3)
		publish(t, q, lines...)
		for i, got := range h.wait(3*round + 4)[3*round+1:] {
			if got != string(lines[i]) {
				t.Fatalf("line %d of round %d is %.80q", i, round, got)
			}
		}
		if round%2 == 0 {
			must(t, os.RemoveAll(dir))
		} else {
			must(t, os.Truncate(live(dir), 0))
		}
	}
}
