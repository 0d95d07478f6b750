package filebox_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

// BenchmarkMail measures a message from Put to settled, beside the four file
// operations that no file mailbox can do without (write aside, rename, read,
// rename), both in the same run: "ratio" is how many times longer ours takes.
func BenchmarkMail(b *testing.B) {
	e := mailboxtest.Envelope("a", "b", 1)
	data, err := mailbox.Encode(e)
	must(b, err)
	bare := bareLoop(b, data)

	s, err := filebox.Open(b.TempDir(), nil)
	must(b, err)
	defer s.Close()
	ctx, cancel := context.WithCancel(b.Context())
	shown := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- s.Receive(ctx, "b", func(item mailbox.Item) { shown <- item.Key }, nil)
	}()
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := s.Put(ctx, mailboxtest.Sealed(e)); err != nil {
			b.Fatal(err)
		}
		if err := s.Settle(ctx, "b", <-shown, mailbox.Taken); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		start = time.Now()
		bare()
		theirs += time.Since(start)
	}
	cancel()
	<-done
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "ours-us")
	b.ReportMetric(float64(theirs.Microseconds())/float64(b.N), "bare-us")
}

// BenchmarkBacklog measures the same work without the wake-up between: mail that
// waits is read and settled.
func BenchmarkBacklog(b *testing.B) {
	const waiting = 1000
	e := mailboxtest.Envelope("a", "b", 1)
	data, err := mailbox.Encode(e)
	must(b, err)
	bare := bareLoop(b, data)
	s, err := filebox.Open(b.TempDir(), nil)
	must(b, err)
	defer s.Close()
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		for range waiting {
			if _, err := s.Put(b.Context(), mailboxtest.Sealed(e)); err != nil {
				b.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(b.Context())
		n := 0
		_ = s.Receive(ctx, "b", func(item mailbox.Item) {
			if err := s.Settle(ctx, "b", item.Key, mailbox.Taken); err != nil {
				b.Error(err)
			}
			if n++; n == waiting {
				cancel()
			}
		}, nil)
		ours += time.Since(start)
		start = time.Now()
		for range waiting {
			bare()
		}
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	b.ReportMetric(float64(waiting)*float64(b.N)/ours.Seconds(), "messages/s")
}

// bareLoop returns one round of the bare file operations.
func bareLoop(b *testing.B, data []byte) func() {
	dir := b.TempDir()
	in, out := filepath.Join(dir, "inbox"), filepath.Join(dir, "processed")
	must(b, os.Mkdir(in, 0o700))
	must(b, os.Mkdir(out, 0o700))
	return func() {
		name := time.Now().Format("150405.000000000") + ".msg.json"
		aside, waits, taken := filepath.Join(in, name+".tmp"), filepath.Join(in, name), filepath.Join(out, name)
		if err := os.WriteFile(aside, data, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(aside, waits); err != nil {
			b.Fatal(err)
		}
		if _, err := os.ReadFile(waits); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(waits, taken); err != nil {
			b.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
