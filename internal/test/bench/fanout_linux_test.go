package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/internal/test/redistest"
)

const (
	receivers = 8
	perRound  = 4000 // messages
	batchSize = 100
)

// BenchmarkFanOut8 counts deliveries to eight sidecars that share a transcript,
// each a process with a bot that reads its stream; bare is as many processes
// that subscribe and do nothing. Afterwards each message stands in the
// transcript once.
func BenchmarkFanOut8(b *testing.B) {
	dir := b.TempDir()
	srv := redistest.Start(b)
	got := make(chan struct{}, receivers*perRound)
	for i := range receivers {
		startSidecar(b, dir, srv.URL(), fmt.Sprint("agent_", i)).read(b, got)
	}
	sender := newSender(b, srv.URL())
	bare := startSubscribers(b, srv.URL())
	line := sender.lines(b, 1)[0]
	sent := 0
	var oursRates, bareRates []float64
	for b.Loop() {
		bareRates = append(bareRates, receivers*perRound/bare.round(b, line).Seconds())
		messages := sender.lines(b, perRound)
		start := time.Now()
		for part := range slices.Chunk(messages, batchSize) {
			sender.publish(b, part)
		}
		await(receivers*perRound, got)
		oursRates = append(oursRates, receivers*perRound/time.Since(start).Seconds())
		sent += perRound
	}
	b.ReportMetric(median(oursRates), "msg/s")
	b.ReportMetric(median(bareRates), "bare-msg/s")
	if lines, ids := countTranscript(b, filepath.Join(dir, "transcripts")); lines != sent || ids != sent {
		b.Fatalf("%d lines of %d messages in the transcript, want %d of each", lines, ids, sent)
	}
}

// countTranscript counts the lines below dir, and the message ids in them.
func countTranscript(b *testing.B, dir string) (lines, ids int) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl*"))
	if err != nil {
		b.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			lines++
			_, rest, _ := bytes.Cut(line, []byte(`"message_id":"`))
			id, _, _ := bytes.Cut(rest, []byte{'"'})
			seen[string(id)] = true
		}
	}
	return lines, len(seen)
}

// subscribers are bare receivers, each a process.
type subscribers struct {
	client *redis.Client
	all    []*childtest.Child
}

// beSubscriber, of the Redis that is its argument, says "ready", and after each perRound messages "done".
func beSubscriber(args []string) error {
	client, err := dial(args[0])
	if err != nil {
		return err
	}
	sub := client.Subscribe(context.Background(), "bare")
	if _, err := sub.Receive(context.Background()); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the benchmark
		os.Exit(0)
	}()
	fmt.Println("ready")
	n := 0
	for range sub.Channel(redis.WithChannelSize(perRound)) {
		if n++; n%perRound == 0 {
			fmt.Println("done")
		}
	}
	return nil
}

func dial(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opts), nil
}

func startSubscribers(b *testing.B, url string) *subscribers {
	b.Helper()
	client, err := dial(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	s := &subscribers{client: client}
	for range receivers {
		s.all = append(s.all, childtest.Start(b, "subscriber", url))
	}
	s.expect(b, "ready")
	return s
}

func (s *subscribers) expect(b *testing.B, want string) {
	b.Helper()
	for i, c := range s.all {
		if got := c.Line(); got != want {
			b.Fatalf("subscriber %d said %q, want %q", i, got, want)
		}
	}
}

// round publishes perRound lines in pipelines, until all have arrived.
func (s *subscribers) round(b *testing.B, line []byte) time.Duration {
	b.Helper()
	ctx := context.Background()
	start := time.Now()
	for range perRound / batchSize {
		if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range batchSize {
				p.Publish(ctx, "bare", line)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	s.expect(b, "done")
	return time.Since(start)
}
