//go:build unix

package transcript

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// page reads a page of oc_x.
func page(tb testing.TB, s *Store, q Query) Page {
	tb.Helper()
	p, err := s.Page("feishu", "oc_x", q)
	must(tb, err)
	return p
}

// A reader that pages back gets every message that was there when it began,
// each once and in order, while the chat goes on and its file is rotated.
func TestPagingBack(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := open(t, t.TempDir(), &Options{rotateSize: 1 + r.Int64N(3000), keep: 10_000})
		n := r.IntN(150)
		all := messages(0, n)
		add(t, s, true, all...)
		var got []Entry
		var q Query
		for pages := 0; ; pages++ {
			q.Limit = 1 + r.IntN(20)
			p := page(t, s, q)
			if len(p.Entries) > q.Limit || p.Earlier != "" && len(p.Entries) < q.Limit {
				t.Fatalf("seed %d: %d entries of at most %d, earlier %q", seed, len(p.Entries), q.Limit, p.Earlier)
			}
			got = append(p.Entries, got...)
			if q.Before = p.Earlier; q.Before == "" {
				break
			}
			if r.IntN(2) == 0 {
				add(t, s, true, messages(1000+10*pages, 1000+10*pages+r.IntN(10))...)
			}
		}
		if diff := gocmp.Diff(got, all); diff != "" && n > 0 {
			t.Fatalf("seed %d (-got +want):\n%s", seed, diff)
		}
	}
}

// A search finds the same as looking at every entry, also where it takes many
// pages.
func TestSearching(t *testing.T) {
	s := open(t, t.TempDir(), &Options{rotateSize: 5000, keep: 10_000})
	all := messages(0, 300)
	var want []Entry
	for i := range all {
		switch {
		case i%17 == 0:
			all[i].Content = fmt.Sprint("the NÄDEL of ", i)
		case i%23 == 0:
			all[i].Sender = "nädel_bot"
		case i%29 == 0:
			all[i].SenderName = "Ms. Nädel"
		default:
			all[i].ParentID = "nädel"
			continue
		}
		want = append(want, all[i])
	}
	add(t, s, true, all...)
	var got []Entry
	for q := (Query{Limit: 4, Text: "nÄdEl"}); ; {
		p := page(t, s, q)
		got = append(p.Entries, got...)
		if q.Before = p.Earlier; q.Before == "" {
			break
		}
	}
	if diff := gocmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}

// However much there is, a page reads so much and no more, and the next one goes
// on from there.
func TestPageIsBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	var all []Entry
	for i := range 12 {
		e := message(i)
		e.Content = strings.Repeat("x", relay.MaxLine-1000)
		all = append(all, e)
	}
	add(t, s, true, all...)
	for _, text := range []string{"", "nowhere"} {
		q := Query{Limit: 1000, Text: text}
		pages, found := 0, 0
		for ; pages == 0 || q.Before != ""; pages++ {
			before := bytesRead(t)
			p := page(t, s, q)
			if got := bytesRead(t) - before; got > maxPageBytes+maxBeforePage+8*relay.MaxLine {
				t.Errorf("text %q: read %d bytes for a page", text, got)
			}
			found += len(p.Entries)
			q.Before = p.Earlier
		}
		if want := map[string]int{"": 12}[text]; found != want || pages != 2 {
			t.Errorf("text %q: %d entries on %d pages", text, found, pages)
		}
	}
	// Nor does what is no entry.
	writeFile(t, filepath.Join(dir, file), strings.Repeat(strings.Repeat("no entry", 1000)+"\n", 2*maxPageBytes/8000))
	if p := page(t, s, Query{Limit: 1}); len(p.Entries) > 0 || p.Earlier == "" {
		t.Errorf("got %d entries, earlier %q", len(p.Entries), p.Earlier)
	}
}

func TestCursors(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	all := messages(0, 50)
	add(t, s, true, all...)
	path := filepath.Join(dir, file)
	content, err := os.ReadFile(path)
	must(t, err)
	before := page(t, s, Query{Limit: 10}).Earlier
	// try asks for the page before, and puts everything back.
	try := func(name, chat, before string, want error) {
		t.Helper()
		p, err := s.Page("feishu", chat, Query{Limit: 10, Before: before})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if want == nil && !gocmp.Equal(p.Entries, all[30:40]) {
			t.Errorf("%s: got %s", name, ids(p.Entries))
		}
		must(t, os.RemoveAll(path+".1"))
		writeFile(t, path, string(content))
	}
	try("as it was", "oc_x", before, nil)
	try("another chat", "oc_y", before, ErrCursorGone)
	add(t, s, true, message(99))
	try("appended to", "oc_x", before, nil)
	must(t, os.Rename(path, path+".1"))
	try("rotated", "oc_x", before, nil)
	must(t, os.Rename(path, path+".1"))
	writeFile(t, path, string(content[:len(content)/2])+strings.Repeat("x\n", 1000))
	try("rotated, another file in its place", "oc_x", before, nil)
	must(t, os.Remove(path))
	try("deleted", "oc_x", before, ErrCursorGone)
	writeFile(t, path, string(content[:len(content)/2]))
	try("cut", "oc_x", before, ErrCursorGone)
	writeFile(t, path, strings.Replace(string(content), "text 1\"", "text one\"", 1))
	try("edited before it", "oc_x", before, ErrCursorGone)
	for _, bad := range []string{"x", "0", "0-1-2", "-1-1", "0-00", before + "x", " " + before, "0-9223372036854775807", "99999999999999999999-1"} {
		try("malformed "+bad, "oc_x", bad, ErrCursor)
	}
	if p := page(t, s, Query{Before: "no matter"}); len(p.Entries) > 0 {
		t.Error("a limit of 0 shows something")
	}
	if p, err := s.Page("feishu", "oc_none", Query{Limit: 5}); err != nil || len(p.Entries) > 0 || p.Earlier != "" {
		t.Errorf("a chat without a transcript: %+v, %v", p, err)
	}
}

// FuzzPage tries any content of the file and of the cursor.
func FuzzPage(f *testing.F) {
	ten := []byte(lines(f, messages(0, 10)...))
	f.Add(ten, "", "T")
	f.Add(ten, place{1, int64(1 + slices.Index(ten, '\n'))}.cursor(), "")
	f.Add([]byte("\n\n{"), "1-0", "")
	f.Fuzz(func(t *testing.T, data []byte, before, text string) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, file), string(data))
		s := open(t, dir, nil)
		found := 0
		for q := (Query{Limit: 3, Before: before, Text: text}); ; {
			p, err := s.Page("feishu", "oc_x", q)
			if q.Before == before && before != "" && (errors.Is(err, ErrCursor) || errors.Is(err, ErrCursorGone)) {
				return
			}
			if err != nil {
				t.Fatalf("the cursor %q: %v", q.Before, err)
			}
			if found += len(p.Entries); found > len(data) {
				t.Fatalf("%d entries on all pages", found)
			}
			for _, e := range p.Entries {
				if !e.Contains(text) {
					t.Fatalf("%+v does not contain %q", e, text)
				}
			}
			if q.Before = p.Earlier; q.Before == "" {
				return
			}
		}
	})
}
