package filerelay_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// BenchmarkWake measures from before a foreign append to the line in the hands
// of the reader: ours, a bare loop over the same notices, and ours without
// notices, looking every 20 ms.
func BenchmarkWake(b *testing.B) {
	ours := func(opt filerelay.Options) func(b *testing.B, dir string, got chan<- time.Time) {
		return func(b *testing.B, dir string, got chan<- time.Time) {
			q := queue(b, dir, "a", opt)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error)
			go func() {
				done <- q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
					got <- time.Now()
					d.Settle()
				})
			}()
			b.Cleanup(func() { cancel(); must(b, <-done) })
			reading(b, q)
		}
	}
	for _, c := range []struct {
		name  string
		start func(b *testing.B, dir string, got chan<- time.Time)
	}{
		{"ours", ours(filerelay.Options{Recheck: time.Second})},
		{"bare", bare},
		{"polled", ours(filerelay.Options{NoNotify: true, Recheck: 20 * time.Millisecond})},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			f, err := os.OpenFile(live(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			must(b, err)
			defer f.Close()
			got := make(chan time.Time, 1)
			c.start(b, dir, got)
			line := append(relaytest.Line("a", 1), '\n')
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := f.Write(line); err != nil {
					b.Fatal(err)
				}
				took = append(took, (<-got).Sub(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
		})
	}
}

// bare reads what is new at each notice of the folder, and nothing more.
func bare(b *testing.B, dir string, got chan<- time.Time) {
	w, err := fsnotify.NewWatcher()
	must(b, err)
	must(b, w.Add(dir))
	f, err := os.Open(live(dir))
	must(b, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for range w.Events {
			for n, _ := f.Read(buf); n > 0; n, _ = f.Read(buf) {
				for range bytes.Count(buf[:n], []byte("\n")) {
					got <- time.Now()
				}
			}
		}
	}()
	b.Cleanup(func() { must(b, w.Close()); <-done; must(b, f.Close()) })
}
