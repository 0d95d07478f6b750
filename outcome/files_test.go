package outcome

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// folder is a place of files in synthetic time: next is the next look at it.
type folder struct {
	*testing.T
	dir  string
	ears []*ear
}

// chunk is more than is read at once, and than a line may have.
const chunk = 64 << 10

func inFolder(t *testing.T, test func(t *testing.T, f *folder)) {
	dir := filepath.Join(t.TempDir(), "outcomes")
	synctest.Test(t, func(t *testing.T) { test(t, &folder{T: t, dir: dir}) })
}

func (f *folder) open(agent string) *Files {
	f.Helper()
	s, err := OpenFiles(f.dir, agent, logger(f.T))
	must(f, err)
	f.Cleanup(func() { must(f, s.Close()) })
	return s
}

// follow reads what stands there.
func (f *folder) follow() *ear {
	e := follow(f.T, f.open("reader"))
	synctest.Wait()
	return e
}

// look waits for the next look and returns what it found.
func (f *folder) look(e *ear) []string {
	time.Sleep(pollEvery)
	synctest.Wait()
	var found []string
	for len(e.lines) > 0 {
		found = append(found, <-e.lines)
	}
	return found
}

func (f *folder) wantLook(e *ear, want ...[]byte) {
	f.Helper()
	got := f.look(e)
	if !slices.EqualFunc(got, want, func(a string, b []byte) bool { return a == string(b) }) {
		f.Fatalf("got the lines %q, want %q", got, want)
	}
}

func (f *folder) append(s *Files, list ...[]byte) {
	f.Helper()
	must(f, s.Append(f.Context(), list))
}

// write puts raw bytes at the end of a file.
func (f *folder) write(name, text string) {
	f.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(f, err)
	_, err = file.WriteString(text)
	must(f, err)
	must(f, file.Close())
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func TestRotationIsFollowed(t *testing.T) {
	for range 20 {
		inFolder(t, func(t *testing.T, f *folder) {
			a := f.open("a")
			a.rotate = 2000
			e := f.follow()
			n, rotations := 0, 0
			var due [][]byte
			for range 300 {
				if rand.IntN(3) > 0 {
					before, _ := os.Stat(f.path("a.jsonl"))
					more := lines("a", n, 1+rand.IntN(20))
					n += len(more)
					due = append(due, more...)
					f.append(a, more...)
					if now, err := os.Stat(f.path("a.jsonl")); err != nil || before == nil || os.SameFile(before, now) {
						continue
					}
					rotations++
				}
				f.wantLook(e, due...) // at the latest after each rotation
				due = nil
			}
			f.wantLook(e, due...)
			if rotations < 5 {
				t.Errorf("the file was rotated %d times only", rotations)
			}
		})
	}
}

// The reader was suspended: what was rotated away twice meanwhile is gone.
func TestRotatedTwiceBetweenLooks(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		a := f.open("a")
		a.rotate = 1 // each batch has a file
		f.append(a, lines("a", 1, 1)...)
		e := f.follow()
		e.want(lines("a", 1, 1))
		for n := 2; n <= 4; n++ {
			f.append(a, lines("a", n, 1)...)
		}
		f.wantLook(e, lines("a", 3, 2)...)
		f.append(a, lines("a", 5, 1)...)
		f.wantLook(e, lines("a", 5, 1)...)
		f.wantLook(e)
	})
}

func TestOlderGenerationIsReadFirst(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		a := f.open("a")
		a.rotate = 1
		for n := 1; n <= 3; n++ {
			f.append(a, lines("a", n, 1)...)
		}
		e := f.follow()
		e.want(lines("a", 2, 2))
		if e.caughtUp() {
			t.Error("what is left was said to be all")
		}
		names, err := os.ReadDir(f.dir)
		must(t, err)
		if len(names) != 2 {
			t.Errorf("the folder holds %v", names)
		}
	})
}

func TestTornLines(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		a := f.open("a")
		f.append(a, lines("a", 1, 1)...)
		e := f.follow()
		e.want(lines("a", 1, 1))

		f.write("a.jsonl", `{"agent":`) // being written
		f.wantLook(e)
		f.write("a.jsonl", `"a"}`)
		f.wantLook(e)
		f.write("a.jsonl", "\n")
		f.wantLook(e, []byte(`{"agent":"a"}`))

		f.write("a.jsonl", `{"agent"`) // its writer was killed
		f.append(a, lines("a", 2, 1)...)
		f.wantLook(e, []byte(`{"agent"`), lines("a", 2, 1)[0])

		f.write("a.jsonl", "\n\n\n") // nothing
		f.write("a.jsonl", "{torn for ever")
		a.rotate = 1
		f.append(a, lines("a", 3, 1)...)
		f.wantLook(e, nil, lines("a", 3, 1)[0])

		long := strings.Repeat("x", 3*chunk)
		f.write("a.jsonl", long) // too long already, and passed over up to its end
		f.wantLook(e)
		f.write("a.jsonl", long+"\n"+`{"n":1}`+"\n")
		f.wantLook(e, nil, []byte(`{"n":1}`))
	})
}

// A writer is killed at any byte of its line: nothing torn is taken, and what it
// writes after its restart is read.
func TestKilledAtAnyByte(t *testing.T) {
	var list []Outcome
	var texts []string
	for n := range 3 {
		o := about(n, func(o *Outcome) { o.Agent, o.At, o.Decision = "a", 7, refuse })
		line, err := encode(&o, "")
		must(t, err)
		list, texts = append(list, o), append(texts, string(line))
	}
	for cut := range len(texts[1]) + 1 {
		inFolder(t, func(t *testing.T, f *folder) {
			must(t, os.Mkdir(f.dir, 0o700))
			f.write("a.jsonl", texts[0]+"\n"+texts[1][:cut])
			e := f.follow()
			f.append(f.open("a"), []byte(texts[2]))
			var got []Outcome
			for _, line := range f.look(e) {
				if o, err := decode([]byte(line), "", time.Now()); err == nil {
					got = append(got, o)
				}
			}
			want := []Outcome{list[0], list[2]}
			if cut == len(texts[1]) { // only its end was missing
				want = list
			}
			if !slices.EqualFunc(got, want, same) {
				t.Errorf("killed at byte %d: got %+v", cut, got)
			}
		})
	}
}

func TestFilesChangedBeneathTheReader(t *testing.T) {
	first := bytes.Join(lines("a", 1, 5), []byte("\n"))
	tests := []struct {
		name   string
		change func(f *folder) error
		want   [][]byte
	}{
		{"cut", func(f *folder) error { return os.Truncate(f.path("a.jsonl"), 0) }, nil},
		{"cut to some lines", func(f *folder) error { return os.Truncate(f.path("a.jsonl"), int64(2*len(lines("a", 1, 1)[0])+2)) }, lines("a", 1, 2)},
		{"cut and filled again", func(f *folder) error {
			return os.WriteFile(f.path("a.jsonl"), slices.Concat(bytes.Join(lines("z", 1, 9), []byte("\n")), []byte("\n")), 0o600)
		}, lines("z", 1, 9)},
		{"replaced", func(f *folder) error {
			must(f, os.WriteFile(f.path("x"), slices.Concat(first, []byte("\n")), 0o600))
			return os.Rename(f.path("x"), f.path("a.jsonl"))
		}, lines("a", 1, 5)},
		{"removed", func(f *folder) error { return os.Remove(f.path("a.jsonl")) }, nil},
		{"renamed away", func(f *folder) error { return os.Rename(f.path("a.jsonl"), f.path("b.jsonl")) }, lines("a", 1, 5)},
		{"a folder in its place", func(f *folder) error {
			must(f, os.Remove(f.path("a.jsonl")))
			must(f, os.Mkdir(f.path("a.jsonl"), 0o700))
			f.wantLook(f.ears[0])
			return os.Remove(f.path("a.jsonl"))
		}, nil},
		{"its folder removed", func(f *folder) error { return os.RemoveAll(f.dir) }, nil},
		{"its folder replaced", func(f *folder) error {
			must(f, os.Rename(f.dir, f.dir+".away"))
			must(f, os.Mkdir(f.dir, 0o700))
			return os.WriteFile(f.path("c.jsonl"), []byte("{}\n"), 0o600)
		}, [][]byte{[]byte("{}")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inFolder(t, func(t *testing.T, f *folder) {
				a := f.open("a")
				f.append(a, lines("a", 1, 5)...)
				e := f.follow()
				f.ears = append(f.ears, e)
				e.want(lines("a", 1, 5))
				must(f, tt.change(f))
				f.wantLook(e, tt.want...)
				f.append(a, lines("a", 6, 1)...)
				f.wantLook(e, lines("a", 6, 1)...)
			})
		})
	}
}

// Whatever lies in the folder: the outcomes are read, and nothing else.
func TestForeignThingsInTheFolder(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		outside := filepath.Join(filepath.Dir(f.dir), "outside")
		must(t, os.WriteFile(outside, []byte("secret\n"), 0o600))
		must(t, os.Mkdir(f.dir, 0o700))
		must(t, os.Symlink(outside, f.path("link.jsonl")))
		must(t, os.Mkdir(f.path("folder.jsonl"), 0o700))
		must(t, os.Mkdir(f.path("a.jsonl.1"), 0o700))
		f.write("notes.txt", "x\n")
		f.write("b.jsonl.2", "x\n")
		a := f.open("a")
		f.append(a, lines("a", 1, 1)...)
		e := f.follow()
		e.want(lines("a", 1, 1))
		f.append(a, lines("a", 2, 1)...)
		f.wantLook(e, lines("a", 2, 1)...)
	})
}

// No agent's name leads out of the folder or into another agent's files.
func TestAgentNamesAreNoPaths(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		names := []string{"a", "a.1", "a.jsonl", "a.jsonl.1", "../a", "a/b", ".", "小A", strings.Repeat("long", 100)}
		for range 3 {
			for _, name := range names {
				s := f.open(name)
				s.rotate = 1
				f.append(s, lines(name, 1, 1)...)
			}
		}
		e := f.follow()
		got := map[string]int{}
		for range 2 * len(names) {
			got[e.next()]++
		}
		for _, name := range names {
			if got[string(lines(name, 1, 1)[0])] != 2 {
				t.Errorf("of %s: %d lines", name, got[string(lines(name, 1, 1)[0])])
			}
		}
		list, err := os.ReadDir(f.dir)
		must(t, err)
		if len(list) != 2*len(names) {
			t.Errorf("the folder holds %v", list)
		}
		info, err := os.Stat(f.dir)
		must(t, err)
		for _, entry := range list {
			file, err := entry.Info()
			must(t, err)
			if file.Mode().Perm() != 0o600 || info.Mode().Perm() != 0o700 {
				t.Errorf("%s has the rights %v, its folder %v", entry.Name(), file.Mode(), info.Mode())
			}
		}
	})
}

func TestTooManyAgents(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		const n = maxAgents + 3
		for i := range n {
			agent := fmt.Sprintf("agent%03d", i)
			f.append(f.open(agent), lines(agent, 1, 1)...)
			age := time.Unix(int64(1_700_000_000+(i*7)%n), 0)
			must(t, os.Chtimes(f.path(agent+".jsonl"), age, age))
		}
		e := f.follow()
		if e.caughtUp() {
			t.Error("what was read was said to be all")
		}
		if len(e.lines) != maxAgents {
			t.Errorf("read %d agents' files, want %d", len(e.lines), maxAgents)
		}
		for len(e.lines) > 0 {
			line := <-e.lines
			for i := range n {
				if (i*7)%n < n-maxAgents && strings.Contains(line, fmt.Sprintf("agent%03d", i)) {
					t.Errorf("one of the oldest was read: %s", line)
				}
			}
		}
		f.append(f.open("late"), lines("late", 1, 1)...)
		f.wantLook(e)
		for i := range n {
			must(t, os.Remove(f.path(fmt.Sprintf("agent%03d.jsonl", i))))
		}
		f.wantLook(e, lines("late", 1, 1)...)
	})
}

// Of very much that stands there the newest part of each agent is read.
func TestStartIsBounded(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		for _, agent := range []string{"a", "b", "c"} {
			s := f.open(agent)
			s.rotate = 3000
			for n := range 200 {
				f.append(s, lines(agent, n, 1)...)
			}
		}
		must(t, os.Remove(f.path("b.jsonl.1")))
		line := int64(len(lines("a", 100, 1)[0]) + 1)
		reader := f.open("reader")
		for part := line / 2; part < 9000; part += 97 {
			reader.start = 3 * part
			e := follow(f.T, reader)
			synctest.Wait()
			e.caughtUp()
			e.stop()
			got := map[string][]string{}
			for len(e.lines) > 0 {
				text := <-e.lines
				got[text[10:11]] = append(got[text[10:11]], text)
			}
			for agent, list := range got {
				var want []string
				for _, l := range lines(agent, 200-len(list), len(list)) {
					want = append(want, string(l))
				}
				if !slices.Equal(list, want) {
					t.Fatalf("with parts of %d bytes: of %s got %q", part, agent, list)
				}
				if size := int64(len(strings.Join(list, "\n")) + 1); size > part+line || agent != "b" && size < part-line && len(list) < 199 && !all(f, agent, size) {
					t.Errorf("with parts of %d bytes: of %s %d bytes were read", part, agent, size)
				}
			}
		}
	})
}

// What is passed over at the start is not all; a file that was rotated away at
// that moment is read from its beginning.
func TestPassedOver(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		f.append(f.open("a"), lines("a", 1, 9)...)
		reader := f.open("reader")
		reader.start = 30
		e := follow(t, reader)
		e.want(lines("a", 9, 1))
		if e.caughtUp() {
			t.Error("the end of a file was said to be all")
		}
		root, err := os.OpenRoot(f.dir)
		must(t, err)
		defer root.Close()
		short, err := openTail(root, "a.jsonl", 1<<20)
		must(t, err)
		defer short.file.Close()
		n := 0
		must(t, short.read(t.Context(), func([]byte) { n++ }))
		if n != 9 {
			t.Errorf("read %d lines, want 9", n)
		}
	})
}

// all reports whether size is all there is of an agent.
func all(f *folder, agent string, size int64) bool {
	for _, end := range []string{fileEnd, olderEnd} {
		if info, err := os.Stat(f.path(agent + end)); err == nil {
			size -= info.Size()
		}
	}
	return size == 0
}

// A file that cannot be read does not hide the others.
func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("rights do not hold for root: a file that only names nothing stands for it")
	}
	inFolder(t, func(t *testing.T, f *folder) {
		f.append(f.open("a"), lines("a", 1, 1)...)
		f.append(f.open("b"), lines("b", 1, 1)...)
		must(t, os.Chmod(f.path("a.jsonl"), 0))
		e := f.follow()
		if os.Geteuid() != 0 {
			e.want(lines("b", 1, 1))
			if e.caughtUp() {
				t.Error("what could be read was said to be all")
			}
			must(t, os.Chmod(f.path("a.jsonl"), 0o600))
			f.wantLook(e, lines("a", 1, 1)...)
			return
		}
		e.want(slices.Concat(lines("a", 1, 1), lines("b", 1, 1)))
	})
}

// The outcomes' folder is on a disk that is full; nothing half written is in
// the way of what comes when there is room again.
func TestAppendFaults(t *testing.T) {
	inFolder(t, func(t *testing.T, f *folder) {
		a := f.open("a")
		must(t, os.Mkdir(f.dir, 0o700))
		must(t, os.Mkdir(f.path("a.jsonl"), 0o700))
		if err := a.Append(t.Context(), lines("a", 1, 1)); err == nil {
			t.Error("Append into a folder: no error")
		}
		must(t, os.Remove(f.path("a.jsonl")))
		f.append(a, lines("a", 2, 1)...)
		data, err := fs.ReadFile(os.DirFS(f.dir), "a.jsonl")
		must(t, err)
		if want := string(lines("a", 2, 1)[0]) + "\n"; string(data) != want {
			t.Errorf("the file holds %q, want %q", data, want)
		}
	})
}
