//go:build unix

package transcript

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/relay"
)

// count reads all files of the chat line by line and counts each id. It knows
// nothing of the reading side of the package but decode.
func count(tb testing.TB, dir string) (ids map[string]int, junk int) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, file+"*"))
	must(tb, err)
	ids = make(map[string]int)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		must(tb, err)
		for line := range strings.Lines(string(data)) {
			if e, ok := decode([]byte(line)); ok {
				ids[e.MessageID]++
			} else {
				junk++
			}
		}
	}
	return ids, junk
}

func expectEachOnce(tb testing.TB, ids map[string]int, want int) {
	tb.Helper()
	for id, n := range ids {
		if n != 1 {
			tb.Errorf("%s occurs %d times", id, n)
		}
	}
	if len(ids) != want {
		tb.Errorf("%d messages, want %d", len(ids), want)
	}
}

func TestProcessesWriteEachMessageOnce(t *testing.T) {
	for _, rotate := range []string{"1000000000", "100000"} {
		t.Run("rotated at "+rotate, func(t *testing.T) {
			const n = 1000
			dir := t.TempDir()
			var all []*childtest.Child
			for range 5 {
				all = append(all, childtest.Start(t, "append", dir, "oc_x", fmt.Sprint(n), rotate))
			}
			for _, h := range all {
				h.Line() // it is ready
			}
			for _, h := range all {
				h.Tell()
			}
			added := 0
			for _, h := range all {
				added += number(h.Line())
				h.Wait()
			}
			if added != n {
				t.Errorf("%d appends said they added, want %d", added, n)
			}
			ids, junk := count(t, dir)
			expectEachOnce(t, ids, n)
			if junk != 0 {
				t.Errorf("%d lines are no entries", junk)
			}
		})
	}
}

// TestAnyInterleavingGivesEachOnce drives several stores of one folder through
// random histories: appends of old and new messages, reads, closing and opening
// again, lines of programs that know no lock.
func TestAnyInterleavingGivesEachOnce(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			o := &Options{rotateSize: 1 + r.Int64N(3000), keep: 10_000, maxOpen: 1 + r.IntN(2)}
			stores := make([]*Store, 1+r.IntN(4))
			for i := range stores {
				stores[i] = open(t, dir, o)
			}
			known := make(map[string]bool)
			var order []Entry
			for range 300 {
				i := r.IntN(len(stores))
				s := stores[i]
				switch r.IntN(12) {
				case 0:
					must(t, s.Close())
					stores[i] = open(t, dir, o)
				case 1:
					n := 1 + r.IntN(30)
					expectTail(t, s, n, order[max(0, len(order)-n):])
				case 2: // another chat pushes this one out
					_, err := s.Append("feishu", "oc_other", Entry{Role: relay.RoleUser})
					must(t, err)
				case 3:
					addFile(t, filepath.Join(dir, file), `{"role":"user","content":"torn`)
				default:
					e := message(r.IntN(150))
					got, err := s.Append("feishu", "oc_x", e)
					if err != nil || got == known[e.MessageID] {
						t.Fatalf("append %s: %t, %v; it was there: %t", e.MessageID, got, err, known[e.MessageID])
					}
					if got {
						known[e.MessageID] = true
						order = append(order, e)
					}
				}
			}
			expectTail(t, stores[0], 1000, order)
			ids, _ := count(t, dir)
			delete(ids, "")
			expectEachOnce(t, ids, len(order))
		})
	}
}

// A writer is killed after any byte of its line: the next append loses nothing, and neither does a reader. A line that
// only lacks its newline is a message.
func TestTornLineSwallowsNothing(t *testing.T) {
	line := lines(t, message(1))
	for at := range len(line) {
		for _, warm := range []bool{false, true} {
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			writeFile(t, path, lines(t, message(0)))
			s := open(t, dir, nil)
			if warm {
				add(t, s, false, message(0))
			}
			addFile(t, path, line[:at])
			expectTail(t, s, 10, messages(0, 1))
			add(t, s, true, message(2))
			add(t, s, at < len(line)-1, message(1))
			want := []Entry{message(0), message(2), message(1)}
			if at == len(line)-1 {
				want = messages(0, 3)
			}
			expectTail(t, s, 10, want)
			if ids, _ := count(t, dir); len(ids) != 3 {
				t.Errorf("%q, warm %t: %d whole lines, want 3", line[:at], warm, len(ids))
			}
		}
	}
	t.Run("glued by a naive writer", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, nil)
		add(t, s, true, message(0))
		addFile(t, filepath.Join(dir, file), line[:30]+lines(t, message(2)))
		add(t, s, false, message(2))
		expectTail(t, s, 10, []Entry{message(0), message(2)})
		if s.Skipped() == 0 {
			t.Error("the torn part was not counted")
		}
	})
}

func TestKilledWritersLoseNothing(t *testing.T) {
	dir := t.TempDir()
	const rounds, writers = 3, 4
	acknowledged := make(map[string]bool)
	for round := range rounds {
		var all []*childtest.Child
		for i := range writers {
			all = append(all, childtest.Start(t, "write-until-killed", dir, "oc_x", fmt.Sprintf("%d-%d", round, i)))
		}
		for _, h := range all {
			h.Line() // it is ready
		}
		for _, h := range all {
			h.Tell()
		}
		for range 1 + rand.IntN(20) {
			acknowledged[all[0].Line()] = true
		}
		for _, h := range all {
			must(t, h.Cmd.Process.Kill())
		}
		for _, h := range all { // what they said before they died counts
			for _, id := range h.Kill() {
				acknowledged[id] = true
			}
		}
	}
	s := open(t, dir, nil)
	add(t, s, true, message(0))
	ids, junk := count(t, dir)
	for id := range acknowledged {
		if ids[id] != 1 {
			t.Errorf("%s was acknowledged and occurs %d times", id, ids[id])
		}
	}
	expectEachOnce(t, ids, len(ids))
	t.Logf("%d kills: %d acknowledged, %d recorded, %d torn lines", rounds*writers, len(acknowledged), len(ids), junk)
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	h := childtest.Start(t, "full-disk", dir, "oc_x")
	if got, want := h.Line(), filepath.Base(dir)+" om_first om_small om_big true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h.Wait()
	ids, _ := count(t, dir)
	expectEachOnce(t, ids, 3)
}

// TestTailReadsTheSameOfAnySize counts the bytes that the kernel handed to
// this process.
func TestTailReadsTheSameOfAnySize(t *testing.T) {
	var read []int64
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(lines(t, Entry{Role: relay.RoleAssistant, Sender: "agent_a", TS: 1795211093522 + int64(i),
			MessageID: fmt.Sprintf("om_%d", i), Content: strings.Repeat("一段话 and some words. ", 10)}))
	}
	for _, size := range []int64{1 << 10, 1 << 20, 64 << 20} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Repeat(text.String(), int(size)/text.Len()+1)), 0o600))
		s := open(t, dir, nil)
		before := bytesRead(t)
		if got, err := s.Tail("feishu", "oc_x", 50); err != nil || len(got) == 0 {
			t.Fatal(len(got), err)
		}
		read = append(read, bytesRead(t)-before)
	}
	if slices.Max(read) > 2*block {
		t.Errorf("bytes read of 1 KiB, 1 MiB and 64 MiB: %d, want at most two blocks", read)
	}
}

func bytesRead(t *testing.T) int64 {
	f, err := os.Open("/proc/self/io")
	if err != nil {
		t.Skip("the system does not count reads: ", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "rchar: %d", &n); err == nil {
			return n
		}
	}
	t.Skip("the system does not count reads")
	return 0
}
