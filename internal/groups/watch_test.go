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
func running(t *testing.T, path string) (*Watcher, logged) {
	t.Helper()
	l := logged{slog.NewTextHandler(t.Output(), nil), make(chan slog.Record, 100)}
	w := New(path, slog.New(l))
	w.every = time.Millisecond
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

func TestRunSeesAFolderThatAppearsOrIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	path := filepath.Join(dir, "groups.json")
	w, l := running(t, path)
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
	fresh(`{`)
	l.next(t, slog.LevelError)
	wantAgent(t, w, "A") // the last good one
	replace(t, path, `[{"name":"B"}]`)
	l.next(t, slog.LevelInfo)
	wantAgent(t, w, "B")
}

// A key that is not read is logged when the file is loaded, and the file is in force.
func TestWatcherNamesKeysThatAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	write(t, path, `{"groups":{"oc_x":{"member":["a"]}}}`)
	w, l := running(t, path)
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
