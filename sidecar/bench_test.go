package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/redis/go-redis/v9"

	"feishu-relay/core"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// The benchmarks send with one sidecar and wait for another's delivery, all the
// stages between them at work, beside a bare loop over what carries the message:
// PUBLISH and SUBSCRIBE of the Redis library, an append and a notice of the file
// system. Both take turns in one process, with lines of the same size on the
// same server or disk, and each reports its median over the rounds:
//
//	BenchmarkSequential  one call a message, until all have arrived; msg/s
//	BenchmarkPingPong    one message after the other has arrived; msg/s
//	BenchmarkBurst       eight callers at once; bare is a pipeline of 100; durable are eight that
//	                     append to an outbox, XADD, append to a transcript and to a journal; msg/s
//	BenchmarkHop         a message every 5 ms; us
//
// In each chat a person speaks before every twenty messages of the bots, heard by
// the sending sidecar within the measured time, so that the depth is that of a
// lively chat and not that of a runaway one.

const (
	benchChats  = 40
	benchPerTop = 20  // bots' messages behind a person's
	benchBytes  = 500 // of a bare line: as long as what a sidecar publishes
)

// benchRig is two sidecars that share a queue and a transcript, and what is
// bare beside them.
type benchRig struct {
	from, to *Sidecar
	arrived  chan struct{} // one for each delivery
	bare     carrier
	redis    string // its URL; "": none
	seq      atomic.Int64
}

// carrier is a bare way from a writer to a reader.
type carrier struct {
	send    func(lines ...string) // several: as one batch
	arrived <-chan struct{}
}

// signal is a delivery channel that reports each delivery and does nothing else.
type signal chan struct{}

func (signal) Name() string                        { return doorWebhook }
func (signal) Conn() uint64                        { return 1 }
func (signal) Present() bool                       { return true }
func (signal) Changed() <-chan struct{}            { return nil }
func (signal) Serial() bool                        { return true }
func (signal) Pauses() (first, most time.Duration) { return webhookFirst, webhookMax }

func (s signal) Write(context.Context, *core.Input, bool, func()) error {
	s <- struct{}{}
	return nil
}

func newBenchRig(b *testing.B, backend string) *benchRig {
	b.Helper()
	debug.SetGCPercent(400) // as the program does
	dir := b.TempDir()
	cfg := Config{
		ListenAddr: "127.0.0.1:0", Backend: backend, RelayChannel: "bench:outbound",
		RelayDir: filepath.Join(dir, "relay"), TranscriptDir: filepath.Join(dir, "transcripts"), MaxAge: 10 * time.Minute,
		GroupPolicy: "auto", MembershipCheck: "auto", Limits: policy.Limits{MaxDepth: 1000, Threshold: 1000},
	}
	r := &benchRig{arrived: make(chan struct{}, 1<<16)}
	if backend == "redis" {
		srv := redistest.Start(b)
		cfg.RedisURL, r.redis = Secret(srv.URL()), srv.URL()
		r.bare = barePubSub(b, srv.URL())
	} else {
		r.bare = bareInotify(b)
	}
	r.from = r.start(b, cfg, "agent_a", "BotA")
	r.to = r.start(b, cfg, "agent_b", "BotB")
	return r
}

// start runs a sidecar until the benchmark ends, logging as the program does.
func (r *benchRig) start(b *testing.B, cfg Config, agent relay.AgentName, name string) *Sidecar {
	b.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(b, err)
	cfg.Agent, cfg.BotName, cfg.BotOpenID = agent, name, relay.OpenID("ou_"+agent)
	s, err := New(cfg, Options{Logger: slog.New(slog.NewJSONHandler(null, nil)), channels: []core.Channel{signal(r.arrived)}})
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		_ = null.Close()
	})
	for s.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	return s
}

func barePubSub(b *testing.B, url string) carrier {
	b.Helper()
	opts, err := redis.ParseURL(url)
	must(b, err)
	client := redis.NewClient(opts)
	ctx := context.Background()
	sub := client.Subscribe(ctx, "bare")
	if _, err := sub.Receive(ctx); err != nil {
		b.Fatal(err)
	}
	arrived := make(chan struct{}, 1<<16)
	go func() {
		for range sub.Channel(redis.WithChannelSize(1 << 16)) {
			arrived <- struct{}{}
		}
	}()
	b.Cleanup(func() {
		_ = sub.Close()
		_ = client.Close()
	})
	return carrier{arrived: arrived, send: func(lines ...string) {
		var err error
		if len(lines) == 1 {
			err = client.Publish(ctx, "bare", lines[0]).Err()
		} else {
			_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, line := range lines {
					p.Publish(ctx, "bare", line)
				}
				return nil
			})
		}
		if err != nil {
			b.Error(err)
		}
	}}
}

func bareInotify(b *testing.B) carrier {
	b.Helper()
	path := filepath.Join(b.TempDir(), "bare.jsonl")
	write, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(b, err)
	read, err := os.Open(path)
	must(b, err)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(filepath.Dir(path))
	}
	must(b, err)
	arrived := make(chan struct{}, 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for range watcher.Events {
			for n, _ := read.Read(buf); n > 0; n, _ = read.Read(buf) {
				for range strings.Count(string(buf[:n]), "\n") {
					arrived <- struct{}{}
				}
			}
		}
	}()
	b.Cleanup(func() {
		_ = watcher.Close()
		<-done
		_, _ = read.Close(), write.Close()
	})
	return carrier{arrived: arrived, send: func(lines ...string) {
		if _, err := write.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
			b.Error(err)
		}
	}}
}

var benchText = strings.Repeat("请看一下 this, please. ", 9)

// message makes the next one of a chat.
func (r *benchRig) message(chat int) relay.Outbound {
	n := r.seq.Add(1)
	return relay.Outbound{ChatID: relay.ChatID(fmt.Sprintf("oc_84d1a7e5b9f94c4ea0a5%04d", chat)), Content: benchText,
		MessageID: relay.MessageID(fmt.Sprintf("om_dc13264520392913993dd051%08d", n)), TS: relay.MillisOf(time.Now())}
}

// hear has a person speak in a chat.
func (r *benchRig) hear(b *testing.B, chat int) {
	m := r.message(chat)
	if _, err := r.from.hear(context.Background(), relay.Heard{ChatID: m.ChatID, Content: "请开始", Sender: "ou_person",
		MessageID: m.MessageID, TS: m.TS}, true); err != nil {
		b.Error(err)
	}
}

func (r *benchRig) send(b *testing.B, chat int) {
	if _, err := r.from.Send(context.Background(), r.message(chat)); err != nil {
		b.Error(err)
	}
}

// say sends n messages to chats in turn, and has a person speak first in each
// and again after every benchPerTop messages.
func (r *benchRig) say(b *testing.B, n int, chats []int, sent func()) {
	for i := range n {
		if i/len(chats)%benchPerTop == 0 {
			r.hear(b, chats[i%len(chats)])
		}
		r.send(b, chats[i%len(chats)])
		sent()
	}
}

func (r *benchRig) await(n int) {
	for range n {
		<-r.arrived
	}
}

func (c carrier) await(n int) {
	for range n {
		<-c.arrived
	}
}

var benchLine = strings.Repeat("x", benchBytes)

func rate(n int, f func()) float64 {
	start := time.Now()
	f()
	return float64(n) / time.Since(start).Seconds()
}

func medianOf(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// takeTurns runs rounds of n messages both ways.
func takeTurns(b *testing.B, n int, ours, bare func(r *benchRig), others ...func(r *benchRig)) {
	r := newBenchRig(b, "redis")
	var oursRates, bareRates []float64
	for b.Loop() {
		bareRates = append(bareRates, rate(n, func() { bare(r) }))
		oursRates = append(oursRates, rate(n, func() { ours(r) }))
		for _, f := range others {
			f(r)
		}
	}
	b.ReportMetric(medianOf(oursRates), "msg/s")
	b.ReportMetric(medianOf(bareRates), "bare-msg/s")
}

// some returns the numbers of n chats from the first on.
func some(first, n int) []int {
	chats := make([]int, n)
	for i := range chats {
		chats[i] = first + i
	}
	return chats
}

func BenchmarkSequential(b *testing.B) {
	const n = 2000
	takeTurns(b, n, func(r *benchRig) {
		r.say(b, n, some(0, benchChats), func() {})
		r.await(n)
	}, func(r *benchRig) {
		for range n {
			r.bare.send(benchLine)
		}
		r.bare.await(n)
	})
}

func BenchmarkPingPong(b *testing.B) {
	const n = 1000
	takeTurns(b, n, func(r *benchRig) {
		r.say(b, n, some(0, 1), func() { r.await(1) })
	}, func(r *benchRig) {
		for range n {
			r.bare.send(benchLine)
			r.bare.await(1)
		}
	})
}

func BenchmarkBurst(b *testing.B) {
	const n, batch, callers = 8000, 100, 8
	lines := slices.Repeat([]string{benchLine}, batch)
	var durable *durableLoop
	var rates []float64
	takeTurns(b, n, func(r *benchRig) {
		var calling sync.WaitGroup
		for i := range callers {
			calling.Go(func() { r.say(b, n/callers, some(i*benchChats/callers, benchChats/callers), func() {}) })
		}
		r.await(n)
		calling.Wait()
	}, func(r *benchRig) {
		for range n / batch {
			r.bare.send(lines...)
		}
		r.bare.await(n)
	}, func(r *benchRig) {
		if durable == nil {
			durable = newDurableLoop(b, r.redis)
		}
		rates = append(rates, rate(n, func() {
			var calling sync.WaitGroup
			for range callers {
				calling.Go(func() { durable.run(b, n/callers) })
			}
			calling.Wait()
		}))
	})
	b.ReportMetric(medianOf(rates), "durable-msg/s")
}

// durableLoop does what has to be done for a message that survives a crash, and nothing else.
type durableLoop struct {
	client                      *redis.Client
	outbox, transcript, journal *os.File
}

func newDurableLoop(b *testing.B, url string) *durableLoop {
	b.Helper()
	opts, err := redis.ParseURL(url)
	must(b, err)
	d := &durableLoop{client: redis.NewClient(opts)}
	b.Cleanup(func() { _ = d.client.Close() })
	dir := b.TempDir()
	for name, file := range map[string]**os.File{"outbox": &d.outbox, "transcript": &d.transcript, "journal": &d.journal} {
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = (*file).Close() })
	}
	return d
}

func (d *durableLoop) run(b *testing.B, n int) {
	line, id := []byte(benchLine+"\n"), []byte("om_dc13264520392913993dd05100000000\n")
	for range n {
		_, err1 := d.outbox.Write(line)
		err2 := d.client.XAdd(context.Background(), &redis.XAddArgs{Stream: "durable", MaxLen: 10_000, Approx: true,
			Values: []string{"payload", benchLine}}).Err()
		_, err3 := d.transcript.Write(line)
		_, err4 := d.journal.Write(id)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			b.Error(err)
		}
	}
}

func BenchmarkHop(b *testing.B) {
	const n, pace = 400, 5 * time.Millisecond
	for _, backend := range []string{"redis", "file"} {
		b.Run(backend, func(b *testing.B) {
			r := newBenchRig(b, backend)
			tick := time.NewTicker(pace)
			defer tick.Stop()
			var ours, bare []time.Duration
			for b.Loop() {
				for i := range n {
					if i%benchPerTop == 0 {
						r.hear(b, 0)
					}
					<-tick.C
					bare = append(bare, timed(func() { r.bare.send(benchLine); r.bare.await(1) }))
					<-tick.C
					ours = append(ours, timed(func() { r.send(b, 0); r.await(1) }))
				}
			}
			slices.Sort(ours)
			slices.Sort(bare)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(ours[len(ours)*p/100].Nanoseconds())/1e3, fmt.Sprintf("p%d-us", p))
				b.ReportMetric(float64(bare[len(bare)*p/100].Nanoseconds())/1e3, fmt.Sprintf("bare-p%d-us", p))
			}
		})
	}
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
