package groups

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// logged is a log handler that hands each record on: a test waits for what the
// watcher says.
type logged struct {
	slog.Handler
	records chan slog.Record
}

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.records <- r
	return nil
}

// running returns a running watcher of path and its log.
func running(t *testing.T, path string, recheck time.Duration) (*Watcher, logged) {
	t.Helper()
	l := logged{slog.NewTextHandler(t.Output(), nil), make(chan slog.Record, 100)}
	w := New(path, slog.New(l))
	w.recheck = recheck
	_ = w.Load()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w, l
}

// next waits for the next record, which must have the wanted level.
func (l logged) next(t *testing.T, want slog.Level) {
	t.Helper()
	if r := <-l.records; r.Level != want {
		t.Fatalf("logged %s %q, want level %s", r.Level, r.Message, want)
	}
}

// fixed waits for the log record that a good file was loaded. Edits that are
// not atomic may be seen half done before.
func (l logged) fixed() {
	for r := range l.records {
		if r.Level == slog.LevelInfo {
			return
		}
	}
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace does what most editors do.
func replace(t *testing.T, path, data string) {
	t.Helper()
	write(t, path+".tmp", data)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func wantAgent(t *testing.T, w *Watcher, id string) {
	t.Helper()
	f := w.Current()
	if _, ok := f.Agents[id]; !ok || len(f.Agents) != 1 {
		t.Errorf("agents are %v, want only %s", f.Agents, id)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(name, data string) string {
		path := filepath.Join(dir, name)
		write(t, path, data)
		return path
	}
	for _, tt := range []struct{ name, path, wantErr string }{
		{"OK", file("good.json", `[{"name":"B"}]`), ""},
		{"missing file", filepath.Join(dir, "none.json"), ""},
		{"missing folder", filepath.Join(dir, "no", "none.json"), ""},
		{"broken", file("bad.json", `[{"name":7}]`), "[0].name"},
		{"empty", file("empty.json", ""), "empty"},
		{"too large", file("large.json", strings.Repeat(" ", MaxSize+2)), "at most 1048576"},
		{"a folder", dir, "not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := New(tt.path, nil)
			err := w.Load()
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("Load = %v, want an error with %q", err, tt.wantErr)
			}
			if !errors.Is(w.Err(), err) {
				t.Errorf("Err = %v, want %v", w.Err(), err)
			}
			if got, want := len(w.Current().Agents), 0; tt.name != "OK" && got != want {
				t.Errorf("%d agents, want %d", got, want)
			}
		})
	}
}

// These tests wait on the real change events of the system, since the slow
// look is an hour away.
func TestRunTakesOver(t *testing.T) {
	t.Run("a file that appears", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "groups.json")
		w, l := running(t, path, time.Hour)
		// What comes before the watch is set is found by Run's own first look.
		replace(t, path, `[{"name":"B"}]`)
		l.next(t, slog.LevelInfo)
		wantAgent(t, w, "B")
	})
	t.Run("each kind of edit", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "groups.json")
		write(t, path, `[{"name":"A"}]`)
		w, l := running(t, path, time.Hour)
		wantAgent(t, w, "A")

		replace(t, path, `[{"name":"B"}]`)
		l.next(t, slog.LevelInfo)
		wantAgent(t, w, "B")

		write(t, path, `[{"name":"C"}]`) // in place, the same size
		l.fixed()
		wantAgent(t, w, "C")

		if err := os.Rename(path, path+"~"); err != nil { // a backup, then a new file
			t.Fatal(err)
		}
		write(t, path, `[{"name":"D"}]`)
		l.fixed()
		wantAgent(t, w, "D")
	})
}

func TestRunKeepsTheLastGoodFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	write(t, path, `[{"name":"A"}]`)
	w, l := running(t, path, time.Hour)

	replace(t, path, `[{"name":"B","aliases":3}]`)
	l.next(t, slog.LevelError)
	wantAgent(t, w, "A")
	if err := w.Err(); err == nil || !strings.Contains(err.Error(), "groups.json: [0].aliases: wants a list") {
		t.Errorf("Err = %v, want the place and the mistake", err)
	}

	replace(t, path, `[{"name":"B"}`)
	l.next(t, slog.LevelError)
	wantAgent(t, w, "A")

	replace(t, path, `[{"name":"B"}]`)
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "B")
	if err := w.Err(); err != nil {
		t.Errorf("Err = %v after the file was fixed", err)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l.next(t, slog.LevelError)
	wantAgent(t, w, "B")
	if err := w.Err(); !errors.Is(err, errGone) {
		t.Errorf("Err = %v, want %v", err, errGone)
	}

	replace(t, path, `[{"name":"B"}]`) // the same content again
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "B")
	if err := w.Err(); err != nil {
		t.Errorf("Err = %v after the file was back", err)
	}
}

func TestRunMendsABrokenStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	write(t, path, `{`)
	w, l := running(t, path, time.Hour)
	if w.Err() == nil {
		t.Error("no error of a broken file")
	}
	replace(t, path, `[{"name":"A"}]`)
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "A")
}

func TestRunSeesAFolderThatAppearsOrIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	path := filepath.Join(dir, "groups.json")
	w, l := running(t, path, time.Millisecond)

	fresh := func(data string) {
		t.Helper()
		if err := os.Mkdir(dir+".new", 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir+".new", "groups.json"), data)
		if err := os.Rename(dir+".new", dir); err != nil {
			t.Fatal(err)
		}
	}
	fresh(`[{"name":"A"}]`)
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "A")

	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	l.next(t, slog.LevelError) // gone
	fresh(`[{"name":"B"}]`)
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "B")
}

func TestLookReadsOnlyWhatChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	write(t, path, `[{"name":"A"}]`)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	w := New(path, nil)
	if err := w.Load(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.read(false); !errors.Is(err, errUnchanged) {
		t.Errorf("an old file is read again: %v", err)
	}
	if data, err := w.read(true); err != nil || len(data) == 0 {
		t.Errorf("a hint does not make it read: %v", err)
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	for range 2 { // within the clock's grain another write could look the same
		if data, err := w.read(false); err != nil || len(data) == 0 {
			t.Errorf("a young file is not read: %v", err)
		}
	}
	before := w.Current()
	w.reload(false)
	if w.Current() != before {
		t.Error("a touched file was taken over")
	}
}

// A key that is not read is logged when the file is loaded, and the file is in force.
func TestWatcherNamesKeysThatAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	write(t, path, `{"groups":{"oc_x":{"member":["a"]}}}`)
	w, l := running(t, path, time.Hour)
	r := <-l.records
	var keys string
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "keys" {
			keys = a.Value.String()
		}
		return true
	})
	if r.Level != slog.LevelWarn || !strings.Contains(keys, "members is") {
		t.Errorf("logged %s %q with keys %q", r.Level, r.Message, keys)
	}
	if len(w.Current().Groups) != 1 {
		t.Error("the file is not in force")
	}
}
