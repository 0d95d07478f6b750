//go:build unix

package transcript

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCursors(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	all := messages(0, 50)
	add(t, s, true, all...)
	path := filepath.Join(dir, file)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := page(t, s, Query{Limit: 10}).Earlier
	// try asks for the page before, and puts everything back.
	try := func(name, chat, before string, want error) {
		t.Helper()
		p, err := s.Page("feishu", chat, Query{Limit: 10, Before: before})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if want == nil && !slices.Equal(p.shown(), all[30:40]) {
			t.Errorf("%s: got %s", name, ids(p.shown()))
		}
		for _, f := range []string{file, file + ".1", file + ".7"} {
			if err := os.RemoveAll(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, path, string(content))
	}
	try("as it was", "oc_x", before, nil)
	try("another chat", "oc_y", before, ErrCursorGone)
	add(t, s, true, message(99))
	try("appended to", "oc_x", before, nil)
	rename(t, path, path+".1")
	try("rotated", "oc_x", before, nil)
	rename(t, path, path+".1")
	writeFile(t, path, string(content[:len(content)/2])+strings.Repeat("x\n", 1000))
	try("rotated, another file in its place", "oc_x", before, nil)
	rename(t, path, path+".7")
	inSeven := page(t, s, Query{Limit: 10}).Earlier
	rename(t, path+".7", path+".1")
	try("renamed by hand", "oc_x", inSeven, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	try("deleted", "oc_x", before, ErrCursorGone)
	writeFile(t, path, string(content[:len(content)/2]))
	try("cut", "oc_x", before, ErrCursorGone)
	writeFile(t, path, strings.Replace(string(content), "text 1\"", "text one\"", 1))
	try("edited before it", "oc_x", before, ErrCursorGone)
	writeFile(t, path, strings.Replace(string(content), "text 40\"", "text 04\"", 1))
	try("edited there", "oc_x", before, ErrCursorGone)
	for _, bad := range []string{"x", "0", "0-1-2", "-1-1-1-0000000000000000", "0-00-1-" + strings.Repeat("0", 16), before + "0", " " + before,
		"0-9223372036854775807-1-0000000000000000", "0-1-99999999-0000000000000000", strings.ToUpper(before) + "-", "0-1-1-+000000000000001"} {
		try("malformed "+bad, "oc_x", bad, ErrCursor)
	}
	if p := page(t, s, Query{Before: "no matter"}); len(p.Entries) > 0 {
		t.Error("a limit of 0 shows something")
	}
	if p, err := s.Page("feishu", "oc_none", Query{Limit: 5}); err != nil || len(p.Entries) > 0 || p.Earlier != "" {
		t.Errorf("a chat without a transcript: %+v, %v", p, err)
	}
	s.Close()
	if _, err := s.Page("feishu", "oc_x", Query{Limit: 5}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func rename(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.Rename(from, to); err != nil {
		tb.Fatal(err)
	}
}

// lines returns entries as they are in a file.
func lines(tb testing.TB, entries ...Entry) (all string) {
	tb.Helper()
	for _, e := range entries {
		line, err := encode(e)
		if err != nil {
			tb.Fatal(err)
		}
		all += string(line)
	}
	return all
}

func FuzzParseCursor(f *testing.F) {
	f.Add("0-1-2-0123456789abcdef")
	f.Add("9223372036854775807-9223372036854775807-9223372036854775807-ffffffffffffffff")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err == nil && (c.String() != text || c.segment < 0 || c.offset < 0 || c.length < 0 || c.offset+int64(c.length)+1 < 0) {
			t.Errorf("%q is taken for %+v", text, c)
		}
	})
}
