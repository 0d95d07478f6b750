package outbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// What a failed write left in the file and cannot be removed keeps its seq: no other line gets it.
func TestLinesThatCannotBeRemovedKeepTheirSeq(t *testing.T) {
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	appendEvents(t, b, 1, 1)
	readOnly, err := os.Open(segmentFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	good := b.file
	fail := func() {
		t.Helper()
		b.file = readOnly
		if err := b.Append(2, func(i int, seq relay.Seq) ([]byte, error) { return event(2+i, seq), nil }); err == nil {
			t.Error("no error")
		}
		b.file = good
	}
	fail() // and leaves nothing
	appendEvents(t, b, 2, 1)
	appendTo(t, segmentFiles(t, dir)[0], string(event(3, 3))+"\n"+string(event(4, 4))[:10])
	fail()
	appendEvents(t, b, 5, 1)
	drain(t, b, q)
	if want := slices.Concat(events(1, 3), events(5, 1)); !slices.Equal(q.seen, want) {
		t.Errorf("published %q, want %q", q.seen, want)
	}
	wantEmpty(t, b)
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

// What is dropped while it is being published is no fault.
func TestDropWhilePublishing(t *testing.T) {
	b := openBox(t, t.TempDir(), Options{Size: 64 << 10, Drop: true})
	i := 0
	more := func(n int) {
		for range n {
			i++
			appendEvents(t, b, i, 1)
		}
	}
	more(100)
	q := &backend{}
	q.before = func(lines int) (int, error) {
		if i < 5000 {
			more(1000)
		}
		return lines, nil
	}
	drain(t, b, q)
	if st := b.Stats(); st.Pending != 0 || st.Bytes != 0 {
		t.Errorf("afterwards %d lines and %d bytes wait", st.Pending, st.Bytes)
	}
	if last := q.seen[len(q.seen)-1]; last != string(event(i, relay.Seq(i))) {
		t.Errorf("the last line is %s, want number %d", last, i)
	}
}

func TestGather(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := openBox(t, dir, Options{Gather: 20 * time.Millisecond})
		q := &backend{}
		stop := running(t, b, q, time.Second)
		synctest.Wait()
		for i := range 5 {
			appendEvents(t, b, i+1, 1)
			time.Sleep(3 * time.Millisecond)
		}
		synctest.Wait()
		q.mu.Lock()
		if len(q.seen) != 0 {
			t.Errorf("published %d lines too early", len(q.seen))
		}
		q.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if len(q.calls) != 1 || len(q.seen) != 5 {
			t.Errorf("published %d lines in %d calls, want 5 in one", len(q.seen), len(q.calls))
		}
		stop()
	})
}

// A backend that lost what it had gets the recent lines again, by the time in them.
func TestOtherLinesAgain(t *testing.T) {
	now := time.Now()
	b := openBox(t, t.TempDir(), Options{KeepFor: time.Minute, At: func(line []byte) (relay.Millis, error) {
		if strings.Contains(string(line), `"event":1,`) {
			return relay.MillisOf(now.Add(-time.Hour)), nil
		}
		return relay.MillisOf(now), nil
	}})
	q := &backend{}
	appendEvents(t, b, 1, 3)
	drain(t, b, q)
	q.forget()
	appendEvents(t, b, 4, 1)
	drain(t, b, q)
	if want := events(2, 3); !slices.Equal(q.lines, want) {
		t.Errorf("the backend has %q, want %q", q.lines, want)
	}
}
