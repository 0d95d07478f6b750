package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
)

type doc struct {
	Text string `json:"text"`
}

var options = spool.Options{Suffix: ".json", MaxFile: 1000}

func open(t *testing.T, dir string, o spool.Options) *spool.Spool[doc] {
	t.Helper()
	root, err := safefile.OpenDir(dir)
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return spool.New[doc](root, o)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func TestSaveReadRemove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options)
	must(t, s.Save("a", doc{"one <b>"}))
	must(t, s.Save("a", doc{"two <b>"}))
	data, err := os.ReadFile(filepath.Join(dir, "a.json"))
	if got := string(data); err != nil || got != `{"text":"two <b>"}`+"\n" {
		t.Errorf("the file holds %s, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its rights are %v, %v", info.Mode(), err)
	}
	if v, err := s.Read("a"); err != nil || v.Text != "two <b>" || s.Len() != 1 {
		t.Errorf("got %+v, %v, of %d", v, err, s.Len())
	}
	s.Remove("a")
	s.Remove("a")
	if _, err := s.Read("a"); !errors.Is(err, fs.ErrNotExist) || s.Len() != 0 {
		t.Errorf("removed, and read: %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.json": `{"text":"b"}`, "a.json": `{"text":"a"}`,
		"refused.json": `{"text":"refused"}`, "torn.json": `{"text":"SECRET`,
		"list.json": "[]", "type.json": `{"text":7}`, "large.json": `{"text":"` + strings.Repeat("x", 1000) + `"}`,
		"a.json.ABCDEFGH.tmp": "{", "notes.txt": "mine"} {
		write(t, dir, name, text)
	}
	must(t, os.Mkdir(filepath.Join(dir, "folder.json"), 0o700))
	var log bytes.Buffer
	o := options
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, dir, o)
	var got []string
	load := func() {
		must(t, s.Load(func(name string, v doc) error {
			if v.Text == "refused" {
				return errors.New("not wanted")
			}
			got = append(got, name+": "+v.Text)
			return nil
		}))
	}
	load()
	if want := []string{"a: a", "b: b"}; !slices.Equal(got, want) || s.Len() != 2 {
		t.Errorf("loaded %q, want %q", got, want)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"a.json", "b.json", "folder.json", "large.json.broken", "list.json.broken", "notes.txt",
		"refused.json.broken", "torn.json.broken", "type.json.broken"}; !slices.Equal(names, want) {
		t.Errorf("the folder holds %q, want %q", names, want)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 5 || strings.Contains(text, "SECRET") {
		t.Errorf("logged %s", text)
	}
}

func TestBounds(t *testing.T) {
	o := options
	o.MaxDocs, o.MaxBytes, o.MaxHeld = 2, 100, 50
	s := open(t, t.TempDir(), o)
	if err := s.Save("large", doc{strings.Repeat("x", 1000)}); !errors.Is(err, spool.ErrLarge) {
		t.Errorf("a large one: %v", err)
	}
	must(t, s.Save("a", doc{"a"}))
	if err := s.Save("b", doc{strings.Repeat("x", 100)}); !errors.Is(err, spool.ErrFull) {
		t.Errorf("too many bytes: %v", err)
	}
	must(t, s.Save("a", doc{strings.Repeat("x", 50)})) // what is there may change
	if err := s.Hold("b", doc{"b"}, 51); !errors.Is(err, spool.ErrFull) {
		t.Errorf("too much is held: %v", err)
	}
	must(t, s.Hold("b", doc{"b"}, 10))
	must(t, s.Hold("b", doc{"c"}, 20))
	if err := s.Save("d", doc{"d"}); !errors.Is(err, spool.ErrFull) {
		t.Errorf("too many: %v", err)
	}
	if v, err := s.Read("b"); err != nil || v.Text != "c" {
		t.Errorf("held: %+v, %v", v, err)
	}
	s.Remove("b")
	s.Remove("a")
	must(t, s.Hold("d", doc{"d"}, 50))
	must(t, s.Save("d", doc{"saved"})) // nothing is held any more
	must(t, s.Hold("e", doc{"e"}, 50))
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := spool.New[doc](nil, options)
		for i := range 5 {
			must(t, s.Save(fmt.Sprint(i), doc{}))
			s.Schedule(fmt.Sprint(i), start.Add(time.Duration(5-i)*time.Second))
		}
		s.Schedule("unknown", start)
		s.Schedule("1", start.Add(time.Hour)) // moved
		s.Schedule("2", time.Time{})          // not at all
		s.Remove("3")
		s.Schedule("0", start.Add(time.Second))
		wait := func(at time.Duration, want ...string) {
			t.Helper()
			if got, err := s.Wait(t.Context()); err != nil || !slices.Equal(got, want) || time.Since(start) != at {
				t.Errorf("after %s: %v, %v; want %v after %s", time.Since(start), got, err, want, at)
			}
		}
		wait(time.Second, "0", "4")
		go func() {
			time.Sleep(time.Minute)
			s.Schedule("2", start) // something earlier wakes who waits
		}()
		wait(time.Minute+time.Second, "2")
		wait(time.Hour, "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
