package transcript

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// page reads a page of oc_x.
func page(tb testing.TB, s *Store, q Query) Page {
	tb.Helper()
	p, err := s.Page("feishu", "oc_x", q)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// shown returns what a page shows.
func (p Page) shown() []Entry {
	var all []Entry
	for _, i := range p.Shown {
		all = append(all, p.Entries[i])
	}
	return all
}

// expectContext checks that before each shown entry stand those n that stand
// before it in all.
func expectContext(tb testing.TB, p Page, all []Entry, n int) {
	tb.Helper()
	for _, i := range p.Shown {
		at := slices.Index(all, p.Entries[i])
		want := all[max(0, at-n):at]
		if got := p.Entries[max(0, i-len(want)):i]; !slices.Equal(got, want) {
			tb.Fatalf("before %s stand %s, want %s", p.Entries[i].MessageID, ids(got), ids(want))
		}
	}
}

// Whoever pages back sees every message that stood there when they began, each
// once and in order, while the chat goes on and its file is rotated.
func TestPagingBack(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := open(t, t.TempDir(), &Options{RotateSize: 1 + r.Int64N(3000), Keep: 10_000})
		n := r.IntN(150)
		all := messages(0, n)
		add(t, s, true, all...)
		var got []Entry
		q := Query{Context: r.IntN(10)}
		for pages := 0; ; pages++ {
			q.Limit = 1 + r.IntN(20)
			p := page(t, s, q)
			if len(p.Shown) > q.Limit || p.Earlier != "" && len(p.Shown) < q.Limit {
				t.Fatalf("seed %d: %d entries of at most %d, earlier %q", seed, len(p.Shown), q.Limit, p.Earlier)
			}
			expectContext(t, p, all, q.Context)
			got = append(p.shown(), got...)
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
// pages, and tells what stands before each find.
func TestSearching(t *testing.T) {
	s := open(t, t.TempDir(), &Options{RotateSize: 5000, Keep: 10_000})
	all := messages(0, 300)
	for i := range all {
		switch {
		case i%17 == 0:
			all[i].Content = fmt.Sprint("the NEEDLE of ", i)
		case i%23 == 0:
			all[i].Sender = "needle_bot"
		case i%29 == 0:
			all[i].SenderName = "Ms. Needle"
		case i%31 == 0:
			all[i].ParentID = "needle"
		}
	}
	add(t, s, true, all...)
	want := slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		return !strings.Contains(strings.ToLower(e.Content+" "+e.Sender+" "+e.SenderName), "needle")
	})
	var got []Entry
	for q := (Query{Limit: 4, Text: "nEEdle", Context: 20}); ; {
		p := page(t, s, q)
		expectContext(t, p, all, q.Context)
		got = append(p.shown(), got...)
		if q.Before = p.Earlier; q.Before == "" {
			break
		}
	}
	if diff := gocmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	if p := page(t, s, Query{Limit: 4, Text: "straw", Context: 20}); len(p.Entries) > 0 || p.Earlier != "" {
		t.Errorf("found %d, earlier %q", len(p.Entries), p.Earlier)
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
		e.Content = strings.Repeat("x", MaxLine-1000)
		all = append(all, e)
	}
	add(t, s, true, all...)
	for _, text := range []string{"", "nowhere"} {
		q := Query{Limit: 1000, Text: text, Context: 64}
		pages, found := 0, 0
		for ; pages == 0 || q.Before != ""; pages++ {
			before := bytesRead(t)
			p := page(t, s, q)
			if got := bytesRead(t) - before; got > maxPageBytes+maxContextBytes+8*MaxLine {
				t.Errorf("text %q: read %d bytes for a page", text, got)
			}
			found += len(p.Shown)
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

// TestPageReadsTheSameOfAnySize counts the bytes that the kernel handed to this
// process for the twentieth page.
func TestPageReadsTheSameOfAnySize(t *testing.T) {
	var read []int64
	for _, size := range []int64{1 << 20, 64 << 20} {
		dir := t.TempDir()
		writeLarge(t, filepath.Join(dir, file), size)
		s := open(t, dir, nil)
		q := Query{Limit: 50, Context: 64}
		for range 19 {
			q.Before = page(t, s, q).Earlier
		}
		before := bytesRead(t)
		if p := page(t, s, q); len(p.Shown) != 50 {
			t.Fatal(len(p.Shown))
		}
		read = append(read, bytesRead(t)-before)
	}
	if slices.Max(read) > 3*blockSize {
		t.Errorf("bytes read of 1 MiB and 64 MiB: %d, want at most three blocks", read)
	}
}

func TestPageOfRepeats(t *testing.T) {
	dir := t.TempDir()
	var lines string
	for _, i := range []int{0, 1, 2, 1, 3, 3, 3, 4} {
		e := message(i)
		e.Content = fmt.Sprint("line ", strings.Count(lines, "\n"))
		line, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		lines += string(line)
	}
	nameless := `{"role":"user","content":"no id"}` + "\n"
	writeFile(t, filepath.Join(dir, file), nameless+lines+nameless+nameless)
	s := open(t, dir, nil)
	texts := func(p Page) (list []string) {
		for _, e := range p.shown() {
			list = append(list, e.Content)
		}
		return list
	}
	for _, tt := range []struct {
		limit int
		want  string
	}{
		{100, "no id, line 0, line 1, line 2, line 4, line 7, no id, no id"},
		{5, "line 3, line 4, line 7, no id, no id"}, // another copy of 1 is on the next page
		{6, "line 2, line 3, line 4, line 7, no id, no id"},
	} {
		if got := strings.Join(texts(page(t, s, Query{Limit: tt.limit, Context: 2})), ", "); got != tt.want {
			t.Errorf("limit %d:\ngot  %s\nwant %s", tt.limit, got, tt.want)
		}
	}
}

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

// A blank line is alike everywhere: a page that ends at one is not looked for
// where another line ends.
func TestCursorAtABlankLine(t *testing.T) {
	dir := t.TempDir()
	line, _ := encode(message(1))
	before := cursorOf(place{offset: int64(len(line))}, nil).String()
	writeFile(t, filepath.Join(dir, file+".1"), string(line)+"\n")
	writeFile(t, filepath.Join(dir, file), strings.Repeat("x", len(line))+"\n"+string(line)+"\n")
	if p := page(t, open(t, dir, nil), Query{Limit: 5, Before: before}); ids(p.shown()) != ids(messages(1, 2)) || p.Earlier != "" {
		t.Errorf("got %s, earlier %q", ids(p.shown()), p.Earlier)
	}
}

// FuzzPage lets anything stand in the file and in the cursor.
func FuzzPage(f *testing.F) {
	var lines []byte
	for i := range 10 {
		line, _ := encode(message(i))
		lines = append(lines, line...)
	}
	f.Add(lines, "", "T")
	f.Add(lines, cursorOf(place{}, lines[:slices.Index(lines, '\n')]).String(), "")
	f.Add([]byte("\n\n{"), "0-0-0-e3b0c44298fc1c14", "")
	f.Fuzz(func(t *testing.T, data []byte, before, text string) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, file), string(data))
		s := open(t, dir, nil)
		whole := 0
		for e, err := range s.Back("feishu", "oc_x") {
			if err != nil || e.check() != nil {
				t.Fatal(e.Role, err)
			}
			whole++
		}
		found := 0
		q := Query{Limit: 3, Before: before, Text: text, Context: 2}
		for {
			p, err := s.Page("feishu", "oc_x", q)
			if q.Before == before && (errors.Is(err, ErrCursor) || errors.Is(err, ErrCursorGone)) {
				if before == "" {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatalf("the cursor %q: %v", q.Before, err)
			}
			found += len(p.Shown)
			if found > whole {
				t.Fatalf("%d entries on all pages, %d in the file", found, whole)
			}
			for _, e := range p.shown() {
				if f := newFinder(text); !f.in(&e) {
					t.Fatalf("%+v does not contain %q", e, text)
				}
			}
			if q.Before = p.Earlier; q.Before == "" {
				return
			}
		}
	})
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

// BenchmarkPage reads the first and the twentieth page, of 50 entries, of a
// small file and of a large one in turn, and reports how much longer the large
// one takes; and it searches through as much as one request does. BENCH_LARGE is
// as in BenchmarkTail; without it the large file has 64 MiB.
func BenchmarkPage(b *testing.B) {
	dirs := []string{b.TempDir(), cmp.Or(os.Getenv("BENCH_LARGE"), b.TempDir())}
	var stores []*Store
	for i, size := range []int64{1 << 20, 64 << 20} {
		path := filepath.Join(dirs[i], file)
		if info, err := os.Stat(path); err != nil || info.Size() < size {
			writeLarge(b, path, size)
		}
		stores = append(stores, open(b, dirs[i], nil))
	}
	for _, number := range []int{1, 20} {
		queries := []Query{{Limit: 50, Context: 64}, {Limit: 50, Context: 64}}
		for i := range queries {
			for range number - 1 {
				queries[i].Before = page(b, stores[i], queries[i]).Earlier
			}
		}
		b.Run(fmt.Sprint("page ", number), func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, q := range queries {
					start := time.Now()
					if p := page(b, stores[i], q); len(p.Shown) != 50 {
						b.Fatal(len(p.Shown))
					}
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N), "ns/large")
			b.ReportMetric(float64(took[1])/float64(took[0]), "large/small")
		})
	}
	b.Run("search", func(b *testing.B) {
		for b.Loop() {
			page(b, stores[1], Query{Limit: 50, Context: 64, Text: "nowhere"})
		}
		b.SetBytes(maxPageBytes)
	})
}
