package agent_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/redisbox"
)

// BenchmarkSend measures a message from Send to the other bot's door, through
// two agents, beside the bare thing that carries it, in turns.
func BenchmarkSend(b *testing.B) {
	b.Run("file", func(b *testing.B) {
		dir := b.TempDir()
		measure(b, func(mailbox.AgentID) mailbox.Store {
			s, err := filebox.Open(filepath.Join(dir, "boxes"), nil)
			must(b, err)
			return s
		}, bareRename(b, dir))
	})
	b.Run("redis", func(b *testing.B) {
		if _, err := exec.LookPath("redis-server"); err != nil {
			b.Skip("no redis-server")
		}
		srv := redistest.Start(b)
		measure(b, func(self mailbox.AgentID) mailbox.Store {
			s, err := redisbox.Open(redisbox.Options{URL: srv.URL(), Self: self})
			must(b, err)
			return s
		}, bareStream(b, srv.URL()))
	})
}

func measure(b *testing.B, open func(mailbox.AgentID) mailbox.Store, bare func()) {
	const size = 50 // messages of a round
	got := make(chan struct{}, size)
	from := running(b, "a", open("a"), nil)
	running(b, "b", open("b"), got)
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		for range size {
			_, err := from.Send(b.Context(), agent.Draft{Envelope: letterTo("b", "hello")})
			must(b, err)
			<-got
		}
		ours += time.Since(start)
		start = time.Now()
		for range size {
			bare()
		}
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N*size), "us")
	b.ReportMetric(float64(theirs.Microseconds())/float64(b.N*size), "bare-us")
}

// running starts an agent on a real store, whose bot tells got of each message.
func running(t testing.TB, id mailbox.AgentID, store mailbox.Store, got chan<- struct{}) *agent.Agent {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	d := newDoor()
	d.doing(func(context.Context, agent.Delivery) error {
		if got != nil {
			got <- struct{}{}
		}
		return nil
	})
	a, err := agent.New(agent.Options{Self: id, MaxTasks: 3, Store: store, State: root, Channels: d,
		Hears:     func(string, string) bool { return false },
		Heartbeat: 30 * time.Second, HeartbeatTimeout: 90 * time.Second, AckTimeout: 30 * time.Second, RetryBase: time.Second, MaxRetries: 3,
		DeliveryTimeout: 15 * time.Minute, MaxAge: 10 * time.Minute,
		Trace: func(string) {}, Failed: func(string, error) {}, Observe: func(agent.Event) {}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = a.Close()
		_ = root.Close()
		_ = store.Close()
	})
	return a
}

// bareRename is what no file mailbox can do without: write aside, rename, read, rename.
func bareRename(b *testing.B, dir string) func() {
	data, err := mailbox.Encode(letterTo("b", "hello"))
	must(b, err)
	aside, waits, taken := filepath.Join(dir, "m.tmp"), filepath.Join(dir, "m"), filepath.Join(dir, "taken")
	return func() {
		must(b, os.WriteFile(aside, data, 0o600))
		must(b, os.Rename(aside, waits))
		_, err := os.ReadFile(waits)
		must(b, err)
		must(b, os.Rename(waits, taken))
	}
}

// bareStream is an XADD, and an XREAD that waits for it.
func bareStream(b *testing.B, url string) func() {
	data, err := mailbox.Encode(letterTo("b", "hello"))
	must(b, err)
	opts, err := redis.ParseURL(url)
	must(b, err)
	c := redis.NewClient(opts)
	ctx, stop := context.WithCancel(context.Background())
	got, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := "0"; ctx.Err() == nil; {
			streams, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{"bare", last}, Block: time.Second}).Result()
			if err != nil {
				continue
			}
			for _, entry := range streams[0].Messages {
				last = entry.ID
				got <- struct{}{}
			}
		}
	}()
	b.Cleanup(func() {
		stop()
		<-done
		_ = c.Close()
	})
	return func() {
		must(b, c.XAdd(b.Context(), &redis.XAddArgs{Stream: "bare", MaxLen: 1000, Approx: true, Values: []any{"e", data}}).Err())
		<-got
	}
}
