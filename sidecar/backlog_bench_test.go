package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/core"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// decided is a log handler that signals each decision.
type decided chan struct{}

func (d decided) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (d decided) WithAttrs([]slog.Attr) slog.Handler               { return d }
func (d decided) WithGroup(string) slog.Handler                    { return d }
func (d decided) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "decision" {
		d <- struct{}{}
	}
	return nil
}

func (d decided) await(n int) {
	for range n {
		<-d
	}
}

// backlogRig is the folder of two sidecars and the queue that they read.
type backlogRig struct {
	cfg    Config
	queue  *os.File
	ts     int64
	lines  int
	person int // every person-th message is sent with a new user_ts; 0: none
}

func newBacklogRig(b *testing.B, limits policy.Limits, person int) *backlogRig {
	b.Helper()
	dir := b.TempDir()
	r := &backlogRig{ts: time.Now().Add(-time.Minute).UnixMilli(), person: person, cfg: Config{
		ListenAddr: "127.0.0.1:0", Backend: "file",
		RelayDir: filepath.Join(dir, "relay"), TranscriptDir: filepath.Join(dir, "transcripts"), MaxAge: time.Hour,
		GroupPolicy: "auto", MembershipCheck: "auto", Limits: limits}}
	for _, agent := range []relay.AgentName{"agent_b", "agent_d"} {
		r.run(b, agent, func(decided) {}) // a first start takes what is in the queue as history
	}
	var err error
	r.queue, err = os.OpenFile(filepath.Join(r.cfg.RelayDir, "outbound.jsonl"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.queue.Close() })
	return r
}

// run runs a sidecar while f waits for its decisions.
func (r *backlogRig) run(b *testing.B, agent relay.AgentName, f func(decided)) {
	b.Helper()
	decisions := make(decided, 1<<16)
	cfg := r.cfg
	cfg.Agent, cfg.BotName, cfg.BotOpenID = agent, string(agent), relay.OpenID("ou_"+agent)
	s, err := New(cfg, Options{Logger: slog.New(decisions), channels: []core.Channel{signal(make(chan struct{}, 1<<16))}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for s.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	f(decisions)
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// say writes n messages of two bots of 4 kB each to the queue.
func (r *backlogRig) say(b *testing.B, n int) {
	b.Helper()
	text := strings.Repeat("请看一下 this, please. ", 160)
	var lines strings.Builder
	for range n {
		r.ts++
		r.lines++
		m := relay.Message{RelayMsgID: relay.MessageID(fmt.Sprintf("om_dc13264520392913993dd051%08d", r.lines)), Channel: "feishu",
			ChatID: "oc_84d1a7e5b9f94c4ea0a5", Content: text, SenderAgentName: []relay.AgentName{"agent_a", "agent_c"}[r.lines%2],
			TS: relay.Millis(r.ts)}
		if r.person > 0 {
			m.UserTS = relay.Millis(r.ts - int64(r.lines%r.person))
		}
		line, err := m.Encode()
		if err != nil {
			b.Fatal(err)
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	if _, err := r.queue.WriteString(lines.String()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBacklog has a sidecar decide on n messages that waited for it in one chat, and
// on as many that come one after the other, each after the decision on the one before. It
// reports both rates and their ratio, for talk with a person, for one long round of bots, and
// where another sidecar has written all of it to the transcript before.
func BenchmarkBacklog(b *testing.B) {
	stop := policy.Limits{MaxDepth: 3, Threshold: 1}
	pass := policy.Limits{MaxDepth: 1 << 20, Threshold: 1 << 20}
	for _, kind := range []struct {
		name    string
		limits  policy.Limits
		person  int
		written bool
	}{
		{"with a person", pass, 20, false},
		{"with a person, written by another", pass, 20, true},
		{"long round that is stopped", stop, 0, false},
		{"long round that is stopped, written by another", stop, 0, true},
		{"long round that passes", pass, 0, false},
	} {
		for _, n := range []int{200, 800, 3200} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				var backlog, live []float64
				for b.Loop() {
					r := newBacklogRig(b, kind.limits, kind.person)
					r.say(b, n)
					if kind.written {
						r.run(b, "agent_d", func(d decided) { d.await(n) })
					}
					r.run(b, "agent_b", func(d decided) {
						backlog = append(backlog, rate(n, func() { d.await(n) }))
					})
					r = newBacklogRig(b, kind.limits, kind.person)
					r.run(b, "agent_b", func(d decided) {
						live = append(live, rate(n, func() {
							for range n {
								r.say(b, 1)
								d.await(1)
							}
						}))
					})
				}
				b.ReportMetric(medianOf(backlog), "msg/s")
				b.ReportMetric(medianOf(live), "live-msg/s")
				b.ReportMetric(medianOf(backlog)/medianOf(live), "ratio")
			})
		}
	}
}
