package transcript

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What a store that appends answers from its memory is what another one reads from the
// files, regardless of who writes, cuts and rotates them.
func TestMemoryAgreesWithTheFiles(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		opts := &Options{Keep: 4}
		if r.IntN(2) == 0 {
			opts.RotateSize = 20_000 + r.Int64N(2_000_000)
		}
		s, other := open(t, dir, opts), open(t, dir, opts)
		path := filepath.Join(dir, file)
		size := 1 + r.IntN(6000)
		next, newest := 0, int64(1)
		entry := func() Entry {
			next++
			newest += r.Int64N(1000)
			e := Entry{Role: []string{RoleUser, RoleAssistant}[r.IntN(2)], Sender: "s", MessageID: fmt.Sprint("om_", next),
				TS: newest, Content: strings.Repeat("字", r.IntN(1+r.IntN(size)))}
			switch r.IntN(8) {
			case 0: // it comes late
				e.TS = max(1, newest-r.Int64N(100_000))
			case 1:
				e.TS += r.Int64N(5000)
			case 2:
				e.ThreadID, e.RootID, e.ParentID, e.PartOf, e.UserTS = "omt_1", "om_1", `om_"2`, "om_3", e.TS-1
			case 3:
				e.MessageID = ""
			}
			return e
		}
		raw := func(text string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			if err == nil {
				_, err = f.WriteString(text)
				err = firstError(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r.IntN(3) == 0 { // more than is read on opening
			var many []Entry
			for range 2500 {
				many = append(many, entry())
				many[len(many)-1].Content = ""
			}
			writeLines(t, path, many)
		}
		for range 15 {
			switch k := r.IntN(12); {
			case k < 7:
				writer := s
				if k < 2 {
					writer = other
				}
				for range r.IntN(60) {
					if _, err := writer.Append("feishu", "oc_x", entry()); err != nil {
						t.Fatal(err)
					}
				}
			case k < 9: // a writer that knows nothing of repeats
				e := entry()
				e.MessageID = fmt.Sprint("om_", 1+r.IntN(next))
				line, err := encode(e)
				if err != nil {
					t.Fatal(err)
				}
				raw(string(line))
			case k == 9:
				raw("no entry\n\n" + `{"role":"user", "content":"spaced", "sender":"x", "message_id":"", "ts":` + fmt.Sprint(newest) + "}\n")
			case k == 10:
				raw(`{"role":"assistant","content":"torn`)
			case k == 11 && r.IntN(3) == 0:
				if info, err := os.Stat(path); err == nil {
					if err := os.Truncate(path, info.Size()/2); err != nil {
						t.Fatal(err)
					}
				}
			}
			cold := open(t, dir, &Options{ReadOnly: true})
			for range 3 {
				n, at := 1+r.IntN(1+r.IntN(3000)), int64(math.MaxInt64)
				if r.IntN(4) > 0 {
					at = newest - r.Int64N(1+r.Int64N(newest))
				}
				if r.IntN(3) == 0 {
					n = 1 + r.IntN(70)
				}
				want, err := cold.TailTo("feishu", "oc_x", n, at)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.TailTo("feishu", "oc_x", n, at)
				if err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: the last %d at %d: %v, %d messages, want %d", seed, n, at, err, len(got), len(want))
				}
				for i := range want {
					want[i].Content = ""
				}
				got, err = s.Outline("feishu", "oc_x", n, at)
				if err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: the outline of the last %d at %d: %v, %d messages, want %d", seed, n, at, err, len(got), len(want))
				}
			}
			expectBounded(t, s)
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// expectBounded holds what is kept in memory to its bounds and its own account.
func expectBounded(t *testing.T, s *Store) {
	t.Helper()
	l, ok := s.chats.Peek(chatKey{"feishu", "oc_x"})
	if !ok {
		return
	}
	r := &l.recent
	whole, outlines := 0, 0
	for i := range r.lines {
		if i < r.outlines {
			outlines += r.lines[i].size
			if e := r.lines[i].entry; e == nil || e.Content != "" {
				t.Fatal("an outline holds content")
			}
		} else {
			whole += r.lines[i].size
		}
	}
	if whole != r.bytes || outlines != r.outlineBytes {
		t.Fatalf("%d and %d bytes kept, counted as %d and %d", whole, outlines, r.bytes, r.outlineBytes)
	}
	if whole > maxRecentBytes || len(r.lines)-r.outlines > maxRecent {
		t.Errorf("%d lines of %d bytes are kept whole", len(r.lines)-r.outlines, whole)
	}
}

func writeLines(t *testing.T, path string, entries []Entry) {
	t.Helper()
	var lines strings.Builder
	for _, e := range entries {
		line, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(line)
	}
	writeFile(t, path, lines.String())
}

// An outline of more than memory may hold is read from the files, and memory stays
// bounded, and shrinks again when less is asked for.
func TestLongOutline(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	l := s.chat(chatKey{"feishu", "oc_x"})
	add(t, s, true, messages(0, 12_000)...)
	newest := 12_000
	for _, n := range []int{10, 300, 5000, 11_900} {
		got, err := s.Outline("feishu", "oc_x", n, math.MaxInt64)
		if err != nil || len(got) != n || got[0].MessageID != message(newest-n).MessageID {
			t.Fatalf("an outline of %d: %d messages, %v", n, len(got), err)
		}
		add(t, s, true, message(newest))
		newest++
		expectBounded(t, s)
		if l.recent.outlineBytes > maxOutlineBytes {
			t.Errorf("%d bytes of outlines", l.recent.outlineBytes)
		}
	}
	for range 300 {
		if _, err := s.Outline("feishu", "oc_x", 1, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
	}
	add(t, s, true, message(newest))
	if len(l.recent.lines) > maxRecent {
		t.Errorf("%d lines are kept where one is wanted", len(l.recent.lines))
	}
}
