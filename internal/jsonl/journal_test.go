package jsonl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	open := func(want ...string) *Journal {
		t.Helper()
		var got []string
		j, err := OpenJournal(root, "j", 10, func(line []byte) { got = append(got, string(line)) })
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q: %v", got, want, err)
		}
		t.Cleanup(func() { _ = j.Close() })
		return j
	}
	length := func(j *Journal, lines int) {
		t.Helper()
		info, err := root.Stat("j")
		if err != nil || j.Lines() != lines || j.Size() != info.Size() {
			t.Errorf("%d lines, %d bytes, want %d and %d: %v", j.Lines(), j.Size(), lines, info.Size(), err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	j := open()
	must(j.Append([]byte("a\nb\n")))
	must(j.Append([]byte("c\n")))
	length(j, 3)
	must(j.Close())
	must(j.Close())
	for _, err := range []error{j.Append([]byte("late\n")), j.Replace(nil)} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("a closed journal: %v", err)
		}
	}
	j = open("a", "b", "c")
	must(j.Replace([]byte("b\nc\n")))
	must(j.Append([]byte("d\n")))
	length(j, 3)
	must(j.Close())

	// A killed process left a torn line, and a hand a long one.
	f, err := os.OpenFile(filepath.Join(dir, "j"), os.O_APPEND|os.O_WRONLY, 0)
	must(err)
	_, err = f.WriteString(strings.Repeat("x", 50) + "\ntor")
	must(err)
	must(f.Close())
	j = open("b", "c", "d", "tor")
	must(j.Append([]byte("e\n")))
	must(j.Close())
	open("b", "c", "d", "tor", "e")
}

// A journal that another process has cut loses only the lines cut off.
func TestJournalThatWasCut(t *testing.T) {
	dir := t.TempDir()
	root := openFolder(t, dir)
	j, err := OpenJournal(root, "j", 100, func([]byte) {})
	must(t, err)
	must(t, j.Append([]byte("one\n")))
	must(t, os.Truncate(filepath.Join(dir, "j"), 2))
	must(t, errors.Join(j.Append([]byte("two\n")), j.Close()))
	wantFile(t, filepath.Join(dir, "j"), "on\ntwo\n")
}
