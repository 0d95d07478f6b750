//go:build unix

package book_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/book"
	"feishu-relay/internal/test/childtest"
)

// The role of processes: to write a book in a folder.
func TestMain(m *testing.M) {
	childtest.Main(m, map[string]func([]string) error{"write": func(args []string) error { return writer(args[0], false) },
		"limited": func(args []string) error { return writer(args[0], true) }})
}

const wheel = 200 // keys of the writer's texts

var writerKinds = map[string]book.Bound{"count": {}, "text": {}, "recent": {Count: 100}}

// text is what the writer commits as number n; some are longer than a page.
func text(n int) string { return strings.Repeat(fmt.Sprint(n, " "), 1+n%97*n%13) }

// writer commits in a loop and prints each number that is confirmed. With limited it commits against a limit of
// file sizes until a commit fails, removes the limit and commits once more.
func writer(dir string, limited bool) error {
	b, err := book.Open(dir, book.Options{Kinds: writerKinds}.ForTest(20_000, nil))
	if err != nil {
		return err
	}
	n, err := lastNumber(b)
	if err != nil {
		return err
	}
	if limited {
		if err := childtest.LimitFiles(30_000); err != nil {
			return err
		}
	}
	full := false
	for {
		n++
		err := b.Commit(set("text", fmt.Sprint(n%wheel), text(n)), set("recent", fmt.Sprint(n), text(n)), set("count", "", n))
		if err != nil && limited && !full {
			fmt.Println("full:", err)
			if err := childtest.LimitFiles(0); err != nil {
				return err
			}
			full, n = true, n-1
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(n)
		if full {
			return b.Close()
		}
	}
}

func lastNumber(b *book.Book) (n int, err error) {
	return n, b.Each(func(kind, _ string, value json.RawMessage) error {
		if kind == "count" {
			return json.Unmarshal(value, &n)
		}
		return nil
	})
}

// verify checks that a book is what the writer wrote up to some number, and returns the number.
func verify(t *testing.T, dir string) int {
	t.Helper()
	b := open(t, dir, book.Options{Kinds: writerKinds})
	defer closeBook(t, b)
	last, err := lastNumber(b)
	if err != nil {
		t.Fatal(err)
	}
	want := map[pair]bool{}
	for n := max(1, last-wheel+1); n <= last; n++ {
		want[pair{"text", fmt.Sprint(n % wheel), fmt.Sprintf("%q", text(n))}] = true
	}
	for n := max(1, last-100+1); n <= last; n++ {
		want[pair{"recent", fmt.Sprint(n), fmt.Sprintf("%q", text(n))}] = true
	}
	want[pair{"count", "", fmt.Sprint(last)}] = true
	for _, p := range content(t, b) {
		if !want[p] {
			t.Errorf("unexpected: %s %s (last is %d)", p.Kind, p.Key, last)
		}
		delete(want, p)
	}
	for p := range want {
		t.Errorf("missing: %s %s (last is %d)", p.Kind, p.Key, last)
	}
	if s := b.Stats(); s.Skipped != 0 {
		t.Errorf("%d malformed lines", s.Skipped)
	}
	return last
}

// A writer is killed again and again: what it confirmed is there, and nothing else but one batch.
func TestCrashKills(t *testing.T) {
	t.Parallel()
	dir, confirmed := t.TempDir(), 0
	for kill := range max(20, crashKills()) {
		writer := childtest.Start(t, "write", dir)
		var said []string
		for range 1 + kill*37%300 {
			said = append(said, writer.Line())
		}
		said = append(said, writer.Kill()...)
		for _, line := range said {
			if n, err := strconv.Atoi(line); err == nil { // the last line may be cut
				confirmed = max(confirmed, n)
			}
		}
		if got := verify(t, dir); got < confirmed || t.Failed() {
			t.Fatalf("kill %d: the book ends with %d; %d was confirmed", kill, got, confirmed)
		}
	}
	t.Log(confirmed, "batches")
}

// The system refuses a write in its middle: nothing of it counts, also after a restart, and the next one works.
func TestPartialWrite(t *testing.T) {
	t.Parallel()
	dir, full, last := t.TempDir(), "", 0
	out := childtest.Start(t, "limited", dir).Out
	for out.Scan() {
		if n, err := strconv.Atoi(out.Text()); err == nil {
			if last++; n != last {
				t.Errorf("%d was confirmed after %d", n, last-1)
			}
		} else if strings.HasPrefix(out.Text(), "full: ") {
			full = out.Text()
		} else {
			t.Error(out.Text())
		}
	}
	if want := "file too large"; !strings.Contains(full, want) {
		t.Errorf("got %q, want %q", full, want)
	}
	if got := verify(t, dir); got != last {
		t.Errorf("the book ends with %d; %d was confirmed last", got, last)
	}
}

// A second process learns who has the book, and has it when the first is gone, however that ended.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writer := childtest.Start(t, "write", dir)
	writer.Line()
	_, err := book.Open(dir, book.Options{Kinds: writerKinds})
	want := fmt.Sprintf("in use by process %d on ", writer.Cmd.Process.Pid)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	writer.Kill()
	verify(t, dir)
}
