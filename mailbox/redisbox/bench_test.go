package redisbox

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
)

// BenchmarkMail runs the store and a bare loop of the same library side by side,
// round by round, with the same payloads on the same server, and reports the
// median of the ratios, so that a slow machine makes no difference: a message
// is put, shown and settled, and then the next.
func BenchmarkMail(b *testing.B) {
	const size = 200
	srv := redistest.Start(b)
	s, raw := open(b, srv.URL(), "alice", nil), rawClient(b, srv.URL())
	e := hearing(b, s, "bob")
	ctx := context.Background()
	got := make(chan string, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for last := "0"; reading.Err() == nil; {
			streams, err := raw.XRead(ctx, &redis.XReadArgs{Streams: []string{"bare", last}, Block: 100 * time.Millisecond}).Result()
			if err != nil {
				continue
			}
			for _, entry := range streams[0].Messages {
				last = entry.ID
				got <- last
			}
		}
	}()
	list := mails(1, size)
	ours := func() time.Duration {
		start := time.Now()
		for _, m := range list {
			put(b, s, m)
			if err := s.Settle(ctx, "bob", e.next().Key, mailbox.Taken); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
	payloads := make([][]byte, size)
	for i, m := range list {
		payloads[i], _ = mailbox.Encode(m)
	}
	bare := func() time.Duration {
		start := time.Now()
		for _, p := range payloads {
			if err := raw.XAdd(ctx, &redis.XAddArgs{Stream: "bare", Values: []any{"envelope", p}}).Err(); err != nil {
				b.Fatal(err)
			}
			if err := raw.XDel(ctx, "bare", <-got).Err(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
	var ratios []float64
	var total time.Duration
	for b.Loop() {
		theirs, mine := bare(), ours()
		ratios = append(ratios, float64(theirs)/float64(mine))
		total += mine
	}
	slices.Sort(ratios)
	b.ReportMetric(float64(len(ratios)*size)/total.Seconds(), "msg/s")
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
}
