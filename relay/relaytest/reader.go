package relaytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// Reader runs one Subscribe and hands its deliveries to the test one by one.
type Reader struct {
	t      *testing.T
	lines  chan relay.Delivery
	cancel context.CancelFunc
	done   chan error
}

// Subscribe starts reading b, which waits until a line is taken; the reader is stopped with the test.
func Subscribe(t *testing.T, b relay.Backend) *Reader {
	t.Helper()
	return start(t, b, make(chan relay.Delivery), func(relay.Delivery) {})
}

// Follow is Subscribe, but each line is settled when it comes, and none waits.
func Follow(t *testing.T, b relay.Backend) *Reader {
	t.Helper()
	return start(t, b, make(chan relay.Delivery, 1<<16), func(d relay.Delivery) { d.Settle() })
}

func start(t *testing.T, b relay.Backend, lines chan relay.Delivery, came func(relay.Delivery)) *Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{t: t, lines: lines, cancel: cancel, done: make(chan error, 1)}
	go func() {
		r.done <- b.Subscribe(ctx, func(ctx context.Context, d relay.Delivery) {
			came(d)
			select {
			case r.lines <- d:
			case <-ctx.Done(): // not settled: it is handed over again
			}
		})
	}()
	t.Cleanup(r.Stop)
	return r
}

// Stop cancels Subscribe, waits for its end, and fails the test if it returns
// an error.
func (r *Reader) Stop() {
	r.t.Helper()
	r.cancel()
	r.Ended()
}

// Ended waits for the end of Subscribe.
func (r *Reader) Ended() {
	r.t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Subscribe returned %v, want nil", err)
		}
		r.done <- nil
	case <-time.After(patience):
		r.t.Error("Subscribe did not return")
	}
}

// Next waits for one delivery and does not settle it.
func (r *Reader) Next() relay.Delivery {
	r.t.Helper()
	select {
	case d := <-r.lines:
		return d
	case err := <-r.done:
		r.done <- err
		r.t.Fatalf("Subscribe returned (%v) while a line was awaited", err)
	case <-time.After(patience):
		r.t.Fatal("no line came")
	}
	panic("not reached")
}

// Take waits for n deliveries and settles them.
func (r *Reader) Take(n int) []relay.Delivery {
	r.t.Helper()
	got := make([]relay.Delivery, 0, n)
	for range n {
		d := r.Next()
		d.Settle()
		got = append(got, d)
	}
	return got
}

// Want takes exactly these lines in this order, settled.
func (r *Reader) Want(lines ...[]byte) []relay.Delivery {
	r.t.Helper()
	got := r.Take(len(lines))
	if diff := cmp.Diff(asText(lines), texts(got)); diff != "" {
		r.t.Fatalf("lines (-want +got):\n%s", diff)
	}
	return got
}

// Nothing checks for [moment] that no line comes.
func (r *Reader) Nothing() {
	r.t.Helper()
	select {
	case d := <-r.lines:
		r.t.Fatalf("a line came where none was due: %.80q", d.Line)
	case <-time.After(moment):
	}
}

func texts(ds []relay.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = string(d.Line)
	}
	return out
}

func asText(lines [][]byte) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = string(line)
	}
	return out
}

// history checks the History mark of each delivery.
func history(t *testing.T, ds []relay.Delivery, want bool) {
	t.Helper()
	for _, d := range ds {
		if d.History != want {
			t.Errorf("History of %.60q is %v, want %v", d.Line, d.History, want)
		}
	}
}

// Eventually waits until ok is true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("no %s in time", what)
		}
	}
}

func closed(t *testing.T, b relay.Backend) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func isForgotten(err error) bool { return errors.Is(err, relay.ErrForgotten) }
