package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
)

const (
	receivers = 8
	perRound  = 4000 // messages
	batchSize = 100
)

// subscriberEnv makes this binary a bare subscriber to that Redis.
const subscriberEnv = "BENCH_SUBSCRIBER"

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
	out    []*bufio.Reader
}

// beSubscriber says "ready", and after each perRound messages "done".
func beSubscriber(url string) error {
	client, err := dial(url)
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
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), subscriberEnv+"="+url)
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
		s.out = append(s.out, bufio.NewReader(out))
	}
	s.expect(b, "ready\n")
	return s
}

func (s *subscribers) expect(b *testing.B, want string) {
	b.Helper()
	for i, out := range s.out {
		if got, err := out.ReadString('\n'); got != want || err != nil {
			b.Fatalf("subscriber %d said %s, %v, want %s", i, strconv.Quote(got), err, strconv.Quote(want))
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
	s.expect(b, "done\n")
	return time.Since(start)
}
