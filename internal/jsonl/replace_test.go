package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/safefile"
)

// recall makes a change that gives the line with an id a shorter text.
func recall(id string) func([]byte) []byte {
	return func(line []byte) []byte {
		if bytes.Contains(line, []byte(`"`+id+`"`)) {
			return []byte(`{"id":"` + id + `"}`)
		}
		return nil
	}
}

func openFolder(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func textLine(id string) string { return `{"id":"` + id + `","text":"something that is recalled"}` }

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	root, l, path := openFolder(t, dir), newLog(t, dir), filepath.Join(dir, "log")
	put(t, l, textLine("1"), textLine("2"), textLine("3"))
	n, err := Replace(root, "log", 1000, recall("2"))
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	padding := strings.Repeat(" ", len(textLine("2"))-len(`{"id":"2"}`)-len(replacedMark)) + replacedMark
	wantFile(t, path, textLine("1")+"\n"+`{"id":"2"}`+padding+"\n"+textLine("3")+"\n")
	if n, err := Replace(root, "log", 1000, recall("9")); n != 0 || err != nil {
		t.Errorf("a line that is missing: %d, %v", n, err)
	}
	longer := func([]byte) []byte { return bytes.Repeat([]byte{'x'}, 100) }
	if n, err := Replace(root, "log", 1000, longer); n != 0 || !errors.Is(err, ErrNoRoom) {
		t.Errorf("a longer text: %d, %v", n, err)
	}
	must(t, l.Do(func(int64) error { // this process has the lock
		if _, err := Replace(root, "log", 1000, recall("3")); !errors.Is(err, ErrLocked) {
			t.Errorf("of a locked file: %v", err)
		}
		return nil
	}))
	put(t, l, textLine("4"))
	must(t, os.Rename(path, path+".1"))
	put(t, l, textLine("5"))
	if n, err := Replace(root, "log.1", 1000, func(line []byte) []byte { return line[:0] }); n != 4 || err != nil {
		t.Errorf("all lines of a rotated file: %d, %v", n, err)
	}
}

// Whoever follows the file meanwhile reads each line once, whole, with the one text or the
// other, wherever the lines are that are replaced.
func TestReplaceWhileOthersReadAndAppend(t *testing.T) {
	dir := t.TempDir()
	root, l := openFolder(t, dir), newLog(t, dir)
	const n = 300
	ended := make(chan error, 2)
	go func() {
		for i := range n {
			if err := add(t.Context(), l, textLine(fmt.Sprint("m", i))); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	go func() {
		for i := range n {
			id := fmt.Sprint("m", i)
			for done := 0; done == 0; {
				err := Retry(t.Context(), func() (err error) {
					done, err = Replace(root, "log", 1000, recall(id))
					if errors.Is(err, os.ErrNotExist) {
						err = nil
					}
					return err
				})
				if err != nil {
					ended <- err
					return
				}
			}
		}
		ended <- nil
	}()
	place := NewTail(1000)
	next := 0
	for running := 2; next < n || running > 0; {
		select {
		case err := <-ended:
			must(t, err)
			running--
		default:
		}
		f, err := safefile.Open(root, "log", os.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		_, err = place.Read(f, info.Size(), func(line Line) bool {
			if want := fmt.Sprintf(`{"id":"m%d"`, next); !bytes.HasPrefix(line.Text, []byte(want)) {
				t.Fatalf("line %d is %q", next, line.Text)
			}
			next++
			return true
		})
		must(t, errors.Join(err, f.Close()))
	}
}

// A file that was cut and filled again is another one, also with lines as long.
func TestReplacedFileIsNoReplacedLine(t *testing.T) {
	was := []byte("aaaaaaaaaaaa\nbbbbbbbbbbbb\n")
	for _, other := range []string{"aaaaaaaaaaaa\nxxxxxxxxxxxx\n", "aaaaaaaaaaaaxxxxxxxxxxxxxx\n", "aaaaaaaaaaaa\nbbbbbbbbbb  \n",
		"aaaaaaaaaaaa\nbb  " + replacedMark + " "} {
		if replacedLines([]byte(other), was) {
			t.Errorf("%q passes for what was read", other)
		}
	}
	if !replacedLines([]byte("aaaaaaaaaaaa\nb   "+replacedMark+"\n"), was) {
		t.Error("a replaced line does not")
	}
}
