package redisrelay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
)

// The benchmarks run the queue and a bare loop of the same library side by
// side, round by round, with the same payloads on the same server, and report
// the ratio, so that a slow machine makes no difference:
//
//	BenchmarkSequential  one message a call, publish to handler; raw is PUBLISH to SUBSCRIBE
//	BenchmarkBurst       100 messages a call; raw is a pipeline of PUBLISH
//	BenchmarkHop         paced messages; raw as in Sequential
//
// The third party of the first two is "bare": the same commands on the wire by
// the bare library (a MULTI of XADD and PUBLISH, an XREAD loop, a subscriber),
// nothing verified, stored or bounded. What it is slower than raw is the price of the
// stream; what the queue is slower than it is the price of this package.

// rig is a queue that is read, and a raw publisher and subscriber beside it.
type rig struct {
	queue *Queue
	got   chan struct{} // one for each line the handler took
	raw   *redis.Client
	heard <-chan *redis.Message
	bare  chan struct{} // one for each entry the bare reader got
	seq   int
}

func newRig(b *testing.B) *rig {
	b.Helper()
	srv := redistest.Start(b)
	q, err := New(Options{URL: srv.URL(), Channel: "bench", Agent: "bench", Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	opts, err := redis.ParseURL(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{queue: q, raw: redis.NewClient(opts), got: make(chan struct{}, 1<<16), bare: make(chan struct{}, 1<<16)}
	sub := r.raw.Subscribe(context.Background(), "raw")
	if _, err := sub.Receive(context.Background()); err != nil {
		b.Fatal(err)
	}
	r.heard = sub.Channel(redis.WithChannelSize(1 << 16))
	go func() {
		_ = q.Subscribe(context.Background(), func(_ context.Context, d relay.Delivery) {
			d.Settle()
			r.got <- struct{}{}
		})
	}()
	eventually(b, "reading", func() bool { return q.Status().Reading })
	bareSub := r.raw.Subscribe(context.Background(), "bare")
	if _, err := bareSub.Receive(context.Background()); err != nil {
		b.Fatal(err)
	}
	go func() {
		for range bareSub.Channel() {
		}
	}()
	go r.readBare()
	b.Cleanup(func() {
		_ = bareSub.Close()
		_ = q.Close()
		_ = sub.Close()
		_ = r.raw.Close()
	})
	return r
}

// lines makes n messages of about 0.5 KB.
func (r *rig) lines(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		r.seq++
		m := relay.Message{
			RelayMsgID: relay.MessageID(fmt.Sprintf("om_dc13264520392913993dd051%08d", r.seq)), Channel: "feishu",
			ChatID: "oc_84d1a7e5b9f94c4ea0a5", Content: strings.Repeat("请 @BotB 看一下 ", 10), SenderBotOpenID: "ou_a",
			SenderAgentName: "agent_a", TS: 1795211093522, Seq: relay.Seq(r.seq),
		}
		out[i], _ = m.Encode()
	}
	return out
}

func (r *rig) queueRound(b *testing.B, lines [][]byte, batch int) time.Duration {
	b.Helper()
	start := time.Now()
	var receipt relay.Receipt
	var err error
	for part := range slices.Chunk(lines, batch) {
		if receipt, err = r.queue.Publish(context.Background(), part, receipt); err != nil {
			b.Fatal(err)
		}
	}
	for range lines {
		<-r.got
	}
	return time.Since(start)
}

func (r *rig) readBare() {
	for last := "0"; ; {
		streams, err := r.raw.XRead(context.Background(), &redis.XReadArgs{
			Streams: []string{"bare:log", last}, Count: readCount, Block: time.Second,
		}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return // closed
		}
		for _, entry := range streams[0].Messages {
			last = entry.ID
			r.bare <- struct{}{}
		}
	}
}

func (r *rig) bareRound(b *testing.B, lines [][]byte, batch int) time.Duration {
	b.Helper()
	ctx := context.Background()
	start := time.Now()
	for part := range slices.Chunk(lines, batch) {
		if _, err := r.raw.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, line := range part {
				p.XAdd(ctx, &redis.XAddArgs{Stream: "bare:log", MaxLen: defaultMaxLen, Approx: true, Values: []any{"payload", line}})
				p.Publish(ctx, "bare", line)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	for range lines {
		<-r.bare
	}
	return time.Since(start)
}

func (r *rig) rawRound(b *testing.B, lines [][]byte, batch int) time.Duration {
	b.Helper()
	ctx := context.Background()
	start := time.Now()
	for part := range slices.Chunk(lines, batch) {
		if batch == 1 {
			if err := r.raw.Publish(ctx, "raw", part[0]).Err(); err != nil {
				b.Fatal(err)
			}
			continue
		}
		if _, err := r.raw.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, line := range part {
				p.Publish(ctx, "raw", line)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	for range lines {
		<-r.heard
	}
	return time.Since(start)
}

// compare runs rounds of size messages each way and reports the medians of the ratios.
func compare(b *testing.B, size, batch int) {
	r := newRig(b)
	var ratios, floors []float64
	var ours, raw time.Duration
	rounds := 0
	for b.Loop() {
		lines := r.lines(size)
		theirs, bare, mine := r.rawRound(b, lines, batch), r.bareRound(b, lines, batch), r.queueRound(b, lines, batch)
		ratios = append(ratios, float64(theirs)/float64(mine))
		floors = append(floors, float64(theirs)/float64(bare))
		ours, raw = ours+mine, raw+theirs
		rounds++
	}
	slices.Sort(ratios)
	slices.Sort(floors)
	b.ReportMetric(float64(rounds*size)/ours.Seconds(), "msg/s")
	b.ReportMetric(float64(rounds*size)/raw.Seconds(), "raw-msg/s")
	b.ReportMetric(ratios[len(ratios)/2], "x-raw")
	b.ReportMetric(floors[len(floors)/2], "bare-x-raw")
}

func BenchmarkSequential(b *testing.B) { compare(b, 2000, 1) }
func BenchmarkBurst(b *testing.B)      { compare(b, 20_000, 100) }

func BenchmarkHop(b *testing.B) {
	const size = 2000
	r := newRig(b)
	var ours, raw []time.Duration
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for b.Loop() {
		for _, line := range r.lines(size) {
			<-pace.C
			raw = append(raw, r.rawRound(b, [][]byte{line}, 1))
			<-pace.C
			ours = append(ours, r.queueRound(b, [][]byte{line}, 1))
		}
	}
	slices.Sort(ours)
	slices.Sort(raw)
	for _, p := range []int{50, 99} {
		mine, theirs := ours[len(ours)*p/100], raw[len(raw)*p/100]
		b.ReportMetric(float64(mine.Microseconds()), fmt.Sprintf("p%d-us", p))
		b.ReportMetric(float64(mine)/float64(theirs), fmt.Sprintf("p%d-x-raw", p))
	}
}
