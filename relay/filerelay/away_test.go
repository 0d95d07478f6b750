package filerelay_test

import (
	"errors"
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
		{"nothing", func(t *testing.T, dir string) { fill(t, dir, filerelay.Options{}, meanwhile...) }, meanwhile},
		{"many rotations", func(t *testing.T, dir string) {
			fill(t, dir, filerelay.Options{RotateSize: 600}, meanwhile...)
			if n := len(segmentsOf(t, dir)); n < 5 {
				t.Fatalf("%d segments, want many", n)
			}
		}, meanwhile},
		{"rotation by another program", func(t *testing.T, dir string) {
			fill(t, dir, filerelay.Options{}, meanwhile[:10]...)
			must(t, os.Rename(live(dir), live(dir)+"-20261120"))
			fill(t, dir, filerelay.Options{}, meanwhile[10:]...)
		}, meanwhile},
		{"truncated", func(t *testing.T, dir string) {
			must(t, os.Truncate(live(dir), 0))
			fill(t, dir, filerelay.Options{}, meanwhile...)
		}, meanwhile},
		{"truncated and grown beyond the place", func(t *testing.T, dir string) {
			must(t, os.Truncate(live(dir), 0))
			fill(t, dir, filerelay.Options{}, relaytest.Lines("x", 1, 100)...)
		}, relaytest.Lines("x", 1, 100)},
		{"restored from a backup", func(t *testing.T, dir string) {
			fill(t, dir, filerelay.Options{}, meanwhile...)
			data, err := os.ReadFile(live(dir))
			must(t, err)
			must(t, os.Rename(live(dir), filepath.Join(t.TempDir(), "old"))) // keeps its inode
			must(t, os.WriteFile(live(dir), data, 0o600))
		}, slices.Concat(before, meanwhile)}, // readers drop what they know
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

// hold makes the position of agent one that needs every segment.
func hold(t *testing.T, dir, agent string) {
	t.Helper()
	must(t, os.WriteFile(offsets(dir, agent), []byte(`{"file":{"dev":1,"ino":1},"offset":0,"sum":"0000000000000000","after":0}`), 0o600))
}

func offsets(dir, agent string) string {
	return filepath.Join(dir, "offsets", safefile.Name(agent)+".outbound.json")
}

func allLines(t *testing.T, dir string) []string {
	t.Helper()
	files := append(segmentsOf(t, dir), live(dir))
	slices.Sort(files[:len(files)-1])
	var lines []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		lines = append(lines, strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })...)
	}
	return lines
}

func TestBrokenCheckpoint(t *testing.T) {
	lines := relaytest.Lines("w", 1, 10)
	for name, content := range map[string]string{
		"empty":                         "",
		"no JSON":                       "offset: 5\n",
		"binary":                        "\x00\x01\xff\xfe",
		"another type":                  `[1,2,3]`,
		"a negative place":              `{"file":{"dev":1,"ino":2},"offset":-5,"sum":"0000000000000000"}`,
		"a text as place":               `{"offset":"five"}`,
		"a short sum":                   `{"offset":5,"sum":"12"}`,
		"too large":                     `{"offset":0` + strings.Repeat(" ", 5000) + `}`,
		"beyond the end":                `{"offset":99999999,"sum":"0000000000000000"}`,
		"a segment number out of range": `{"offset":5,"sum":"0000000000000000","after":18446744073709551615}`,
		"a number out of range":         `{"offset":1e400}`,
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

func TestAgentNamesAreNoPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "relay")
	for _, agent := range []string{"../../x", "a/b", "机器人", "..", strings.Repeat("n", 500)} {
		q := queue(t, dir, agent, filerelay.Options{})
		h := listen(t, q)
		publish(t, q, relaytest.Line("w", 1))
		h.wait(1)
		h.stop()
		if _, err := os.Stat(offsets(dir, agent)); err != nil {
			t.Errorf("position of %.20q: %v", agent, err)
		}
	}
	list, err := os.ReadDir(filepath.Dir(dir))
	must(t, err)
	if len(list) != 1 {
		t.Errorf("%d entries beside the folder, want none", len(list)-1)
	}
}

func TestSegmentsAreRemoved(t *testing.T) {
	write := func(t *testing.T, dir string, opt filerelay.Options, from, to int) {
		opt.RotateSize = 1000
		w := queue(t, dir, "w", opt)
		for i := from; i <= to; i++ {
			publish(t, w, relaytest.Line("w", i))
		}
	}
	t.Run("after every known reader has passed", func(t *testing.T) {
		dir := t.TempDir()
		slow := queue(t, dir, "slow", filerelay.Options{})
		h := listen(t, slow)
		reading(t, slow)
		h.stop()
		quick := queue(t, dir, "quick", filerelay.Options{})
		h = listen(t, quick)
		reading(t, quick)
		write(t, dir, filerelay.Options{}, 1, 50)
		h.wait(50)
		if got := len(allLines(t, dir)); got != 50 {
			t.Fatalf("%d lines are left while a reader needs all 50", got)
		}
		again := queue(t, dir, "slow", filerelay.Options{})
		h2 := listen(t, again)
		h2.want(relaytest.Lines("w", 1, 50)...)
		h2.stop()
		h.stop()
		if got := len(allLines(t, dir)); got != 50 {
			t.Errorf("%d of 50 lines are left a moment after they were passed: a reader may be starting", got)
		}
		age(t, dir, 2*time.Minute)
		write(t, dir, filerelay.Options{}, 51, 60)
		if got := len(allLines(t, dir)); got > 20 {
			t.Errorf("%d lines are left after all readers passed 50", got)
		}
	})
	t.Run("by age, and a reader that is gone does not hold them", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, filerelay.Options{}, 1, 1)
		must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
		hold(t, dir, "gone")
		write(t, dir, filerelay.Options{}, 2, 40)
		many := len(segmentsOf(t, dir))
		if many < 5 {
			t.Fatalf("%d segments, want many held by a reader", many)
		}
		age(t, dir, 23*time.Hour)
		write(t, dir, filerelay.Options{}, 41, 50)
		if got := len(segmentsOf(t, dir)); got <= many {
			t.Errorf("%d segments are left of more than %d that a reader needs", got, many)
		}
		age(t, dir, 25*time.Hour)
		write(t, dir, filerelay.Options{}, 51, 60)
		if got := len(segmentsOf(t, dir)); got >= many {
			t.Errorf("%d segments are left, most beyond their age", got)
		}
		long := time.Now().Add(-25 * time.Hour)
		must(t, os.Chtimes(offsets(dir, "gone"), long, long))
		age(t, dir, 2*time.Minute)
		write(t, dir, filerelay.Options{}, 61, 64)
		if got := len(segmentsOf(t, dir)); got > 2 { // what these writes made
			t.Errorf("%d segments are left without a reader, want the newest alone", got)
		}
	})
	t.Run("beyond their number", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, filerelay.Options{}, 1, 1)
		must(t, os.MkdirAll(filepath.Join(dir, "offsets"), 0o700))
		hold(t, dir, "stuck")
		write(t, dir, filerelay.Options{}, 2, 400)
		if got := len(segmentsOf(t, dir)); got != 64 {
			t.Errorf("%d segments, want the bound of 64", got)
		}
	})
}

// age makes all segments that old.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	for _, name := range segmentsOf(t, dir) {
		must(t, os.Chtimes(name, then, then))
	}
}

// A program that opened the file before its rotation and goes on writing to it.
// A program that keeps byte offsets knows nothing of segments. While it is alive
// the queue stays one file.
func TestNoRotationUnderAReaderOfOffsets(t *testing.T) {
	dir := t.TempDir()
	w := queue(t, dir, "w", filerelay.Options{RotateSize: 1000})
	note := filepath.Join(dir, "offsets", "agent_x.txt")
	must(t, os.MkdirAll(filepath.Dir(note), 0o700))
	must(t, os.WriteFile(note, []byte("0"), 0o600))
	for i := range 50 {
		publish(t, w, relaytest.Line("w", i))
	}
	if n := w.Stats().Rotated; n != 0 {
		t.Errorf("rotated %d times while it reads", n)
	}
	gone := time.Now().Add(-11 * time.Minute)
	must(t, os.Chtimes(note, gone, gone))
	for i := range 5 {
		publish(t, w, relaytest.Line("w", 50+i))
	}
	if n := w.Stats().Rotated; n == 0 {
		t.Error("not rotated although it is gone")
	}
	if got := len(allLines(t, dir)); got != 55 {
		t.Errorf("%d lines, want 55", got)
	}
}

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
