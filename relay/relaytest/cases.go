package relaytest

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

func testTwoPublishers(t *testing.T, _ Features, open Open) {
	const each = 300
	a, b, c := opened(t, open, "a"), opened(t, open, "b"), opened(t, open, "c")
	readers := []*Reader{Subscribe(t, a), Subscribe(t, c)} // a publisher hears itself
	var publishing sync.WaitGroup
	for sender, from := range map[string]relay.Backend{"a": a, "b": b} {
		publishing.Go(func() {
			size := 0
			for rest := Lines(sender, 1, each); len(rest) > 0; rest = rest[size:] {
				size = min(size%5+1, len(rest))
				if _, err := from.Publish(t.Context(), rest[:size], ""); err != nil {
					t.Errorf("publish of %s: %v", sender, err)
					return
				}
			}
		})
	}
	for _, r := range readers {
		got := map[bool][][]byte{}
		for _, d := range r.Take(2 * each) {
			fromA := bytes.Contains(d.Line, []byte(`"om_a_`))
			got[fromA] = append(got[fromA], d.Line)
		}
		for sender, lines := range map[string][][]byte{"a": got[true], "b": got[false]} {
			if diff := cmp.Diff(asText(Lines(sender, 1, each)), asText(lines)); diff != "" {
				t.Errorf("lines of %s (-want +got):\n%s", sender, diff)
			}
		}
	}
	publishing.Wait()
}

func testRestart(t *testing.T, _ Features, open Open) {
	writer := opened(t, open, "writer")
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	publish(t, writer, Lines("w", 1, 10)...)
	r.Want(Lines("w", 1, 10)...)
	r.Stop()
	closed(t, b)

	for from := 11; from <= 31; from += 10 {
		publish(t, writer, Lines("w", from, from+9)...)
		b = opened(t, open, "b")
		r = Subscribe(t, b)
		r.Want(Lines("w", from, from+9)...)
		r.Stop()
		closed(t, b)
	}

	b = opened(t, open, "b")
	r = Subscribe(t, b)
	r.Nothing()
	r.Stop()
	r = Subscribe(t, b) // a later Subscribe of the same backend continues
	publish(t, writer, Line("w", 41))
	r.Want(Line("w", 41))
}

func testOutOfOrder(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	publish(t, b, Lines("b", 1, 10)...)
	var got []relay.Delivery
	for range 10 {
		got = append(got, r.Next())
	}
	for _, i := range []int{9, 0, 7, 4, 2, 1, 8, 6, 5} { // 3, the fourth line, stays open
		got[i].Settle()
	}
	r.Stop()
	closed(t, b)

	b = opened(t, open, "b")
	r = Subscribe(t, b)
	r.Want(Line("b", 4)) // the first line; those settled after it may be repeated
	publish(t, b, Line("b", 11))
	next := 5
	for next <= 11 {
		d := r.Next()
		d.Settle()
		i := slices.IndexFunc(Lines("b", next, 11), func(l []byte) bool { return bytes.Equal(l, d.Line) })
		if i < 0 {
			t.Fatalf("line %.60q came out of order, after line %d", d.Line, next-1)
		}
		next += i + 1
	}
}

func testHistoryRestart(t *testing.T, _ Features, open Open) {
	writer := opened(t, open, "writer")
	publish(t, writer, Lines("w", 1, 10)...)
	late := opened(t, open, "late")
	r := Subscribe(t, late)
	history(t, r.Want(Lines("w", 1, 3)...), true)
	r.Stop()
	closed(t, late)

	publish(t, writer, Lines("w", 11, 15)...)
	r = Subscribe(t, opened(t, open, "late"))
	history(t, r.Want(Lines("w", 4, 10)...), true)
	history(t, r.Want(Lines("w", 11, 15)...), false)
}

func testAway(t *testing.T, _ Features, open Open) {
	// The first start finds an empty queue: that, too, is remembered.
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	Eventually(t, "Reading", func() bool { return b.Status().Reading })
	r.Stop()
	closed(t, b)

	publish(t, opened(t, open, "writer"), Lines("w", 1, 5)...)
	r = Subscribe(t, opened(t, open, "b"))
	history(t, r.Want(Lines("w", 1, 5)...), false)
}

func testWindow(t *testing.T, _ Features, open Open) {
	const more = 300
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	lines := Lines("b", 1, relay.MaxUnsettled+more)
	for batch := range slices.Chunk(lines, 100) {
		publish(t, b, batch...)
	}
	var unsettled []relay.Delivery
	for range relay.MaxUnsettled {
		unsettled = append(unsettled, r.Next())
	}
	r.Nothing()
	if got := b.Status().Unsettled; got != relay.MaxUnsettled {
		t.Errorf("Unsettled is %d, want %d", got, relay.MaxUnsettled)
	}
	for i := range more {
		unsettled[i].Settle() // each makes room for one
		unsettled = append(unsettled, r.Next())
	}
	if diff := cmp.Diff(asText(lines), texts(unsettled)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	r.Nothing()
	for range 3 {
		unsettled[more].Settle() // counts once
	}
	if got := b.Status().Unsettled; got < relay.MaxUnsettled-1 {
		t.Errorf("Unsettled is %d after one line was settled three times, want %d", got, relay.MaxUnsettled-1)
	}
	for range 2 {
		publish(t, b, Line("b", len(lines)+1))
	}
	r.Next()
	r.Stop() // while the reader waits for room
	closed(t, b)

	b = opened(t, open, "b")
	Subscribe(t, b).Want(lines[more+1 : more+4]...)
}

func testLongest(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	m := relay.Message{RelayMsgID: "om_long", Channel: "feishu", ChatID: "oc_x", SenderAgentName: "b", Seq: 1}
	short, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Replace(short, []byte(`"content":"`),
		[]byte(`"content":"`+strings.Repeat("x", relay.MaxLine-1-len(short))), 1)
	if len(long) != relay.MaxLine-1 {
		t.Fatalf("the line has %d bytes, want %d", len(long), relay.MaxLine-1)
	}
	publish(t, b, Line("b", 1), long, Line("b", 2))
	r.Want(Line("b", 1))
	if d := r.Next(); !bytes.Equal(d.Line, long) {
		t.Errorf("the longest line came with %d bytes (%.60q…), want %d as published", len(d.Line), d.Line, len(long))
	} else {
		d.Settle()
	}
	r.Want(Line("b", 2))
}

func testHostile(t *testing.T, f Features, open Open) {
	lines := [][]byte{
		[]byte("{"), []byte("null"), []byte("[]"), []byte(`"`), []byte("0"), []byte("not json"),
		[]byte("\x00"), []byte("\xff\xfe\xfd"), []byte("a\x00b\x80c"), []byte("\xef\xbb\xbf{}"),
		[]byte("\u2028\u2029\u0085"), []byte("a\rb\tc\vd"), []byte("*3\r$3\rSET"), []byte("%s%d%n ${x} $(y)"),
		[]byte(`{"relay_msg_id":`), []byte(`{"content":"\ud800"}`), []byte(`{"chat_id":"../../x"}`),
		bytes.Repeat([]byte("["), 70_000), bytes.Repeat([]byte{0xc0}, 70_000),
	}
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	publish(t, b, lines...)
	publish(t, b, Line("b", 1))
	seen := map[string]bool{}
	for _, want := range append(slices.Clone(lines), Line("b", 1)) {
		d := r.Next()
		d.Settle()
		for f.UnnumberedTwice && seen[string(d.Line)] {
			d = r.Next()
			d.Settle()
		}
		if !bytes.Equal(d.Line, want) {
			t.Fatalf("got line %.60q, want %.60q", d.Line, want)
		}
		seen[string(want)] = true
	}
}

func testOwnership(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	lines := Lines("b", 1, 50)
	mine := make([][]byte, len(lines))
	for i, line := range lines {
		mine[i] = bytes.Clone(line)
	}
	publish(t, b, mine...)
	for _, line := range mine {
		clear(line) // the caller's again
	}
	for _, want := range lines {
		d := r.Next()
		if !bytes.Equal(d.Line, want) {
			t.Fatalf("got line %.60q, want %.60q", d.Line, want)
		}
		_ = append(d.Line, "scribble over the bytes after it"...)
		clear(d.Line)
		d.Settle()
	}
}
