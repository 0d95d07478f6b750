package dedup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"feishu-relay/dedup"
	"feishu-relay/internal/safefile"
)

const journal = "seen.jsonl"

func folder(tb testing.TB) *os.Root {
	tb.Helper()
	root, err := safefile.OpenDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { root.Close() })
	return root
}

func open(tb testing.TB, root *os.Root, size int) *dedup.Window {
	tb.Helper()
	w, err := dedup.Open(root, journal, size)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.Close() })
	return w
}

func settle(tb testing.TB, w *dedup.Window, keys ...string) {
	tb.Helper()
	for _, key := range keys {
		w.Claim(key)
		if err := w.Settle(key, true); err != nil {
			tb.Fatal(err)
		}
	}
}

func wantState(tb testing.TB, w *dedup.Window, key string, want dedup.State) {
	tb.Helper()
	if got := w.Claim(key); got != want {
		tb.Errorf("claim of %.40q: got %d, want %d", key, got, want)
	}
}

func lines(tb testing.TB, root *os.Root) []string {
	tb.Helper()
	data, err := root.ReadFile(journal)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(data)))
}

func TestClaimAndSettle(t *testing.T) {
	for name, w := range map[string]*dedup.Window{"memory": dedup.Memory(0), "journal": open(t, folder(t), 0)} {
		t.Run(name, func(t *testing.T) {
			wantState(t, w, "a", dedup.New)
			wantState(t, w, "a", dedup.Pending)
			if w.Seen("a") {
				t.Error("a pending key counts as seen")
			}
			if err := w.Settle("a", false); err != nil {
				t.Fatal(err)
			}
			wantState(t, w, "a", dedup.New) // its handling failed: a repeat gets its chance
			if err := w.Settle("a", true); err != nil {
				t.Fatal(err)
			}
			wantState(t, w, "a", dedup.Done)
			if !w.Seen("a") || w.Seen("b") {
				t.Error("seen is not what was settled")
			}
			wantState(t, w, "b", dedup.New) // Seen has not claimed it
		})
	}
}

func TestOldestKeyGoesFirst(t *testing.T) {
	w := dedup.Memory(3)
	settle(t, w, "a", "b", "c")
	wantState(t, w, "a", dedup.Done) // and is used by that
	settle(t, w, "d")
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if got := w.Seen(key); got != want {
			t.Errorf("%s: got %v, want %v", key, got, want)
		}
	}
}

func TestJournalWithJunk(t *testing.T) {
	for name, before := range map[string]string{
		"nothing":           "",
		"a torn line":       "\"a\"\n\"om_12",
		"a torn first line": "\"om_12",
		"no JSON":           "\"a\"\n\x00\xff\nnull\n17\n{}\n[]\n\n\r\n",
		"an over-long line": "\"" + strings.Repeat("x", 100_000) + "\"\n\"a\"\n",
		"one torn for ever": "\"a\"\n" + strings.Repeat("x", 50_000),
		"a hand's line end": "\"a\"\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			root := folder(t)
			if err := root.WriteFile(journal, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			w := open(t, root, 0)
			if strings.Contains(before, `"a"`) {
				wantState(t, w, "a", dedup.Done)
			}
			if w.Seen("om_12") || w.Seen("") {
				t.Error("junk was taken for a key")
			}
			settle(t, w, "b")
			w = open(t, root, 0)
			wantState(t, w, "b", dedup.Done)
			if strings.Contains(before, `"a"`) {
				wantState(t, w, "a", dedup.Done)
			}
		})
	}
}

func TestCompactionBoundsTheFileAndKeepsWhatCounts(t *testing.T) {
	const size = 50
	root := folder(t)
	w := open(t, root, size)
	most := 0
	for i := range 8000 {
		settle(t, w, fmt.Sprint(i))
		if i%200 == 0 {
			most = max(most, len(lines(t, root)))
		}
	}
	if most > 3000 {
		t.Errorf("the journal grew to %d lines for %d keys", most, size)
	}
	w = open(t, root, size)
	for i := 8000 - size; i < 8000; i++ {
		wantState(t, w, fmt.Sprint(i), dedup.Done)
	}
	wantState(t, w, "0", dedup.New)
}

func TestConcurrentClaimsGiveOneNewPerKey(t *testing.T) {
	const keys, claimers = 300, 8
	w := open(t, folder(t), 0)
	var won [keys]atomic.Int32
	var group sync.WaitGroup
	for range claimers {
		group.Go(func() {
			for _, i := range rand.Perm(keys) {
				key := fmt.Sprint(i)
				if w.Claim(key) != dedup.New {
					continue
				}
				won[i].Add(1)
				if err := w.Settle(key, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for i := range won {
		if got := won[i].Load(); got != 1 {
			t.Errorf("key %d was new %d times, want once", i, got)
		}
	}
}

// TestKeysThatTheDiskRefused: they count, and are in the journal as soon as the disk takes something again.
func TestKeysThatTheDiskRefused(t *testing.T) {
	root := folder(t)
	w := open(t, root, 100)
	for i := range 3000 {
		settle(t, w, fmt.Sprint(i))
	}
	if err := errors.Join(root.Remove(journal), root.Mkdir(journal, 0o700)); err != nil { // nothing replaces a folder
		t.Fatal(err)
	}
	w.Claim("refused")
	if w.Settle("refused", true) == nil {
		t.Fatal("the failure of the disk was not returned")
	}
	wantState(t, w, "refused", dedup.Done)
	if err := root.Remove(journal); err != nil {
		t.Fatal(err)
	}
	settle(t, w, "next")
	w = open(t, root, 0)
	for _, key := range []string{"2999", "refused", "next"} {
		wantState(t, w, key, dedup.Done)
	}
}
