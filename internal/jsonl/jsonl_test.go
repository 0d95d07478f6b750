package jsonl

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const (
	limit   = 300 << 10 // of a line
	tooLong = "<too long>"
)

// wanted splits data as every reader should.
func wanted(data []byte) (lines []string) {
	for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
		if whole, ok := bytes.CutSuffix(line, []byte("\n")); ok {
			if len(whole) >= limit {
				whole = []byte(tooLong)
			}
			lines = append(lines, string(whole))
		}
	}
	return lines
}

// followed reads a file that grows to data piece by piece.
func followed(t *testing.T, data []byte, piece int) (lines []string, places []Line) {
	t.Helper()
	p := NewTail(limit)
	for n := 0; ; n += piece {
		n = min(n, len(data))
		before := p.Offset()
		read, err := p.Read(bytes.NewReader(data[:n]), int64(n), func(l Line) bool {
			text := tooLong
			if l.Text != nil {
				text = string(l.Text)
			}
			l.before = bytes.Clone(l.before)
			lines, places = append(lines, text), append(places, l)
			return true
		})
		if err != nil || p.Offset() != before+read {
			t.Fatalf("read %d bytes from %d to %d: %v", read, before, p.Offset(), err)
		}
		if n == len(data) {
			return lines, places
		}
	}
}

// backwards reads data from its end and returns the lines in the order of the file.
func backwards(t *testing.T, data []byte) (lines []string) {
	t.Helper()
	for l, err := range Backward(bytes.NewReader(data), int64(len(data)), limit) {
		if err != nil {
			t.Fatal(err)
		}
		text := tooLong
		if l.Text != nil {
			if text = string(l.Text); text+"\n" != string(data[l.Start:l.End]) {
				t.Fatalf("line %.40q is not at %d", text, l.Start)
			}
		}
		lines = append(lines, text)
	}
	slices.Reverse(lines)
	return lines
}

func FuzzReaders(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), uint16(3), uint32(0))
	f.Add([]byte("\n"), uint16(0), uint32(70_000))
	f.Add([]byte("\n\n\xff\x00\n{\"a\":1}\nrest"), uint16(1), uint32(0))
	f.Add([]byte("ab\ncd\n"), uint16(4), uint32(limit-1))
	f.Add([]byte("ab\ncd\n"), uint16(4), uint32(2*limit))
	f.Add(bytes.Repeat([]byte("0123456789abcdef\n"), 40), uint16(200), uint32(300))
	f.Fuzz(func(t *testing.T, data []byte, split uint16, stretch uint32) {
		if i := int(split) % (len(data) + 1); stretch > 0 { // a long line somewhere
			data = slices.Concat(data[:i], bytes.Repeat([]byte("x"), int(stretch%(3*limit))), data[i:])
		}
		want := wanted(data)
		got, places := followed(t, data, (int(split)+1)*max(1, len(data)/512))
		if !slices.Equal(got, want) {
			t.Fatalf("forward: %d lines, want %d", len(got), len(want))
		}
		if got := backwards(t, data); !slices.Equal(got, want) {
			t.Fatalf("backwards: %d lines, want %d", len(got), len(want))
		}
		for i, l := range places { // each place is found again
			p, err := At(bytes.NewReader(data), limit, l.End)
			if err != nil || p.Sum() != l.Sum() {
				t.Fatalf("the place behind line %d is not the same: %v", i, err)
			}
			if i == 50 {
				break // enough; the rest is alike
			}
		}
	})
}

func TestReplacement(t *testing.T) {
	p := NewTail(limit)
	all := func(Line) bool { return true }
	read := func(content string) (int64, error) {
		return p.Read(strings.NewReader(content), int64(len(content)), all)
	}
	if n, err := read("one\ntwo\n"); n != 8 || err != nil {
		t.Fatalf("read %d bytes (%v), want 8", n, err)
	}
	for _, content := range []string{"", "one\n", "one\ntwO\n", "one\nTWO\nthree\n", "another\ncontent, and longer\n"} {
		if _, err := read(content); !errors.Is(err, ErrReplaced) {
			t.Errorf("read after the content became %q: %v, want %v", content, err, ErrReplaced)
		}
	}
	if _, err := p.Read(strings.NewReader("one\ntwo\n"), 12, all); !errors.Is(err, ErrReplaced) {
		t.Errorf("read of a file that was cut meanwhile: %v, want %v", err, ErrReplaced)
	}
	if n, err := read("one\ntwo\nthree\n"); n != 6 || err != nil {
		t.Errorf("read %d bytes (%v) of the file as it was, want 6", n, err)
	}
}

func TestALongLineThatGrows(t *testing.T) {
	data := []byte("a\n" + strings.Repeat("x", 3*limit) + "\nb\n")
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		p := NewTail(limit)
		var got []string
		for size := int64(0); size < int64(len(data)); {
			size = min(int64(len(data)), size+1+r.Int64N(limit))
			_, err := p.Read(bytes.NewReader(data), size, func(l Line) bool {
				got = append(got, string(l.Text))
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, []string{"a", "", "b"}) || p.Inside() {
			t.Errorf("%d lines, want a, one too long, and b", len(got))
		}
	}
}

// A reader that breaks off goes on behind the line that it was given last.
func TestBreakingOff(t *testing.T) {
	p := NewTail(limit)
	var got []string
	for range 3 {
		_, err := p.Read(strings.NewReader("a\nb\nc\nd"), 7, func(l Line) bool {
			got = append(got, string(l.Text))
			return false
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("read %q", got)
	}
	p.Skip([]byte("d"))
	if q, err := At(strings.NewReader("a\nb\nc\nd"), limit, 7); err != nil || q.Sum() != p.Sum() || q.Offset() != p.Offset() {
		t.Errorf("the place behind what was skipped: %v", err)
	}
}
