package outbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/relay"
)

func TestPutSurvivesACrash(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	put(t, openBox(t, dir, Options{}), "1", "2", "3")
	b := openBox(t, dir, Options{})
	if s := b.Stats(); s.Pending != 3 || s.Bytes == 0 {
		t.Errorf("after the crash %d messages, %d bytes wait; want 3", s.Pending, s.Bytes)
	}
	m, err := b.Put(message("4"))
	if err != nil || m.Seq != 4 {
		t.Errorf("seq: got %d, %v; want 4", m.Seq, err)
	}
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 4))
	wantEmpty(t, b)
	if got := b.Stats().Published; got != 4 {
		t.Errorf("published: got %d, want 4", got)
	}
}

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

func TestCloseKeepsThePlace(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	put(t, b, "1", "2")
	drain(t, b, q)
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Put(message("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("put after Close: got %v, want ErrClosed", err)
	}
	b = openBox(t, dir, Options{})
	put(t, b, "3")
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 3))
}

func TestABrokenStatePublishesAgainAndLosesNothing(t *testing.T) {
	for name, state := range map[string]string{
		"missing":               "",
		"empty":                 " ",
		"torn":                  `{"segment":1,"off`,
		"another type":          `{"segment":"one"}`,
		"a negative offset":     `{"segment":1,"offset":-5,"seq":3}`,
		"beyond what was given": `{"segment":999,"offset":0,"seq":3}`,
		"null":                  "null",
	} {
		t.Run(name, func(t *testing.T) {
			dir, q := t.TempDir(), &backend{}
			b := openBox(t, dir, Options{})
			put(t, b, "1", "2", "3")
			path := filepath.Join(dir, stateFile)
			os.Remove(path)
			if state != "" {
				appendTo(t, path, state)
			}
			b = openBox(t, dir, Options{})
			put(t, b, "4")
			drain(t, b, q)
			wantIDs(t, "published", firsts(q.saw(t)), numbers(1, 4))
			wantEmpty(t, b)
		})
	}
}

func TestAStateBeyondTheSegmentGoesOnAtItsEnd(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	put(t, b, "1")
	appendTo(t, filepath.Join(dir, stateFile), `{"segment":1,"offset":1000000,"seq":1}`)
	b = openBox(t, dir, Options{})
	put(t, b, "2")
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), []string{"2"})
	wantEmpty(t, b)
}

func TestTornLines(t *testing.T) {
	const fragment = `{"relay_msg_id":"torn","channel":"feis`
	for name, tear := range map[string]func(t *testing.T, last string){
		"at the end":                    func(t *testing.T, last string) { appendTo(t, last, fragment) },
		"of one byte":                   func(t *testing.T, last string) { appendTo(t, last, "{") },
		"ended by somebody":             func(t *testing.T, last string) { appendTo(t, last, fragment+"\n") },
		"empty lines":                   func(t *testing.T, last string) { appendTo(t, last, "\n\n\r\n") },
		"zeros after a power cut":       func(t *testing.T, last string) { appendTo(t, last, strings.Repeat("\x00", 5000)) },
		"longer than any line":          func(t *testing.T, last string) { appendTo(t, last, strings.Repeat("x", 3*relay.MaxLine)) },
		"the same, ended":               func(t *testing.T, last string) { appendTo(t, last, strings.Repeat("x", 3*relay.MaxLine)+"\n") },
		"where the next segment begins": func(t *testing.T, last string) { appendTo(t, last, fragment+strings.Repeat("x", segmentSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, q := t.TempDir(), &backend{}
			put(t, openBox(t, dir, Options{}), "1", "2")
			tear(t, segmentFiles(t, dir)[0])
			b := openBox(t, dir, Options{})
			if m, err := b.Put(message("3")); err != nil || m.Seq != 3 {
				t.Errorf("seq: got %d, %v; want 3", m.Seq, err)
			}
			drain(t, b, q)
			put(t, b, "4")
			drain(t, b, q)
			wantIDs(t, "published", q.saw(t), numbers(1, 4))
			wantEmpty(t, b)
		})
	}
}

// A killed process may leave a segment that ends in the middle of a line, and
// the next one begin another.
func TestATornEndOfAnOlderSegmentHoldsUpNothing(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	for i, text := range []string{lineOf(t, "1", 1) + `{"relay_msg_id":`, lineOf(t, "2", 2)} {
		appendTo(t, filepath.Join(dir, (&segment{first: relay.Seq(i + 1)}).name()), text)
	}
	b := openBox(t, dir, Options{})
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 2))
	wantEmpty(t, b)
	q.forget()
	put(t, b, "3")
	drain(t, b, q)
	wantIDs(t, "published again", q.holds(t), numbers(1, 3))
}

func TestForeignFilesInTheFolderAreLeftAlone(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	put(t, openBox(t, dir, Options{}), "1")
	foreign := []string{"00000000000000000001 (copy).jsonl", "00000000000000000001.bak.jsonl", "3.jsonl", "notes.txt", "x.jsonl"}
	for _, name := range foreign {
		appendTo(t, filepath.Join(dir, name), lineOf(t, "foreign", 9))
	}
	b := openBox(t, dir, Options{})
	put(t, b, "2")
	drain(t, b, q)
	b.prune(time.Now().Add(time.Hour))
	wantIDs(t, "published", q.saw(t), numbers(1, 2))
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestSignedLinesVerify(t *testing.T) {
	q := &backend{}
	b := openBox(t, t.TempDir(), Options{Secret: "s3cret"})
	m := message("1")
	m.Sig = "an old one"
	if _, err := b.Put(m); err != nil {
		t.Fatal(err)
	}
	long := message("2")
	long.Content = strings.Repeat("\n", 2*relay.MaxLine)
	if _, err := b.Put(long); err != nil {
		t.Fatal(err)
	}
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 2))
	for _, line := range q.lines {
		if err := relay.Verify([]byte(line), "s3cret"); err != nil || len(line) >= relay.MaxLine {
			t.Errorf("a line of %d bytes: %v", len(line), err)
		}
	}
}

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

func TestASegmentRemovedUnderIt(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	put(t, b, "1")
	drain(t, b, q)
	put(t, b, "gone")
	for _, path := range segmentFiles(t, dir) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, b, q)
	wantEmpty(t, b)
	put(t, b, "2", "3")
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 3))
	q.forget()
	put(t, b, "4")
	drain(t, b, q)
	wantIDs(t, "published again", q.holds(t), numbers(2, 4))
	wantEmpty(t, b)
}

func TestAnEmptySegmentRemovedUnderIt(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	if err := b.segmentFor(1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segmentFiles(t, dir)[0]); err != nil {
		t.Fatal(err)
	}
	put(t, b, "1", "2")
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 2))
	wantEmpty(t, b)
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

func TestConcurrentPutsKeepSeqAndLinesWhole(t *testing.T) {
	const writers, each = 8, 50
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if _, err := b.Put(message(fmt.Sprintf("%d/%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	drain(t, b, q)
	for i, line := range q.lines {
		if got := seqOf([]byte(line)); got != relay.Seq(i+1) {
			t.Fatalf("line %d has seq %d", i+1, got)
		}
	}
	if got := len(firsts(q.saw(t))); got != writers*each {
		t.Errorf("%d messages, want %d", got, writers*each)
	}
}

// Whatever crashes, fails and is forgotten: each accepted message is published
// at least once, and the first time in the order of Put.
func TestAnyHistoryOfFaults(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			dir := t.TempDir()
			q := &backend{before: func(lines int) (int, error) {
				switch rng.IntN(4) {
				case 0: // a part is taken, and nobody told
					return rng.IntN(lines + 1), errAway
				case 1:
					return 0, errAway
				}
				return lines, nil
			}}
			b := openBox(t, dir, Options{})
			var accepted []string
			for range 150 {
				switch rng.IntN(12) {
				case 0: // killed, sometimes in the middle of a line
					if rng.IntN(2) == 0 {
						if files := segmentFiles(t, dir); len(files) > 0 {
							line := lineOf(t, "torn", 1)
							appendTo(t, files[len(files)-1], line[:1+rng.IntN(len(line)-2)])
						}
					}
					b = openBox(t, dir, Options{})
				case 1:
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					b = openBox(t, dir, Options{})
				case 2:
					if err := b.Save(); err != nil {
						t.Fatal(err)
					}
				case 3:
					if rng.IntN(3) == 0 {
						q.forget()
					}
				case 4:
					_ = b.verify(t.Context(), q) // an error is tried again
				case 5, 6, 7:
					_, _ = b.step(t.Context(), q)
				default:
					id := fmt.Sprint(len(accepted) + 1)
					put(t, b, id)
					accepted = append(accepted, id)
				}
			}
			q.before = nil
			drain(t, b, q)
			wantIDs(t, "first occurrences", firsts(q.saw(t)), accepted)
			for range 3 { // an idle box finds out by itself
				if err := b.verify(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			if missing := slices.DeleteFunc(accepted, func(id string) bool { return slices.Contains(q.holds(t), id) }); len(missing) > 0 {
				t.Errorf("the backend lost %v and was not given them again", missing)
			}
			wantEmpty(t, b)
		})
	}
}
