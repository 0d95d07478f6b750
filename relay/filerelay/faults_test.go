package filerelay_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// rounds is how often each fault strikes.
const rounds = 100

// Each fault strikes while a reader follows; every line must arrive in order, and again only where the file was written again.
func TestFaultsUnderLoad(t *testing.T) {
	for _, c := range []struct {
		name   string
		opt    filerelay.Options
		met    bool // the reader must have met the file before the fault, as there is no order among others' names
		again  bool // the fault has lines read again, which a sidecar drops by their ids
		caught bool // the fault destroys unread bytes, so it waits until all is read
		strike func(t *testing.T, dir string, round int)
	}{
		{name: "rotated by the writer", opt: filerelay.Options{RotateSize: 4000}, strike: func(*testing.T, string, int) {}},
		{name: "rotated by another program", met: true, strike: func(t *testing.T, dir string, round int) {
			must(t, os.Rename(live(dir), fmt.Sprintf("%s.%d", live(dir), round)))
			must(t, os.WriteFile(live(dir), nil, 0o600))
		}},
		{name: "rotated and removed", caught: true, strike: func(t *testing.T, dir string, _ int) {
			must(t, os.Remove(live(dir)))
		}},
		{name: "replaced by a copy of itself", again: true, caught: true, strike: func(t *testing.T, dir string, _ int) {
			must(t, os.WriteFile(live(dir)+"~", read(t, live(dir)), 0o600))
			must(t, os.Rename(live(dir)+"~", live(dir)))
		}},
		{name: "truncated", caught: true, strike: func(t *testing.T, dir string, _ int) {
			must(t, os.Truncate(live(dir), 0))
		}},
		{name: "torn tail", strike: func(t *testing.T, dir string, round int) {
			scribble(t, live(dir), relaytest.Line("torn", round)[:40+round%60])
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			opt := c.opt
			if opt.Recheck = 100 * time.Millisecond; c.caught {
				opt.Recheck = 10 * time.Millisecond
			}
			q := queue(t, dir, "a", opt)
			h := listen(t, q)
			reading(t, q)
			var lines [][]byte
			wholly := func() []string { // without the fragments, which are handed over too, and without the repeats
				seen := map[string]bool{}
				return slices.DeleteFunc(h.got(), func(l string) bool {
					again := c.again && seen[l]
					seen[l] = true
					return again || strings.Contains(l, "om_torn_") && !strings.HasSuffix(l, "}")
				})
			}
			caughtUp := func() {
				relaytest.Eventually(t, "caught up", func() bool { return len(wholly()) >= len(lines) })
			}
			for round := range rounds {
				if c.met {
					lines = append(lines, relaytest.Line("a", len(lines)+1))
					publish(t, q, lines[len(lines)-1])
					caughtUp()
				}
				batch := relaytest.Lines("a", len(lines)+1, len(lines)+1+round%7)
				publish(t, q, batch...)
				lines = append(lines, batch...)
				if c.caught {
					caughtUp()
				}
				c.strike(t, dir, round)
			}
			publish(t, q, relaytest.Line("a", len(lines)+1))
			lines = append(lines, relaytest.Line("a", len(lines)+1))
			caughtUp()
			for i, got := range wholly() {
				if i >= len(lines) || got != string(lines[i]) {
					t.Fatalf("line %d is %.60q, want line %d of %d", i+1, got, i+1, len(lines))
				}
			}
		})
	}
}

// With a re-check that never comes, notices alone carry the reader from a
// missing folder over rotations.
func TestNoticesAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	q := queue(t, dir, "a", filerelay.Options{Recheck: time.Hour, RotateSize: 1500})
	h := listen(t, q)
	reading(t, q)
	for i := range 30 {
		if i%10 == 9 {
			must(t, os.Rename(live(dir), fmt.Sprintf("%s.%d", live(dir), i)))
		}
		publish(t, q, relaytest.Line("a", i+1))
		h.wait(i + 1)
	}
	h.want(relaytest.Lines("a", 1, 30)...)
}

func TestHalfWrittenLineIsAwaited(t *testing.T) {
	dir := t.TempDir()
	q := queue(t, dir, "a", filerelay.Options{NoNotify: true, Recheck: time.Millisecond})
	h := listen(t, q)
	reading(t, q)
	whole := relaytest.Line("foreign", 1)
	for i := range whole {
		scribble(t, live(dir), whole[i:i+1])
	}
	relaytest.Eventually(t, "a lag of the unfinished line", func() bool { return q.Status().Lag == int64(len(whole)) })
	scribble(t, live(dir), []byte("\n"), relaytest.Line("foreign", 2), []byte("\n"))
	h.want(whole, relaytest.Line("foreign", 2))
}

func TestLinesBehindFragments(t *testing.T) {
	good, glued := relaytest.Line("good", 1), relaytest.Line("glued", 2)
	fragment := relaytest.Line("torn", 1)[:70]
	for _, c := range []struct {
		name     string
		file     []byte
		want     [][]byte
		salvaged uint64
		skipped  uint64
	}{
		{"a fragment and its newline", slices.Concat(fragment, []byte("\n"), good, []byte("\n")), [][]byte{fragment, good}, 0, 0},
		{"a record glued to a fragment is saved", slices.Concat(fragment, glued, []byte("\n"), good, []byte("\n")), [][]byte{glued, good}, 1, 0},
		{"blank lines are no lines", slices.Concat([]byte("\n\r\n  \n"), good, []byte("\n\n")), [][]byte{good}, 0, 0},
		{"a whole record inside another is no glue", []byte(`{"relay_msg_id":"x","metadata":{"m":{"relay_msg_id":"y"}}}` + "\n"),
			[][]byte{[]byte(`{"relay_msg_id":"x","metadata":{"m":{"relay_msg_id":"y"}}}`)}, 0, 0},
		{"a line at the limit passes", slices.Concat(bytes.Repeat([]byte("x"), relay.MaxLine-1), []byte("\n"), good, []byte("\n")),
			[][]byte{bytes.Repeat([]byte("x"), relay.MaxLine-1), good}, 0, 0},
		{"a huge line is passed over", slices.Concat(bytes.Repeat([]byte("x"), 5*relay.MaxLine+77), []byte("\n"), good, []byte("\n")), [][]byte{good}, 0, 1},
		{"thousands of glued records are not searched", slices.Concat(bytes.Repeat([]byte(`{"relay_msg_id":`), 60_000), []byte("\n"), good, []byte("\n")),
			[][]byte{bytes.Repeat([]byte(`{"relay_msg_id":`), 60_000), good}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(live(dir), c.file, 0o600))
			q := queue(t, dir, "a", filerelay.Options{})
			listen(t, q).want(c.want...)
			relaytest.Eventually(t, "the end", func() bool { return q.Status().Lag == 0 })
			if got := q.Stats(); got.Salvaged != c.salvaged || got.Skipped != c.skipped {
				t.Errorf("stats are %+v, want %d salvaged, %d skipped", got, c.salvaged, c.skipped)
			}
		})
	}
}

func TestFolderRemovedAndBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "relay")
	q := queue(t, dir, "a", filerelay.Options{Recheck: 5 * time.Millisecond})
	h := listen(t, q)
	reading(t, q)
	publish(t, q, relaytest.Line("a", 1))
	h.wait(1)
	must(t, os.RemoveAll(dir))
	relaytest.Eventually(t, "a fault in Status", func() bool { s := q.Status(); return !s.Connected && s.Error != "" })
	must(t, os.MkdirAll(dir, 0o700))
	scribble(t, live(dir), relaytest.Line("foreign", 1), []byte("\n"))
	publish(t, q, relaytest.Line("a", 2))
	h.want(relaytest.Line("a", 1), relaytest.Line("foreign", 1), relaytest.Line("a", 2))
	relaytest.Eventually(t, "Status without fault", func() bool { s := q.Status(); return s.Connected && s.Error == "" })

	must(t, os.RemoveAll(dir))
	publish(t, q, relaytest.Line("a", 3)) // makes the folder again
	h.want(relaytest.Line("a", 1), relaytest.Line("foreign", 1), relaytest.Line("a", 2), relaytest.Line("a", 3))

	// It goes on through more of that, in turns with a file that is cut.
	for i := 4; i < 12; i += 2 {
		publish(t, q, relaytest.Lines("a", i, i+1)...)
		h.want(slices.Concat(relaytest.Lines("a", 1, 1), [][]byte{relaytest.Line("foreign", 1)},
			relaytest.Lines("a", 2, i+1))...)
		if i%4 == 0 {
			must(t, os.Truncate(live(dir), 0))
		} else {
			must(t, os.RemoveAll(dir))
		}
	}
}
