package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/relay"
)

func TestSeqGoesOn(t *testing.T) {
	for name, lose := range map[string]func(dir string){
		"after a crash":              func(string) {},
		"without its segments":       func(dir string) { os.Remove(filepath.Join(dir, "00000000000000000001.jsonl")) },
		"without its state":          func(dir string) { os.Remove(filepath.Join(dir, stateFile)) },
		"with a leftover of a state": func(dir string) { appendToFile(filepath.Join(dir, stateFile+".ABC.tmp")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := openBox(t, dir, Options{})
			put(t, b, "1", "2")
			if err := b.Save(); err != nil {
				t.Fatal(err)
			}
			lose(dir)
			b = openBox(t, dir, Options{})
			if m, err := b.Put(message("3")); err != nil || m.Seq != 3 {
				t.Errorf("seq: got %d, %v; want 3", m.Seq, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func appendToFile(path string) { _ = os.WriteFile(path, []byte("{"), 0o600) }

func TestPutRefuses(t *testing.T) {
	t.Run("when too much waits", func(t *testing.T) {
		b := openBox(t, t.TempDir(), Options{})
		put(t, b, "1")
		b.pending += maxPending
		if _, err := b.Put(message("2")); !errors.Is(err, ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		b.pending -= maxPending
		if m, err := b.Put(message("2")); err != nil || m.Seq != 2 {
			t.Errorf("with room again: got seq %d, %v; want 2", m.Seq, err)
		}
	})
	t.Run("what is too large, and goes on", func(t *testing.T) {
		q := &backend{}
		b := openBox(t, t.TempDir(), Options{})
		m := message("1")
		m.SenderName = strings.Repeat("x", relay.MaxLine)
		if _, err := b.Put(m); err == nil {
			t.Error("no error")
		}
		put(t, b, "1")
		drain(t, b, q)
		wantIDs(t, "published", q.saw(t), []string{"1"})
	})
	t.Run("when the disk does, and goes on", func(t *testing.T) {
		q := &backend{}
		b := openBox(t, t.TempDir(), Options{})
		put(t, b, "1")
		good := b.file
		readOnly, err := os.Open(segmentFiles(t, b.root.Name())[0])
		if err != nil {
			t.Fatal(err)
		}
		defer readOnly.Close()
		b.file = readOnly
		if _, err := b.Put(message("x")); err == nil {
			t.Error("no error")
		}
		b.file = good
		put(t, b, "2")
		drain(t, b, q)
		wantIDs(t, "published", q.saw(t), numbers(1, 2))
		wantEmpty(t, b)
	})
}

func TestSegmentsRotateAndArePruned(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{KeepFor: time.Minute})
	want := numbers(1, 12)
	for _, id := range want {
		if _, err := b.Put(big(id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(segmentFiles(t, dir)); got != 2 {
		t.Fatalf("%d segments of 12 messages, want 2", got)
	}
	later := time.Now().Add(time.Hour)
	b.prune(later)
	if got := len(segmentFiles(t, dir)); got != 2 {
		t.Fatalf("%d segments are left while they wait, want 2", got)
	}
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), want)
	b.prune(time.Now())
	if got := len(segmentFiles(t, dir)); got != 2 {
		t.Errorf("%d segments are left within KeepFor, want 2", got)
	}
	b.prune(later)
	if got := len(segmentFiles(t, dir)); got != 1 {
		t.Errorf("%d segments are left after KeepFor, want the last", got)
	}
	b = openBox(t, dir, Options{})
	if m, err := b.Put(message("13")); err != nil || m.Seq != 13 {
		t.Errorf("seq: got %d, %v; want 13", m.Seq, err)
	}
}

func TestNoMoreIsKeptThanFits(t *testing.T) {
	dir := t.TempDir()
	for _, first := range []relay.Seq{1, 100, 200} {
		path := filepath.Join(dir, (&segment{first: first}).name())
		appendTo(t, path, lineOf(t, fmt.Sprint(first), first))
		if first < 200 {
			if err := os.Truncate(path, maxKept*3/4); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendTo(t, filepath.Join(dir, stateFile), `{"segment":200,"offset":0,"seq":200}`)
	b := openBox(t, dir, Options{})
	b.prune(time.Now())
	if got := segmentFiles(t, dir); len(got) != 2 || !strings.HasSuffix(got[0], "100.jsonl") {
		t.Errorf("left: %v; want the second and the third", got)
	}
}

func TestSyncedPuts(t *testing.T) {
	q := &backend{}
	b := openBox(t, t.TempDir(), Options{Sync: true})
	put(t, b, "1")
	if got := b.synced.Load(); got != 1 {
		t.Errorf("Put returned with %d messages synced, want 1", got)
	}
	// While one sync goes on, others gather, and the next is for all of them.
	const writers = 20
	b.syncing.Lock()
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			m, err := b.Put(message(fmt.Sprint(i + 2)))
			if err != nil {
				t.Error(err)
			}
			if got := b.synced.Load(); got < uint64(m.Seq) || got != writers+1 {
				t.Errorf("message %d returned with %d synced, want all %d", m.Seq, got, writers+1)
			}
		})
	}
	for b.Stats().Pending < writers+1 {
		time.Sleep(time.Millisecond)
	}
	b.syncing.Unlock()
	group.Wait()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openBox(t, b.root.Name(), Options{})
	drain(t, b, q)
	if got := len(firsts(q.saw(t))); got != writers+1 {
		t.Errorf("%d messages, want %d", got, writers+1)
	}
}
