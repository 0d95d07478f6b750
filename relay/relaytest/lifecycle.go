package relaytest

import (
	"context"
	"testing"
	"time"

	"feishu-relay/relay"
)

func testCancelFull(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	publish(t, b, Lines("b", 1, relay.MaxUnsettled+1)...)
	for range relay.MaxUnsettled {
		r.next()
	}
	r.stop() // while the reader waits for room
	closed(t, b)

	b = opened(t, open, "b")
	subscribe(t, b).want(Lines("b", 1, 3)...)
}

func testCancelIdle(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	publish(t, b, Line("b", 1))
	r.want(Line("b", 1))
	r.stop()
	r = subscribe(t, b) // a later Subscribe of the same backend continues
	publish(t, b, Line("b", 2))
	r.want(Line("b", 2))
}

func testSettleTwice(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	publish(t, b, Lines("b", 1, 3)...)
	first, second, third := r.next(), r.next(), r.next()
	third.Settle()
	third.Settle()
	third.Settle()
	if got := b.Status().Unsettled; got < 2 {
		t.Errorf("Unsettled is %d with two lines open", got)
	}
	first.Settle()
	second.Settle()
	if got := b.Status().Unsettled; got != 0 {
		t.Errorf("Unsettled is %d with all lines settled, want 0", got)
	}
}

func testCloseTwice(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	publish(t, b, Line("b", 1))
	closed(t, b)
	closed(t, b)
}

func testCloseEnds(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	done := make(chan struct{})
	settled := make(chan struct{}, 1)
	go func() {
		defer close(done)
		_ = b.Subscribe(context.Background(), func(_ context.Context, d relay.Delivery) { // any result will do
			d.Settle()
			settled <- struct{}{}
		})
	}()
	publish(t, b, Line("b", 1))
	select {
	case <-settled:
	case <-time.After(patience):
		t.Fatal("no line came")
	}
	closed(t, b)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Subscribe did not return after Close")
	}
}

func testPublishClosed(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	closed(t, b)
	if _, err := b.Publish(t.Context(), Lines("b", 1, 1), ""); err == nil {
		t.Error("Publish after Close returned no error")
	}
}

func testPublishCancelled(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Publish(ctx, Lines("b", 1, 1), ""); err == nil {
		t.Error("Publish under a done context returned no error")
	}
	publish(t, b, Line("b", 2)) // the backend still works
}

func testPublishNothing(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	publish(t, b)
	publish(t, b, Line("b", 1))
	publish(t, b)
	r.want(Line("b", 1))
}

func testReceipt(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	var receipt relay.Receipt
	for i := 1; i <= 20; i += 2 {
		var err error
		if receipt, err = b.Publish(t.Context(), Lines("b", i, i+1), receipt); err != nil {
			t.Fatalf("publish lines %d and %d after the receipt before: %v", i, i+1, err)
		}
		if _, err = b.Publish(t.Context(), nil, receipt); err != nil {
			t.Fatalf("verify receipt %q: %v", receipt, err)
		}
	}
	publish(t, opened(t, open, "other"), Line("o", 1)) // lines of others do not mean a loss
	if _, err := b.Publish(t.Context(), Lines("b", 21, 21), receipt); err != nil {
		t.Fatalf("publish after another's line: %v", err)
	}
	r.want(append(append(Lines("b", 1, 20), Line("o", 1)), Line("b", 21))...)
}

func testForeignReceipt(t *testing.T, f Features, open Open) {
	var receipt relay.Receipt
	t.Run("full", func(t *testing.T) {
		receipt = publish(t, opened(t, open, "b"), Lines("b", 1, 5)...)
	})
	t.Run("empty", func(t *testing.T) {
		b := opened(t, open, "b")
		r := subscribe(t, b)
		for _, lines := range [][][]byte{nil, Lines("b", 6, 7)} {
			_, err := b.Publish(t.Context(), lines, receipt)
			if got := isForgotten(err); got != f.CanForget {
				t.Fatalf("publish of %d lines with the receipt of another queue: %v; forgotten is %v, want %v",
					len(lines), err, got, f.CanForget)
			}
			if !f.CanForget && err != nil {
				t.Fatalf("publish of %d lines: %v", len(lines), err)
			}
		}
		if f.CanForget {
			r.nothing() // it took nothing
			publish(t, b, Lines("b", 6, 7)...)
		}
		r.want(Lines("b", 6, 7)...)
	})
}

func testStatus(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := subscribe(t, b)
	eventually(t, "Connected and Reading", func() bool {
		s := b.Status()
		return s.Connected && s.Reading && s.Error == ""
	})
	publish(t, b, Lines("b", 1, 5)...)
	d := r.next()
	if got := b.Status().Unsettled; got < 1 {
		t.Errorf("Unsettled is %d while a line is open", got)
	}
	d.Settle()
	r.want(Lines("b", 2, 5)...)
	eventually(t, "Lag and Unsettled of 0", func() bool {
		s := b.Status()
		return s.Lag == 0 && s.Unsettled == 0
	})
}
