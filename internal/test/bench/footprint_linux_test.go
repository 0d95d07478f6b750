package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
)

// BenchmarkStart is a cold start of a sidecar on files, from nothing to ready.
func BenchmarkStart(b *testing.B) {
	path := program(b, "feishu-relay")
	for b.Loop() {
		startDaemon(b, path, "/readyz", "AGENT_NAME=agent_a", "DATA_DIR="+b.TempDir())
	}
}

// BenchmarkIdle weighs an idle sidecar on Redis, two seconds after its start,
// and beside it a bare daemon with the same libraries; and both programs' files.
func BenchmarkIdle(b *testing.B) {
	srv := redistest.Start(b)
	var ours, bare []float64
	for b.Loop() {
		sidecar := startSidecar(b, b.TempDir(), srv.URL(), "agent_a")
		daemon := startDaemon(b, program(b, "bare"), "/healthz", "REDIS_URL="+srv.URL(), "DATA_DIR="+b.TempDir())
		time.Sleep(2 * time.Second)
		ours, bare = append(ours, sidecar.rss(b)), append(bare, daemon.rss(b))
	}
	b.ReportMetric(median(ours), "MiB")
	b.ReportMetric(median(bare), "bare-MiB")
	b.ReportMetric(megabytes(b, program(b, "feishu-relay")), "file-MB")
	b.ReportMetric(megabytes(b, program(b, "bare")), "bare-file-MB")
}

func megabytes(b *testing.B, path string) float64 {
	b.Helper()
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size()) / 1e6
}

// BenchmarkMemory weighs a sidecar after 10,000 delivered messages and after
// BENCH_MESSAGES, a million unless it is set.
func BenchmarkMemory(b *testing.B) {
	const early, ahead = 10_000, 2_000 // ahead of the reader: the stream keeps 10,000
	total := 1_000_000
	if text := os.Getenv("BENCH_MESSAGES"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil || total < early {
			b.Fatal("BENCH_MESSAGES: want a number, 10000 at least")
		}
	}
	srv := redistest.Start(b)
	for b.Loop() {
		sidecar := startSidecar(b, b.TempDir(), srv.URL(), "agent_a")
		got := make(chan struct{}, ahead)
		sidecar.read(b, got)
		sender := newSender(b, srv.URL())
		sent, arrived := 0, 0
		reach := func(goal int) time.Duration {
			start := time.Now()
			for arrived < goal {
				for sent < goal && sent-arrived <= ahead-batchSize {
					sender.publish(b, sender.lines(b, batchSize))
					sent += batchSize
				}
				await(batchSize, got)
				arrived += batchSize
			}
			return time.Since(start)
		}
		reach(early)
		before := sidecar.rss(b)
		took := reach(total)
		b.ReportMetric(before, "early-MiB")
		b.ReportMetric(sidecar.rss(b), "MiB")
		b.ReportMetric(float64(total-early)/took.Seconds(), "msg/s")
	}
}
