package dedup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// broken returns a window whose journal cannot be written, and a function that
// repairs it.
func broken(t *testing.T) (w *Window, root *os.Root, mend func()) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	root, err := safefile.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	if w, err = Open(root, "seen.jsonl", 0); err != nil {
		t.Fatal(err)
	}
	if err := w.journal.Close(); err != nil {
		t.Fatal(err)
	}
	return w, root, func() {
		if w.journal, err = jsonl.OpenJournal(root, "seen.jsonl", maxKey, func([]byte) {}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close() })
	}
}

func TestMemoryKnowsWhatTheDiskRefused(t *testing.T) {
	for _, keys := range []int{1, flushAt, 2 * maxUnsaved} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			w, root, mend := broken(t)
			failed := 0
			for i := range keys {
				w.Claim(fmt.Sprint(i))
				if err := w.Settle(fmt.Sprint(i), true); err != nil {
					failed++
				}
			}
			if w.Flush() == nil || (keys >= flushAt && failed == 0) {
				t.Error("the disk's failure was not told")
			}
			last := fmt.Sprint(keys - 1)
			if got := w.Claim(last); got != Done {
				t.Errorf("claim: got %d, want Done", got)
			}
			if got := len(w.unsaved); got > 10*maxUnsaved {
				t.Errorf("%d bytes wait for the disk", got)
			}
			mend()
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			again, err := Open(root, "seen.jsonl", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			for i := max(0, keys-DefaultSize); i < keys; i++ {
				if !again.Seen(fmt.Sprint(i)) {
					t.Fatalf("key %d of %d is not in the journal", i, keys)
				}
			}
		})
	}
}
