package outbox

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"feishu-relay/relay"
)

// event is the i-th line that is no message.
func event(i int, seq relay.Seq) []byte {
	return fmt.Appendf(nil, `{"event":%d,"at":%d,"seq":"%d"}`, i, i, seq)
}

// appendEvents appends the events from first on, n together.
func appendEvents(t *testing.T, b *Box, first, n int) {
	t.Helper()
	err := b.Append(n, func(i int, seq relay.Seq) ([]byte, error) { return event(first+i, seq), nil })
	if err != nil {
		t.Fatal(err)
	}
}

func events(first, n int) (list []string) {
	for i := range n {
		list = append(list, string(event(first+i, relay.Seq(first+i))))
	}
	return list
}

func TestLinesAreAppendedTogether(t *testing.T) {
	dir := t.TempDir()
	b := openBox(t, dir, Options{})
	appendEvents(t, b, 1, 3)
	refused := errors.New("refused")
	err := b.Append(2, func(i int, seq relay.Seq) ([]byte, error) {
		if i == 1 {
			return nil, refused
		}
		return event(4, seq), nil
	})
	if !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of encode", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openBox(t, dir, Options{}) // as after a crash
	appendEvents(t, b, 4, 2)
	var waiting []string
	if err := b.Unpublished(func(line []byte) { waiting = append(waiting, string(line)) }); err != nil {
		t.Fatal(err)
	}
	if want := events(1, 5); !slices.Equal(waiting, want) || b.Stats().Pending != 5 {
		t.Errorf("unpublished: %q, and %d pending, want %q", waiting, b.Stats().Pending, want)
	}
	q := &backend{}
	drain(t, b, q)
	if want := events(1, 5); !slices.Equal(q.seen, want) {
		t.Errorf("published %q, want %q", q.seen, want)
	}
	if err := b.Unpublished(func(line []byte) { t.Errorf("unpublished: %s", line) }); err != nil {
		t.Error(err)
	}
}

// While the backend is away, the oldest lines make room for new ones.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	const size = 64 << 10
	b := openBox(t, dir, Options{Size: size, Drop: true})
	const n = 10_000
	for i := range n {
		appendEvents(t, b, i+1, 1)
	}
	st := b.Stats()
	if st.Bytes > size || st.Bytes < size/2 || st.Dropped+st.Pending != n {
		t.Errorf("%d lines and %d bytes wait, %d were dropped; want at most %d bytes, and %d lines in all",
			st.Pending, st.Bytes, st.Dropped, size, n)
	}
	if files := segmentFiles(t, dir); len(files) > segmentPart+2 {
		t.Errorf("%d segments are left", len(files))
	}
	q := &backend{}
	drain(t, b, q)
	left := int(st.Pending)
	if want := events(n-left+1, left); !slices.Equal(q.seen, want) {
		t.Errorf("published %d lines from %.40s, want %d from %.40s", len(q.seen), q.seen[0], left, want[0])
	}
	if st := b.Stats(); st.Pending != 0 || st.Bytes != 0 {
		t.Errorf("afterwards %d lines and %d bytes wait", st.Pending, st.Bytes)
	}
}
