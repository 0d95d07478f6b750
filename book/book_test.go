package book_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/book"
)

// pair is a record as Each passes it.
type pair struct{ Kind, Key, Value string }

var kinds = map[string]book.Bound{"id": {Count: 5}, "text": {Bytes: 400}, "set": {}, "aged": {Age: time.Minute}}

func open(t testing.TB, dir string, o book.Options) *book.Book {
	t.Helper()
	if o.Kinds == nil {
		o.Kinds = kinds
	}
	b, err := book.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBook(t, b) })
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closeBook(t testing.TB, b *book.Book) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func commit(t testing.TB, b *book.Book, records ...book.Record) {
	t.Helper()
	must(t, b.Commit(records...))
}

// content is what Each passes; Load must agree.
func content(t testing.TB, b *book.Book) (all []pair) {
	t.Helper()
	if err := b.Each(func(kind, key string, value json.RawMessage) error {
		all = append(all, pair{kind, key, string(value)})
		loaded, err := b.Load(kind, key)
		if err == nil && !bytes.Equal(loaded, value) {
			err = fmt.Errorf("load %s %s: got %s, want %s", kind, key, loaded, value)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantContent(t testing.TB, b *book.Book, want ...pair) {
	t.Helper()
	if diff := cmp.Diff(want, content(t, b)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func copyDir(t testing.TB, from string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func set(kind, key string, value any) book.Record {
	return book.Record{Kind: kind, Key: key, Value: value}
}

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents", "bota")
	b := open(t, dir, book.Options{})
	type verdict struct {
		Why string `json:"why"`
	}
	commit(t, b, set("set", "a", 1), set("id", `om_"1"`, verdict{"<hop> & limit"}), set("set", "b", "two"))
	commit(t, b, set("set", "a", json.RawMessage(`{ "n": [1,
		2] }`)), set("set", "b", nil), set("set", "missing", nil), set("set", "", "own"))
	want := []pair{{"id", `om_"1"`, `{"why":"<hop> & limit"}`}, {"set", "a", `{"n":[1,2]}`}, {"set", "", `"own"`}}
	wantContent(t, b, want...)

	for name, r := range map[string]book.Record{
		"unknown kind": set("sett", "a", 1), "key is not UTF-8": set("set", "\xff", 1),
		"not JSON": set("set", "c", json.RawMessage("{")), "cannot be encoded": set("set", "c", func() {}),
	} {
		if err := b.Commit(set("set", "before", 1), r); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	if err := b.Commit(set("text", "a", strings.Repeat("x", 400))); !errors.Is(err, book.ErrTooLarge) {
		t.Errorf("a record larger than its kind: got %v, want ErrTooLarge", err)
	}
	if _, err := b.Load("set", "b"); !errors.Is(err, book.ErrNotFound) {
		t.Errorf("load a deleted record: got %v, want ErrNotFound", err)
	}
	stop := errors.New("stop")
	if err := b.Each(func(string, string, json.RawMessage) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Each returned %v, want the error of f", err)
	}
	wantContent(t, b, want...)
	closeBook(t, b)
	closeBook(t, b)
	_, loadErr := b.Load("set", "a")
	for _, err := range []error{b.Commit(set("set", "a", 1)), b.Each(nil), loadErr} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
	}
	wantContent(t, open(t, dir, book.Options{}), want...)
}

func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	shared := filepath.Join(t.TempDir(), "shared")
	dir := filepath.Join(shared, "bota")
	must(t, errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o770)))
	b := open(t, dir, book.Options{}.ForTest(1, nil))
	for range 3 {
		commit(t, b, set("set", "a", 1))
	}
	b.WaitForSnapshot()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestBounds(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := book.Options{Now: func() time.Time { return now }}
	b := open(t, dir, o)
	for i := range 7 {
		commit(t, b, set("id", fmt.Sprint(i), i))
	}
	commit(t, b, set("id", "3", "again"))
	commit(t, b, set("id", "7", 7)) // drops 2
	for i := range 4 {
		commit(t, b, set("text", fmt.Sprint(i), strings.Repeat("x", 150)))
	}
	commit(t, b, set("aged", "old", 1))
	now = now.Add(40 * time.Second)
	commit(t, b, set("aged", "new", 1))
	text := `"` + strings.Repeat("x", 150) + `"`
	want := []pair{{"id", "4", "4"}, {"id", "5", "5"}, {"id", "6", "6"}, {"id", "3", `"again"`}, {"id", "7", "7"},
		{"text", "2", text}, {"text", "3", text}, {"aged", "old", "1"}, {"aged", "new", "1"}}
	wantContent(t, b, want...)
	if got := b.Stats().Dropped; got != 5 {
		t.Errorf("dropped %d, want 5", got)
	}
	now = now.Add(30 * time.Second)
	commit(t, b)
	want = slices.Delete(want, 7, 8)
	wantContent(t, b, want...)
	closeBook(t, b)
	wantContent(t, open(t, dir, o), want...)
}

// A deleted text must leave the disk within Forget, without any other traffic.
func TestForget(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := book.Options{Forget: time.Minute, Now: func() time.Time { return now }}
	b := open(t, dir, o)
	commit(t, b, set("set", "a", "secret"), set("set", "b", "other"))
	commit(t, b, set("set", "a", nil))
	now = now.Add(time.Minute)
	commit(t, b)
	b.WaitForSnapshot()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 3 { // lock, snapshot, log
		t.Errorf("files %q, %v", names, err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil || bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s still has the text: %v", name, err)
		}
	}
	wantContent(t, b, pair{"set", "b", `"other"`})
	now = now.Add(time.Hour)
	commit(t, b)
	if got := b.Stats(); got.Snapshots != 1 || got.Records != 1 || got.Live != got.Disk {
		t.Errorf("stats %+v, want no second snapshot", got)
	}
}

// Each prefix of a log is a book of the batches that are whole in it, and takes new ones.
func TestTornAtEachByte(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, book.Options{})
	log := filepath.Join(dir, "book.1.jsonl")
	var ends []int
	var states [][]pair
	for i := range 3 {
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		ends, states = append(ends, int(info.Size())), append(states, content(t, b))
		commit(t, b, set("set", "a", i), set("set", fmt.Sprint("键", i), "文"), set("set", "a", i+1))
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	ends, states = append(ends, len(text)), append(states, content(t, b))
	for cut := range len(text) + 1 {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "book.1.jsonl"), text[:cut], 0o600))
		whole := len(ends) - 1
		for ends[whole] > cut {
			whole--
		}
		b := open(t, dir, book.Options{})
		wantContent(t, b, states[whole]...)
		commit(t, b, set("set", "z", cut))
		closeBook(t, b)
		b = open(t, dir, book.Options{})
		wantContent(t, b, append(slices.Clone(states[whole]), pair{"set", "z", fmt.Sprint(cut)})...)
		if got := b.Stats().Skipped; got != 0 {
			t.Errorf("cut at %d: %d lines are malformed", cut, got)
		}
		closeBook(t, b)
	}
}

// People edit the files: each line counts for itself, in any spelling of JSON.
func TestEditedFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"book.1.jsonl": `{"k":"set","id":"obsolete","t":1,"v":1}` + "\n",
		"snapshot.2.jsonl": `{"k":"set","id":"a","t":1,"more":true,"v":1}
not JSON
{"k":"set","id":"c","t":1,"v":3}
`,
		"book.2.jsonl": "\ufeff" + `{"k":"set","id":"bom","t":1,"v":1}

{ "id": "b", "v": {"x": [1, 2]}, "k": "set", "note": "mine" }
{"k":"set","id":"d","t":1,"v":{"x":1}
{"k":"set","id":"c","t":9999999999,"v":"c","note":1}` + "\r\n" + `{"k":"later","id":"x","t":1,"v":null}
{"id":"no kind","v":1}
{"k":"set","id":"e\u0041","t":1,"v":1}
{"k":"set","id":"f","t":-5,"v":1}
{"k":"set","id":"f","t":1}
[1]
{"k":"set","id":"no newline","t":1,"v":1}`,
		"book.x.jsonl": "else", "snapshot.1.jsonl": "obsolete", "snapshot.tmp": "left", "notes.txt": "mine",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var log bytes.Buffer
	o := book.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}.ForTest(1, nil)
	b := open(t, dir, o)
	want := []pair{{"set", "a", "1"}, {"set", "b", `{"x": [1, 2]}`}, {"set", "c", `"c"`}, {"later", "x", "null"},
		{"set", "eA", "1"}}
	wantContent(t, b, want...)
	for _, line := range []string{"snapshot.2.jsonl line=2", "book.2.jsonl line=1", "book.2.jsonl line=2",
		"book.2.jsonl line=4", "book.2.jsonl line=7", "book.2.jsonl line=11", "removed an unfinished batch"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log does not name %q:\n%s", line, &log)
		}
	}
	if got := b.Stats().Skipped; got != 6 {
		t.Errorf("skipped %d lines, want 6", got)
	}
	commit(t, b, set("set", "a", "new"))
	b.WaitForSnapshot()
	closeBook(t, b)
	b = open(t, dir, o)
	wantContent(t, b, append(slices.Clone(want[1:]), pair{"set", "a", `"new"`})...)
	if got := b.Stats(); got.Skipped != 0 || got.Disk != got.Live {
		t.Errorf("after a snapshot: %+v, want no malformed line and no garbage", got)
	}
	names, err := fs.Glob(os.DirFS(dir), "*")
	files := []string{"book.3.jsonl", "book.x.jsonl", "lock", "notes.txt", "snapshot.3.jsonl"}
	if err != nil || !slices.Equal(names, files) {
		t.Errorf("files %q, want %q", names, files)
	}
}

func TestChangedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, book.Options{})
	commit(t, b, set("set", "a", "value"))
	must(t, os.WriteFile(filepath.Join(dir, "book.1.jsonl"), bytes.Repeat([]byte{'x'}, 100), 0o600))
	if _, err := b.Load("set", "a"); !errors.Is(err, book.ErrChanged) {
		t.Errorf("got %v, want ErrChanged", err)
	}
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "book.1.jsonl")
	must(t, os.Mkdir(folder, 0o700))
	if _, err := book.Open(dir, book.Options{Kinds: kinds}); err == nil || !strings.Contains(err.Error(), "book.1.jsonl") {
		t.Errorf("got %v, want an error with the name of the file", err)
	}
	must(t, os.Remove(folder))
	open(t, dir, book.Options{})
}

func TestSecondBookIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, book.Options{})
	_, err := book.Open(dir, book.Options{Kinds: kinds})
	want := fmt.Sprintf("in use by process %d on ", os.Getpid())
	if !errors.Is(err, book.ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrInUse with %q", err, want)
	}
	closeBook(t, b)
	open(t, dir, book.Options{})
}

// model is what a book has to contain: the records in the order of the commits.
type model []pair

func (m model) commit(records []book.Record) model {
	m = slices.Clone(m)
	for _, r := range records {
		m = slices.DeleteFunc(m, func(p pair) bool { return p.Kind == r.Kind && p.Key == r.Key })
		if r.Value == nil {
			continue
		}
		m = append(m, pair{r.Kind, r.Key, fmt.Sprintf("%q", r.Value)})
		ids := 0
		for _, p := range m {
			if p.Kind == "id" {
				ids++
			}
		}
		if oldest := slices.IndexFunc(m, func(p pair) bool { return p.Kind == "id" }); ids > kinds["id"].Count {
			m = slices.Delete(m, oldest, oldest+1)
		}
	}
	return m
}

// crashKills asks for a longer run of the crash tests.
func crashKills() int {
	n, _ := strconv.Atoi(os.Getenv("CRASH_KILLS"))
	return n
}

func randomBatch(r *rand.Rand) []book.Record {
	var batch []book.Record
	for range 1 + r.IntN(4) {
		kind := []string{"id", "set"}[r.IntN(2)]
		rec := set(kind, fmt.Sprint("k", r.IntN(9)), strings.Repeat("v", r.IntN(40)))
		if r.IntN(4) == 0 {
			rec.Value = nil
		}
		batch = append(batch, rec)
	}
	return batch
}

// TestCrashModel commits at random, with errors of the disk at random, and looks before and after each change of
// the folder, and in the middle of each write, at what a kill there would leave: all that was confirmed, in its order,
// and of what was not the whole batch or nothing.
func TestCrashModel(t *testing.T) {
	for seed := range uint64(max(4, crashKills()/4)) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			var mu sync.Mutex // one change at a time: a copy is a state that the folder had
			var confirmed, next model
			faulty, killed := false, 0
			check := func() {
				killed++
				b := open(t, copyDir(t, dir), book.Options{}.ForTest(200, nil))
				got := content(t, b)
				closeBook(t, b)
				if !slices.Equal(got, confirmed) && !slices.Equal(got, next) {
					t.Errorf("after a kill: %v\nconfirmed: %v\nbeing written: %v", got, confirmed, next)
				}
			}
			step := func(op, name string, data []byte, do func([]byte) error) error {
				mu.Lock()
				defer mu.Unlock()
				if len(data) > 0 {
					if err := do(data[:r.IntN(len(data))]); err != nil {
						return err
					}
					check()
				}
				if faulty && op != "remove" && r.IntN(12) == 0 {
					return syscall.ENOSPC
				}
				err := do(data)
				check()
				return err
			}
			o := book.Options{Sync: seed%2 == 0}.ForTest(200, step)
			b := open(t, dir, o)
			for range 60 {
				mu.Lock()
				faulty = true
				batch := randomBatch(r)
				next = confirmed.commit(batch)
				mu.Unlock()
				err := b.Commit(batch...)
				mu.Lock()
				if err == nil {
					confirmed = next
				}
				look, reopen := r.IntN(10) == 0, r.IntN(15) == 0
				mu.Unlock()
				if look {
					wantContent(t, b, confirmed...)
				}
				if reopen {
					closeBook(t, b)
					faulty = false
					b = open(t, dir, o)
				}
			}
			mu.Lock()
			faulty, next = false, confirmed
			mu.Unlock()
			if err := b.Commit(); err != nil {
				t.Error(err)
			}
			b.WaitForSnapshot()
			wantContent(t, b, confirmed...)
			t.Log(killed, "kills")
		})
	}
}

// A full disk refuses batches and harms nothing; with space again commits and snapshots work.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	full, truncatable, now := false, true, time.Now()
	step := func(op, name string, data []byte, do func([]byte) error) error {
		switch {
		case op == "write" && full:
			return errors.Join(syscall.ENOSPC, do(data)) // the worst case: all is written, and then the sync fails
		case op == "truncate" && !truncatable, op == "rename":
			return syscall.EIO
		}
		return do(data)
	}
	b := open(t, dir, book.Options{Forget: time.Minute, Now: func() time.Time { return now }}.ForTest(0, step))
	commit(t, b, set("set", "a", 0))
	commit(t, b, set("set", "a", 1))
	full = true
	for _, truncatable = range []bool{true, false} {
		for range 3 {
			err := b.Commit(set("set", "a", 2), set("set", "b", 2))
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EIO) {
				t.Errorf("full disk: got %v", err)
			}
		}
		wantContent(t, b, pair{"set", "a", "1"})
	}
	full = false
	if err := b.Commit(set("set", "a", 3)); !errors.Is(err, syscall.EIO) {
		t.Errorf("commit behind a failed write: got %v, want EIO", err)
	}
	now = now.Add(time.Minute)
	commit(t, b) // must not begin a new log behind the failed write
	truncatable = true
	commit(t, b, set("set", "a", 3))
	closeBook(t, b)
	b = open(t, dir, book.Options{})
	wantContent(t, b, pair{"set", "a", "3"})
}

// While snapshots fail, commits go on; the next snapshot begins when the files have grown.
func TestFailedSnapshots(t *testing.T) {
	dir, begun := t.TempDir(), 0
	fail := true
	var log bytes.Buffer
	step := func(op, name string, data []byte, do func([]byte) error) error {
		if op == "create" && strings.HasPrefix(name, "snapshot") {
			if begun++; fail {
				return syscall.ENOSPC
			}
		}
		return do(data)
	}
	b := open(t, dir, book.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}.ForTest(1000, step))
	for i := range 1000 {
		commit(t, b, set("set", "a", i))
		b.WaitForSnapshot()
	}
	if begun < 2 || begun > 20 || !strings.Contains(log.String(), "no snapshot of the book was written") {
		t.Errorf("%d snapshots were begun; log:\n%s", begun, &log)
	}
	closeBook(t, b)
	fail = false
	b = open(t, dir, book.Options{}.ForTest(1000, step))
	wantContent(t, b, pair{"set", "a", "999"})
	commit(t, b)
	b.WaitForSnapshot()
	if names, err := filepath.Glob(filepath.Join(dir, "*.jsonl")); err != nil || len(names) != 2 {
		t.Errorf("files %q, %v; want one snapshot and one log", names, err)
	}
	wantContent(t, b, pair{"set", "a", "999"})
}

// Commits do not wait for a snapshot, and what they change while records are copied gives the same book after a
// restart: "d" has dropped "a" before "c" was deleted, so "a" must not come back in the place of "c".
func TestCommitWhileSnapshot(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	copying, goOn := make(chan struct{}), make(chan struct{})
	step := func(op, name string, data []byte, do func([]byte) error) error {
		if op == "write" && name == "snapshot.tmp" && copying != nil {
			close(copying)
			copying = nil
			<-goOn
		}
		return do(data)
	}
	o := book.Options{Kinds: map[string]book.Bound{"id": {Count: 3}, "set": {}}, Forget: time.Minute,
		Now: func() time.Time { return now }}
	b := open(t, dir, o.ForTest(0, step))
	commit(t, b, set("set", "x", 0), set("set", "x", 1))
	text := strings.Repeat("text", 100_000)
	commit(t, b, set("id", "a", text), set("id", "b", text), set("id", "c", text))
	now = now.Add(time.Minute)
	reached := copying
	commit(t, b)
	<-reached
	commit(t, b, set("id", "d", "d"))
	commit(t, b, set("id", "c", nil))
	commit(t, b, set("set", "x", 2))
	close(goOn)
	b.WaitForSnapshot()
	want := []pair{{"id", "b", `"` + text + `"`}, {"id", "d", `"d"`}, {"set", "x", "2"}}
	wantContent(t, b, want...)
	closeBook(t, b)
	wantContent(t, open(t, dir, o), want...)
}

// Readers find each value while the owner commits and snapshots replace the files below them.
func TestLoadWhileSnapshots(t *testing.T) {
	const keys, readers, commits = 50, 3, 4000
	b := open(t, t.TempDir(), book.Options{Kinds: map[string]book.Bound{"text": {}}}.ForTest(2000, nil))
	all := map[string]string{}
	for i := range keys {
		key := fmt.Sprint(i)
		all[key] = strings.Repeat(key, 50)
		commit(t, b, set("text", key, all[key]))
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for r := rand.New(rand.NewPCG(1, 2)); ; {
				select {
				case <-done:
					return
				default:
				}
				key := fmt.Sprint(r.IntN(keys))
				var text string
				value, err := b.Load("text", key)
				if err == nil {
					err = json.Unmarshal(value, &text)
				}
				if err != nil || text != all[key] {
					t.Errorf("load %s: got %q, %v", key, text, err)
					return
				}
				b.Stats()
			}
		})
	}
	for i := range commits {
		key := fmt.Sprint(i % keys)
		if i%2 == 0 {
			key = "0"
		}
		commit(t, b, set("text", key, all[key]))
		if i%1000 == 999 {
			b.WaitForSnapshot() // at least some of them end
		}
	}
	b.WaitForSnapshot()
	close(done)
	running.Wait()
	if got := b.Stats(); got.Snapshots < 2 || got.Records != keys {
		t.Errorf("stats %+v", got)
	}
	got := map[string]string{}
	for _, p := range content(t, b) {
		got[p.Key] = strings.Trim(p.Value, `"`)
	}
	if !maps.Equal(got, all) {
		t.Errorf("content %v", got)
	}
}
