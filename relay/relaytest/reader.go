package relaytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// reader runs one Subscribe and hands its deliveries to the test one by one.
type reader struct {
	t      *testing.T
	lines  chan relay.Delivery
	cancel context.CancelFunc
	done   chan error
}

// subscribe starts reading b; the reader is stopped with the test.
func subscribe(t *testing.T, b relay.Backend) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{t: t, lines: make(chan relay.Delivery), cancel: cancel, done: make(chan error, 1)}
	go func() {
		r.done <- b.Subscribe(ctx, func(ctx context.Context, d relay.Delivery) {
			select {
			case r.lines <- d:
			case <-ctx.Done(): // not settled: it is handed over again
			}
		})
	}()
	t.Cleanup(func() {
		if r.cancel != nil {
			r.stop()
		}
	})
	return r
}

// stop cancels Subscribe, waits for its end, and fails the test if it returns
// an error.
func (r *reader) stop() {
	r.t.Helper()
	r.cancel()
	r.cancel = nil
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Subscribe returned %v after its context was done, want nil", err)
		}
	case <-time.After(patience):
		r.t.Error("Subscribe did not return after its context was done")
	}
}

// next waits for one delivery and does not settle it.
func (r *reader) next() relay.Delivery {
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

// take waits for n deliveries and settles them.
func (r *reader) take(n int) []relay.Delivery {
	r.t.Helper()
	got := make([]relay.Delivery, 0, n)
	for range n {
		d := r.next()
		d.Settle()
		got = append(got, d)
	}
	return got
}

// want takes exactly these lines in this order, settled.
func (r *reader) want(lines ...[]byte) []relay.Delivery {
	r.t.Helper()
	got := r.take(len(lines))
	if diff := cmp.Diff(asText(lines), texts(got)); diff != "" {
		r.t.Fatalf("lines (-want +got):\n%s", diff)
	}
	return got
}

// nothing checks for [moment] that no line comes.
func (r *reader) nothing() {
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

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
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
