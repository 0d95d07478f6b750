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

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// What happened to the files while the reader was away.
func TestAway(t *testing.T) {
	before, meanwhile := relaytest.Lines("w", 1, 20), relaytest.Lines("w", 21, 40)
	fill := func(t *testing.T, dir string, opt filerelay.Options, lines ...[]byte) {
		q := queue(t, dir, "w", opt)
		for _, line := range lines {
			publish(t, q, line)
		}
		must(t, q.Close())
	}
	for _, c := range []struct {
		name string
		gap  func(t *testing.T, dir string)
		want [][]byte // after the return
	}{
		{"many rotations", func(t *testing.T, dir string) {
			fill(t, dir, filerelay.Options{RotateSize: 600}, meanwhile...)
			if n := len(segmentsOf(t, dir)); n < 5 {
				t.Fatalf("%d segments, want many", n)
			}
		}, meanwhile},
		{"truncated and grown beyond the place", func(t *testing.T, dir string) {
			must(t, os.Truncate(live(dir), 0))
			fill(t, dir, filerelay.Options{}, relaytest.Lines("x", 1, 100)...)
		}, relaytest.Lines("x", 1, 100)},
		{"restored from an older backup", func(t *testing.T, dir string) {
			data := read(t, live(dir))
			must(t, os.WriteFile(live(dir), data[:bytes.LastIndex(data, []byte(`{"relay`))], 0o600))
			fill(t, dir, filerelay.Options{}, meanwhile...)
		}, slices.Concat(before[:19], meanwhile)}, // readers drop what they know
		{"restored from a backup", func(t *testing.T, dir string) {
			fill(t, dir, filerelay.Options{}, meanwhile...)
			data := read(t, live(dir))
			must(t, os.Rename(live(dir), filepath.Join(t.TempDir(), "old"))) // keeps its inode
			must(t, os.WriteFile(live(dir), data, 0o600))
		}, meanwhile},
		{"removed and begun again", func(t *testing.T, dir string) {
			must(t, os.Rename(live(dir), filepath.Join(t.TempDir(), "old")))
			fill(t, dir, filerelay.Options{}, meanwhile...)
		}, meanwhile},
		{"the folder was removed, and the position with it", func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			fill(t, dir, filerelay.Options{}, meanwhile...)
		}, meanwhile},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "relay")
			fill(t, dir, filerelay.Options{}, before...)
			h := listen(t, queue(t, dir, "a", filerelay.Options{}))
			h.want(before...)
			h.stop()
			c.gap(t, dir)
			listen(t, queue(t, dir, "a", filerelay.Options{})).want(c.want...)
		})
	}
}

func offsets(dir, agent string) string {
	return filepath.Join(dir, "offsets", safefile.Name(agent)+".outbound.json")
}

func TestBrokenCheckpoint(t *testing.T) {
	lines := relaytest.Lines("w", 1, 10)
	for name, content := range map[string]string{
		"empty":                 "",
		"another type":          `[1,2,3]`,
		"a negative place":      `{"after":0,"offset":-5,"sum":"0000000000000000"}`,
		"a short sum":           `{"offset":5,"sum":"12"}`,
		"beyond the end":        `{"offset":99999999,"sum":"0000000000000000"}`,
		"a segment to come":     `{"after":18446744073709551615,"offset":5,"sum":"0000000000000000"}`,
		"a number out of range": `{"offset":1e400}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			publish(t, queue(t, dir, "w", filerelay.Options{}), lines...)
			must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
			must(t, os.WriteFile(offsets(dir, "a"), []byte(content), 0o600))
			h := listen(t, queue(t, dir, "a", filerelay.Options{}))
			h.want(lines...)
			if h.history != 0 {
				t.Errorf("%d lines are history, want none: the agent was here before", h.history)
			}
			h.stop()
			h = listen(t, queue(t, dir, "a", filerelay.Options{})) // the position is whole again
			publish(t, queue(t, dir, "w", filerelay.Options{}), relaytest.Line("w", 11))
			h.want(relaytest.Line("w", 11))
		})
	}
}

// What a rotation leaves of ten segments, or more.
func TestSegmentsAreRemoved(t *testing.T) {
	for _, c := range []struct {
		name     string
		segments int
		age      time.Duration
		position string // of a reader; "": there is none
		away     time.Duration
		left     int // with the one that the rotation makes
	}{
		{"nobody reads", 10, 2 * time.Minute, "", 0, 1},
		{"a reader may be starting", 10, time.Second, "", 0, 11},
		{"a reader has passed some", 10, 2 * time.Minute, `{"after":4,"offset":7}`, 0, 7},
		{"a broken position needs all", 10, 2 * time.Minute, `{`, time.Hour, 11},
		{"the reader is gone", 10, 2 * time.Minute, `{"after":0,"offset":0}`, 25 * time.Hour, 1},
		{"needed within their age", 10, 23 * time.Hour, `{"after":0,"offset":0}`, 0, 11},
		{"beyond their age", 10, 25 * time.Hour, `{"after":0,"offset":0}`, 0, 1},
		{"beyond their number", 100, 2 * time.Minute, `{"after":0,"offset":0}`, 0, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string, age time.Duration) {
				must(t, os.WriteFile(name, []byte(text), 0o600))
				must(t, os.Chtimes(name, time.Time{}, time.Now().Add(-age)))
			}
			for i := range c.segments {
				write(filepath.Join(dir, fmt.Sprintf("outbound.%020d.jsonl", i+1)), "line\n", c.age)
			}
			if c.position != "" {
				must(t, os.Mkdir(filepath.Join(dir, "offsets"), 0o700))
				write(offsets(dir, "a"), c.position, c.away)
			}
			publish(t, queue(t, dir, "w", filerelay.Options{RotateSize: 1}), relaytest.Line("w", 1))
			if got := segmentsOf(t, dir); len(got) != c.left || !bytes.Contains(read(t, got[c.left-1]), relaytest.Line("w", 1)) {
				t.Errorf("%d segments are left, want the newest %d: %q", len(got), c.left, got)
			}
		})
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	return data
}

// A program that keeps byte offsets knows nothing of segments. While it is alive the queue stays
// one file.
func TestNoRotationUnderAReaderOfOffsets(t *testing.T) {
	dir := t.TempDir()
	w := queue(t, dir, "w", filerelay.Options{RotateSize: 1000})
	note := filepath.Join(dir, "offsets", "agent_x.txt")
	must(t, os.MkdirAll(filepath.Dir(note), 0o700))
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{9 * time.Minute, 0}, {11 * time.Minute, 1}} {
		must(t, os.WriteFile(note, []byte("0"), 0o600))
		must(t, os.Chtimes(note, time.Time{}, time.Now().Add(-c.age)))
		publish(t, w, relaytest.Lines("w", 1, 20)...)
		if got := len(segmentsOf(t, dir)); got != c.want {
			t.Errorf("%d segments, want %d: the reader wrote its offset %v ago", got, c.want, c.age)
		}
	}
}

// Of a capped queue only the newest lines are kept, even if a program follows the folder by its
// byte offset.
func TestCapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "offsets", "naive.txt"), []byte("5"), 0o600))
	q := queue(t, dir, "a", filerelay.Options{RotateSize: 10_000, Capped: true})
	h := listen(t, q)
	reading(t, q)
	const n = 1000
	for i := 1; i <= n; i++ {
		publish(t, q, relaytest.Line("a", i))
		if got := h.wait(i)[i-1]; got != string(relaytest.Line("a", i)) {
			t.Fatalf("line %d is %.80q", i, got)
		}
	}
	if got := len(segmentsOf(t, dir)); got != 1 {
		t.Errorf("%d segments are left, want 1", got)
	}
	q = queue(t, dir, "b", filerelay.Options{})
	h = listen(t, q)
	reading(t, q)
	relaytest.Eventually(t, "the end", func() bool { return q.Status().Lag == 0 })
	h.stop()
	if kept := len(h.got()); kept == 0 || kept == n {
		t.Errorf("%d of %d lines are kept", kept, n)
	} else {
		h.want(relaytest.Lines("a", n-kept+1, n)...)
	}
}

// A program that opened the file before its rotation and goes on writing to it.
func TestLateWriter(t *testing.T) {
	dir := t.TempDir()
	q := queue(t, dir, "a", filerelay.Options{RotateSize: 2000, Recheck: 5 * time.Millisecond})
	h := listen(t, q)
	reading(t, q)
	publish(t, q, relaytest.Line("a", 1))
	foreign, err := os.OpenFile(live(dir), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer foreign.Close()
	lines := relaytest.Lines("a", 2, 12)
	publish(t, q, lines...) // rotates
	publish(t, q, relaytest.Line("a", 13))
	h.wait(13)
	_, err = fmt.Fprintf(foreign, "%s\n", relaytest.Line("late", 1))
	must(t, err)
	h.want(append(relaytest.Lines("a", 1, 13), relaytest.Line("late", 1))...)
	if got := q.Stats(); got.Late != 1 || got.Rotated == 0 {
		t.Errorf("stats are %+v, want one late line after a rotation", got)
	}
}

func TestPublishRefusesWhatIsNoLine(t *testing.T) {
	dir := t.TempDir()
	q := queue(t, dir, "a", filerelay.Options{})
	for _, line := range []string{"", "  \t", "a\nb", "a\n", strings.Repeat("x", relay.MaxLine)} {
		if _, err := q.Publish(t.Context(), [][]byte{relaytest.Line("a", 1), []byte(line)}, ""); err == nil {
			t.Errorf("publish of %.10q returned no error", line)
		}
	}
	if _, err := os.Stat(live(dir)); err == nil {
		t.Error("a refused batch made a file")
	}
}
