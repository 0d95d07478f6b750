package mailboxtest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

// receiver runs one Receive and hands its items to the test one by one.
type receiver struct {
	t      *testing.T
	items  chan mailbox.Item
	looked chan struct{} // closed when all that lay there first was shown
	cancel context.CancelFunc
	done   chan error
}

// receive starts receiving; the receiver is stopped with the test.
func receive(t *testing.T, s mailbox.Store, agent mailbox.AgentID) *receiver {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &receiver{t: t, items: make(chan mailbox.Item), looked: make(chan struct{}), cancel: cancel,
		done: make(chan error, 1)}
	go func() {
		r.done <- s.Receive(ctx, agent, func(item mailbox.Item) {
			select {
			case r.items <- item:
			case <-ctx.Done():
			}
		}, func() { close(r.looked) })
	}()
	t.Cleanup(func() {
		if r.cancel != nil {
			r.stop()
		}
	})
	return r
}

// stop cancels and waits for the end, which is the context's error.
func (r *receiver) stop() {
	r.t.Helper()
	r.cancel()
	r.cancel = nil
	select {
	case err := <-r.done:
		if !errors.Is(err, context.Canceled) {
			r.t.Errorf("Receive returned %v after its context was done, want that context's error", err)
		}
	case <-time.After(patience):
		r.t.Error("Receive did not return after its context was done")
	}
}

// next waits for one item.
func (r *receiver) next() mailbox.Item {
	r.t.Helper()
	select {
	case item := <-r.items:
		return item
	case err := <-r.done:
		r.done <- err
		r.t.Fatalf("Receive returned (%v) while mail was awaited", err)
	case <-time.After(patience):
		r.t.Fatal("no mail came")
	}
	panic("not reached")
}

// want takes exactly these envelopes in this order.
func (r *receiver) want(list ...mailbox.Envelope) []mailbox.Item {
	r.t.Helper()
	items := make([]mailbox.Item, 0, len(list))
	for _, e := range list {
		item := r.next()
		if got := id(r.t, item); got != e.ID {
			r.t.Fatalf("got %s, want %s", got, e.ID)
		}
		items = append(items, item)
	}
	return items
}

// nothing watches for a moment that no mail comes.
func (r *receiver) nothing() {
	r.t.Helper()
	select {
	case item := <-r.items:
		r.t.Fatalf("mail came where none was due: %s %.80q", item.Key, item.Raw)
	case <-time.After(moment):
	}
}

func id(t *testing.T, item mailbox.Item) string {
	t.Helper()
	e, err := mailbox.Decode(item.Raw)
	if err != nil {
		t.Fatalf("decode %s: %v", item.Key, err)
	}
	return e.ID
}

// same checks that raw is e as it is written.
func same(t *testing.T, raw []byte, e mailbox.Envelope) {
	t.Helper()
	want, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(bytes.TrimSpace(raw))); diff != "" {
		t.Errorf("mail (-want +got):\n%s", diff)
	}
}

// wantGone checks that mail can no longer be read.
func wantGone(t *testing.T, s mailbox.Store, agent mailbox.AgentID, key string) {
	t.Helper()
	if item, err := s.Read(t.Context(), agent, key); !errors.Is(err, mailbox.ErrGone) {
		t.Errorf("read %s: got %.60q, %v, want ErrGone", key, item.Raw, err)
	}
}

func settle(t *testing.T, s mailbox.Store, agent mailbox.AgentID, how mailbox.Outcome, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := s.Settle(t.Context(), agent, key, how); err != nil {
			t.Fatalf("settle %s: %v", key, err)
		}
	}
}

func where(t *testing.T, s mailbox.Store, to mailbox.AgentID, key string) mailbox.Place {
	t.Helper()
	place, err := s.Where(t.Context(), to, key)
	if err != nil {
		t.Fatalf("where is %s: %v", key, err)
	}
	return place
}
