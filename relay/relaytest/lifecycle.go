package relaytest

import (
	"context"
	"testing"
	"time"

	"feishu-relay/relay"
)

func testCloseEnds(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	publish(t, b, Line("b", 1))
	r.Want(Line("b", 1))
	closed(t, b)
	r.Ended()
}

func testClosed(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(ctx context.Context, when string) {
		t.Helper()
		if _, err := b.Publish(ctx, Lines("b", 1, 1), ""); err == nil {
			t.Errorf("Publish %s returned no error", when)
		}
		if holder, err := b.Claim(ctx, "key", "b", time.Hour); err == nil || holder != "" {
			t.Errorf("Claim %s: got %v, %v, want an error", when, holder, err)
		}
	}
	fails(ctx, "under a done context")
	publish(t, b, Line("b", 2)) // the backend still works
	closed(t, b)
	closed(t, b)
	fails(t.Context(), "after Close")
}

func testReceipt(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	publish(t, b) // nothing
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
	r.Want(append(append(Lines("b", 1, 20), Line("o", 1)), Line("b", 21))...)
}

func testForeignReceipt(t *testing.T, f Features, open Open) {
	var receipt relay.Receipt
	t.Run("full", func(t *testing.T) {
		receipt = publish(t, opened(t, open, "b"), Lines("b", 1, 5)...)
	})
	t.Run("empty", func(t *testing.T) {
		b := opened(t, open, "b")
		r := Subscribe(t, b)
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
			r.Nothing() // it took nothing
			publish(t, b, Lines("b", 6, 7)...)
		}
		r.Want(Lines("b", 6, 7)...)
	})
}

func testStatus(t *testing.T, _ Features, open Open) {
	b := opened(t, open, "b")
	r := Subscribe(t, b)
	Eventually(t, "Connected and Reading", func() bool {
		s := b.Status()
		return s.Connected && s.Reading && s.Error == ""
	})
	publish(t, b, Lines("b", 1, 5)...)
	d := r.Next()
	if got := b.Status().Unsettled; got < 1 {
		t.Errorf("Unsettled is %d while a line is open", got)
	}
	d.Settle()
	r.Want(Lines("b", 2, 5)...)
	Eventually(t, "Lag and Unsettled of 0", func() bool {
		s := b.Status()
		return s.Lag == 0 && s.Unsettled == 0
	})
}
