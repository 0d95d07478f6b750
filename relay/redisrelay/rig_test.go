package redisrelay

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

const testChannel = "nanobot:feishu:outbound"

// open makes a queue with a short heartbeat; change may be nil.
func open(t *testing.T, url, agent, dir string, change func(*Options)) *Queue {
	t.Helper()
	opts := Options{URL: url, Channel: testChannel, Agent: agent, Dir: dir, Block: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
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

// ear reads a queue.
type ear struct {
	*relaytest.Reader
	t *testing.T
	q *Queue
}

// listenTo starts reading and waits until the reader is live, if live.
func listenTo(t *testing.T, q *Queue, live bool) *ear {
	t.Helper()
	e := &ear{relaytest.Follow(t, q), t, q}
	if live {
		e.until("reading", func(s relay.Status) bool { return s.Reading })
	}
	return e
}

// until waits for a status.
func (e *ear) until(what string, ok func(relay.Status) bool) {
	e.t.Helper()
	relaytest.Eventually(e.t, what, func() bool { return ok(e.q.Status()) })
}

// skipTo takes lines until this one, which it takes as well.
func (e *ear) skipTo(line []byte) {
	e.t.Helper()
	for string(e.Take(1)[0].Line) != string(line) {
	}
}

// publish hands lines to Redis, which must take them.
func publish(t *testing.T, q *Queue, after relay.Receipt, lines ...[]byte) relay.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	receipt, err := q.Publish(ctx, lines, after)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// rawClient is the library as it comes, on a server.
func rawClient(t *testing.T, srv *redistest.Server) *redis.Client {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lines(sender string, from, to int) [][]byte { return relaytest.Lines(sender, from, to) }
