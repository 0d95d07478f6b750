package redisrelay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
)

// large is the i-th message of a, of 25 KB.
func large(i int) []byte {
	return fmt.Appendf(nil, `{"relay_msg_id":"m%d","seq":%d,"content":"%s"}`, i, i, strings.Repeat("x", 25_000))
}

// follower reads a queue and drops repeats, as a sidecar does.
type follower struct {
	t     testing.TB
	q     *Queue
	upTo  atomic.Int64 // the messages 1 to upTo came, each once and in order
	fault atomic.Pointer[string]
}

func follow(t testing.TB, q *Queue) *follower {
	t.Helper()
	f := &follower{t: t, q: q}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
			d.Settle()
			var m struct{ Seq int64 }
			if err := json.Unmarshal(d.Line, &m); err != nil {
				return
			}
			switch last := f.upTo.Load(); {
			case m.Seq == last+1:
				f.upTo.Store(m.Seq)
			case m.Seq > last+1:
				text := fmt.Sprintf("%d came after %d", m.Seq, last)
				f.fault.CompareAndSwap(nil, &text)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "reading", func() bool { return q.Status().Reading })
	return f
}

// has waits until the messages up to n came.
func (f *follower) has(n int64) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("message %d", n), func() bool { return f.upTo.Load() >= n || f.fault.Load() != nil })
	if fault := f.fault.Load(); fault != nil {
		f.t.Fatalf("%s; stats %+v", *fault, f.q.Stats())
	}
}

// sender publishes messages as an outbox does: what Redis lost again, from the oldest that it keeps.
type sender struct {
	t       testing.TB
	q       *Queue
	reader  *follower
	message func(i int) []byte
	oldest  int64 // that it keeps
	receipt relay.Receipt
	fault   string // that was logged

	forgotten atomic.Int64 // times that Redis had lost some
}

// ahead is how many messages a sender may be before its reader, fewer than the stream keeps.
const ahead = 40

// send publishes the messages from..to, a few at a time, and waits for nothing but the reader.
func (s *sender) send(from, to int64) {
	s.t.Helper()
	for next := from; next <= to; {
		eventually(s.t, fmt.Sprintf("message %d", next-ahead), func() bool {
			if s.reader.upTo.Load() >= next-ahead || s.reader.fault.Load() != nil {
				return true
			}
			_, err := s.q.Publish(context.Background(), nil, s.receipt) // is it there still?
			if errors.Is(err, relay.ErrForgotten) {
				s.forgotten.Add(1)
				s.receipt, next = "", s.oldest
			}
			return false
		})
		s.reader.has(next - ahead)
		n := min(10, to-next+1)
		var lines [][]byte
		for i := range n {
			lines = append(lines, s.message(int(next+i)))
		}
		receipt, err := s.q.Publish(context.Background(), lines, s.receipt)
		switch {
		case err == nil:
			s.receipt = receipt
			next += n
		case errors.Is(err, relay.ErrForgotten):
			s.forgotten.Add(1)
			s.receipt, next = "", s.oldest
		default:
			if s.fault != err.Error() {
				s.fault = err.Error()
				s.t.Logf("publish: %s", s.fault)
			}
			<-time.After(20 * time.Millisecond) // before it is tried again, as an outbox does
		}
	}
}

// fill takes all memory that Redis has left, as another program does.
func fill(t testing.TB, raw *redis.Client) {
	t.Helper()
	n := 0
	for size := 1_000_000; size >= 10; size /= 10 {
		var err error
		for ; err == nil; n++ {
			err = raw.Set(t.Context(), fmt.Sprint("other", n), bytes.Repeat([]byte{'x'}, size), 0).Err()
		}
		if !redis.HasErrorPrefix(err, "OOM") {
			t.Fatal(err)
		}
	}
}

// A full Redis refuses a message with a clear error and trims nothing for it: the sender publishes it later.
func TestFullRedisKeepsNewMessages(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw := rawClient(t, srv)
	dir := t.TempDir()
	f := follow(t, open(t, srv.URL(), "a", dir, nil))
	s := &sender{t: t, q: open(t, srv.URL(), "s", dir, nil), reader: f, message: large, oldest: 1}
	s.send(1, 200)
	fill(t, raw)
	most := func(size string) {
		if err := raw.ConfigSet(t.Context(), "maxmemory", size).Err(); err != nil {
			t.Fatal(err)
		}
	}
	most("40mb") // it stays full whatever the connections' buffers free
	for range 10 {
		_, err := s.q.Publish(t.Context(), [][]byte{large(201)}, s.receipt)
		if err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("got %v, want out of memory", err)
		}
	}
	if n := raw.XLen(t.Context(), s.q.stream).Val(); n != 200 {
		t.Errorf("%d of 200 entries are left", n)
	}
	most("48mb")
	if err := raw.Del(t.Context(), "other0", "other1", "other2").Err(); err != nil {
		t.Fatal(err)
	}
	s.send(201, 250)
	f.has(250)
}
