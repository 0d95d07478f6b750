package outcome

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
)

func openFiles(b *testing.B, dir, agent string) *filerelay.Queue {
	b.Helper()
	q, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outcomes", Agent: agent, Capped: true,
		RotateSize: 64 << 20})
	must(b, err)
	b.Cleanup(func() { must(b, q.Close()) })
	return q
}

// BenchmarkSettle compares what a message costs, noted twice (its decision, its delivery)
// and settled, with a bare loop that appends a line for it.
func BenchmarkSettle(b *testing.B) {
	outcomes := func(i int) (decided, delivered Outcome) {
		decided = about(i, func(o *Outcome) { o.Agent, o.At, o.Decision = "a", relay.MillisOf(time.Now()), allow })
		delivered = decided
		delivered.Delivered, delivered.Door = decided.At, "stream"
		return decided, delivered
	}
	for _, secret := range []string{"", "s3cret"} {
		b.Run("ours/secret="+secret, func(b *testing.B) {
			l := New(Options{Box: openBox(b, b.TempDir(), secret, nil), Queue: openFiles(b, b.TempDir(), "a"),
				Agent: "a", Secret: secret})
			i := 0
			for b.Loop() {
				decided, delivered := outcomes(i)
				l.Note(decided)
				l.Note(delivered)
				l.Settle("feishu", "oc_1", decided.RelayMsgID)
				i++
			}
			if got := l.Stats(); got.Written != int64(i) {
				b.Errorf("got %+v", got)
			}
		})
	}
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
				batch := make([][]byte, 10_000)
				for i := range batch {
					o := about(i, func(o *Outcome) {
						o.Agent, o.At, o.Decision, o.Delivered, o.Door = relay.AgentName(agent), relay.Millis(i+1), allow, 7, "stream"
					})
					var err error
					if batch[i], err = encode(&o, relay.Seq(i+1)); err == nil && secret != "" {
						batch[i], err = relay.Sign(batch[i], secret)
					}
					must(b, err)
				}
				_, err := openFiles(b, dir, agent).Publish(b.Context(), batch, "")
				must(b, err)
			}
			q, box := openFiles(b, dir, "a"), openBox(b, b.TempDir(), secret, nil)
			for b.Loop() {
				l := New(Options{Box: box, Queue: q, Agent: "a", Secret: secret})
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
