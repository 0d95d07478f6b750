package outcome

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/relay"
)

// BenchmarkNote compares what a message costs, noted twice (its decision, its
// delivery) and written by Run, with a bare loop that appends a line for it.
func BenchmarkNote(b *testing.B) {
	outcomes := func(i int) (decided, delivered Outcome) {
		decided = about(i, func(o *Outcome) { o.Agent, o.At, o.Decision = "a", relay.MillisOf(time.Now()), allow })
		delivered = decided
		delivered.Delivered, delivered.Door = decided.At, "stream"
		return decided, delivered
	}
	for _, secret := range []string{"", "s3cret"} {
		b.Run("ours/secret="+secret, func(b *testing.B) {
			s, err := OpenFiles(b.TempDir(), "a", nil)
			must(b, err)
			l := New(Options{Store: s, Agent: "a", Secret: secret})
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- l.Run(ctx) }()
			i := 0
			for b.Loop() {
				decided, delivered := outcomes(i)
				l.Note(decided)
				l.Note(delivered)
				i++
				if i%maxBatch == 0 { // no faster than it is written
					eventually(b, "written", func() bool { return l.Stats().Pending < maxBatch })
				}
			}
			cancel()
			must(b, <-ended)
			if got := l.Stats(); got.Dropped > 0 {
				b.Errorf("got %+v", got)
			}
		})
	}
	b.Run("note", func(b *testing.B) { // what the bot's message waits for
		l := New(Options{Agent: "a"})
		decided, _ := outcomes(1)
		for b.Loop() {
			l.Note(decided)
		}
	})
	b.Run("bare", func(b *testing.B) {
		f, err := os.OpenFile(filepath.Join(b.TempDir(), "a.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(b, err)
		defer f.Close()
		i := 0
		for b.Loop() {
			_, delivered := outcomes(i)
			line, err := relay.Marshal(delivered)
			must(b, err)
			_, err = f.Write(append(line, '\n'))
			must(b, err)
			i++
		}
	})
}

// BenchmarkFollow reads 30,000 lines of three agents, as the first Recent does.
func BenchmarkFollow(b *testing.B) {
	for _, secret := range []string{"", "s3cret"} {
		b.Run("secret="+secret, func(b *testing.B) {
			dir := b.TempDir()
			for _, agent := range []string{"a", "b", "c"} {
				s, err := OpenFiles(dir, agent, nil)
				must(b, err)
				batch := make([][]byte, 10_000)
				for i := range batch {
					o := about(i, func(o *Outcome) {
						o.Agent, o.At, o.Decision, o.Delivered, o.Door = relay.AgentName(agent), relay.Millis(i+1), allow, 7, "stream"
					})
					batch[i], err = encode(&o, secret)
					must(b, err)
				}
				must(b, s.Append(b.Context(), batch))
			}
			s, err := OpenFiles(dir, "a", nil)
			must(b, err)
			for b.Loop() {
				l := New(Options{Store: s, Agent: "a", Secret: secret})
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error)
				go func() { ended <- l.Run(ctx) }()
				list, _, err := l.Recent(ctx, "feishu", "oc_1", 1000)
				if err != nil || len(list) != 1000 || l.Stats().Skipped > 0 {
					b.Fatal(fmt.Sprint(len(list), err, l.Stats()))
				}
				cancel()
				must(b, <-ended)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/30_000, "ns/line")
		})
	}
}
