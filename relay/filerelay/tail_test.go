package filerelay

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"feishu-relay/relay"
)

// growing is a file that another program writes to.
type growing struct{ *bytes.Reader }

// FuzzTail writes any bytes in pieces of any size and checks the lines against
// those of the whole.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\n"), uint8(1))
	f.Add([]byte("\n\n\xff\x00\n{\"relay_msg_id\":1}\nrest"), uint8(3))
	f.Add(bytes.Repeat([]byte("0123456789abcdef"), 40), uint8(200))
	f.Add([]byte(`{"relay_msg_id":"a{"relay_msg_id":"b"}`+"\n"+`{"relay_msg_id":{"relay_msg_id":1}}`+"\n"), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		piece := (int(step) + 1) * max(1, len(data)/512)
		at, places := tailed(t, data, piece)
		var want []string
		for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
			if whole, ok := bytes.CutSuffix(line, []byte("\n")); ok {
				if len(whole) >= relay.MaxLine {
					whole = []byte(tooLong)
				}
				want = append(want, string(whole))
			}
		}
		if !slices.Equal(at, want) {
			t.Fatalf("%d lines, want %d, or with another content", len(at), len(want))
		}
		r := &reader{q: &Queue{log: slog.New(slog.DiscardHandler)}}
		for _, text := range want {
			if got := r.usable(line{text: []byte(text)}); json.Valid([]byte(text)) && string(got) != text {
				t.Fatalf("valid line %.80q became %.80q", text, got)
			} else if got == nil && strings.Trim(text, " \t\r\v\f") != "" {
				t.Fatalf("line %.80q was dropped", text)
			} else if !strings.HasSuffix(text, string(got)) {
				t.Fatalf("line %.80q became %.80q", text, got)
			}
		}
		for i, p := range places { // each place can be returned to, and no other is taken for it
			back, err := newTail(bytes.NewReader(data), p.end, p.sum)
			if err != nil || back.offset != p.end {
				t.Fatalf("place behind line %d is not found again: %v", i, err)
			}
			if _, err := newTail(bytes.NewReader(data), p.end, p.sum+1); !errors.Is(err, errReplaced) {
				t.Fatalf("another sum behind line %d: %v, want %v", i, err, errReplaced)
			}
			if i == 50 {
				break // enough; the rest is alike
			}
		}
	})
}

const tooLong = "<too long>"

// tailed follows a file that grows to data piece by piece.
func tailed(t *testing.T, data []byte, piece int) (lines []string, places []line) {
	file := &growing{}
	tl := &tail{file: file}
	for n := 0; ; n += piece {
		n = min(n, len(data))
		file.Reader = bytes.NewReader(data[:n])
		for {
			consumed, err := tl.read(func(l line) error {
				text := tooLong
				if l.text != nil {
					text = string(l.text)
				}
				lines, places = append(lines, text), append(places, l)
				return nil
			})
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if consumed == 0 {
				break
			}
		}
		if n == len(data) {
			return lines, places
		}
	}
}

func TestTailSeesReplacement(t *testing.T) {
	file := &growing{bytes.NewReader([]byte("one\ntwo\n"))}
	tl := &tail{file: file}
	ignore := func(line) error { return nil }
	if n, err := tl.read(ignore); n != 8 || err != nil {
		t.Fatalf("read %d bytes (%v), want 8", n, err)
	}
	for _, content := range []string{"", "one\n", "one\ntwO\n", "another\ncontent, and longer\n"} {
		file.Reader = bytes.NewReader([]byte(content))
		if _, err := tl.read(ignore); !errors.Is(err, errReplaced) {
			t.Errorf("read after the content became %q: %v, want %v", content, err, errReplaced)
		}
	}
	file.Reader = bytes.NewReader([]byte("one\ntwo\nthree\n"))
	if n, err := tl.read(ignore); n != 6 || err != nil {
		t.Errorf("read %d bytes (%v) of the file as it was, want 6", n, err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"file":{"dev":1,"ino":2},"offset":300,"sum":"0123456789abcdef","after":7,"history":{"file":{"dev":1,"ino":2},"offset":9,"after":1}}`))
	f.Add([]byte(`{"offset":-1}`))
	f.Add([]byte(`{"sum":"zz"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCheckpoint(data)
		if err != nil {
			if !errors.Is(err, errBroken) {
				t.Fatalf("error %v does not say that the checkpoint is broken", err)
			}
			return
		}
		if c.Offset < 0 || c.After > maxNumber {
			t.Fatalf("accepted %+v", c)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseCheckpoint(again)
		if err != nil {
			t.Fatalf("own checkpoint is refused: %v", err)
		}
		if back.File != c.File || back.Offset != c.Offset || back.Sum != c.Sum || back.After != c.After {
			t.Fatalf("came back as %+v, was %+v", back, c)
		}
	})
}

func TestSegmentNames(t *testing.T) {
	for name, want := range map[string]uint64{
		segmentName("outbound", 1):              1,
		segmentName("outbound", maxNumber):      maxNumber,
		"outbound.01795211093522000000.jsonl":   1795211093522000000,
		"outbound.00000000000000000000.jsonl":   0,
		"outbound.99999999999999999999.jsonl":   0,
		"outbound.9223372036854775808.jsonl":    0,
		"outbound.+1795211093522000000.jsonl":   0,
		"outbound.jsonl":                        0,
		"outbound.jsonl.1":                      0,
		"inbound.01795211093522000000.jsonl":    0,
		"outbound.01795211093522000000.jsonl~":  0,
		"xoutbound.01795211093522000000.jsonl":  0,
		"outbound.x.01795211093522000000.jsonl": 0,
	} {
		if got, ok := segmentNumber("outbound", name); got*b2u(ok) != want || ok != (want > 0) {
			t.Errorf("segmentNumber(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
}

func b2u(ok bool) uint64 {
	if ok {
		return 1
	}
	return 0
}
