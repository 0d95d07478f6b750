package redisrelay

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 60 * time.Second

const testChannel = "nanobot:feishu:outbound"

// open makes a queue with a short heartbeat; change may be nil.
func open(t testing.TB, url, agent, dir string, change func(*Options)) *Queue {
	t.Helper()
	opts := Options{URL: url, Channel: testChannel, Agent: agent, Dir: dir, Block: 50 * time.Millisecond}
	if tt, ok := t.(*testing.T); ok {
		opts.Logger = slog.New(slog.NewTextHandler(tt.Output(), nil))
	}
	if change != nil {
		change(&opts)
	}
	q, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// ear runs one Subscribe and settles all it is handed.
type ear struct {
	t      testing.TB
	q      *Queue
	got    chan relay.Delivery
	cancel context.CancelFunc
	ended  chan struct{}
}

// listenTo starts reading and waits until the reader is live, if live.
func listenTo(t testing.TB, q *Queue, live bool) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &ear{t: t, q: q, got: make(chan relay.Delivery, 1<<16), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		if err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
			d.Settle()
			e.got <- d
		}); err != nil {
			t.Errorf("subscribe: %v", err)
		}
	}()
	t.Cleanup(e.stop)
	if live {
		e.until("reading", func(s relay.Status) bool { return s.Reading })
	}
	return e
}

func (e *ear) stop() {
	e.cancel()
	<-e.ended
}

// until waits for a status.
func (e *ear) until(what string, ok func(relay.Status) bool) {
	e.t.Helper()
	eventually(e.t, what, func() bool { return ok(e.q.Status()) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never came: %s", what)
		}
	}
}

func (e *ear) next() relay.Delivery {
	e.t.Helper()
	select {
	case d := <-e.got:
		return d
	case <-time.After(patience):
		e.t.Fatalf("no line came; status %+v, stats %+v", e.q.Status(), e.q.Stats())
		panic("not reached")
	}
}

// want takes exactly these lines.
func (e *ear) want(lines ...[]byte) []relay.Delivery {
	e.t.Helper()
	ds := make([]relay.Delivery, len(lines))
	got, want := make([]string, len(lines)), make([]string, len(lines))
	for i := range lines {
		ds[i] = e.next()
		got[i], want[i] = string(ds[i].Line), string(lines[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Fatalf("lines (-want +got):\n%s", diff)
	}
	return ds
}

// skipTo takes lines until this one, which it takes as well.
func (e *ear) skipTo(line []byte) {
	e.t.Helper()
	for string(e.next().Line) != string(line) {
	}
}

// publish hands lines to Redis, which must take them.
func publish(t testing.TB, q *Queue, after relay.Receipt, lines ...[]byte) relay.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	receipt, err := q.Publish(ctx, lines, after)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// rawClient is the library as it comes, on a server.
func rawClient(t testing.TB, srv *redistest.Server) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// foreignLine is what a program writes that knows the original seven fields only.
func foreignLine(i int) []byte {
	return fmt.Appendf(nil, `{"relay_msg_id":"f%d","channel":"feishu","chat_id":"oc_x","content":"\"seq\":1","sender_bot_open_id":"ou_f",`+
		`"sender_agent_name":"f","metadata":{"chat_type":"group","seq":7}}`, i)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lines(sender string, from, to int) [][]byte { return relaytest.Lines(sender, from, to) }
