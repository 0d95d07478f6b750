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

	"feishu-relay/internal/redistest"
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

// Any amount of long messages passes a small Redis, whatever it does when it is full and whatever
// it keeps over a restart: each once and in order to a reader that keeps up.
func TestLongMessagesPassASmallRedis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy string
		keeps  []string
	}{
		{"noeviction", []string{"--appendonly", "yes"}},
		{"allkeys-lru", []string{"--save", "1 1"}},
		{"volatile-lru", nil},
		{"allkeys-random", []string{"--appendonly", "yes", "--appendfsync", "no"}},
	} {
		t.Run(tt.policy, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, append([]string{"--maxmemory", "48mb", "--maxmemory-policy", tt.policy}, tt.keeps...)...)
			dir := t.TempDir()
			f := follow(t, open(t, srv.URL(), "a", dir, nil))
			s := &sender{t: t, q: open(t, srv.URL(), "s", dir, nil), reader: f, message: large, oldest: 1}
			s.send(1, 1100)
			s.oldest = 900
			if err := srv.Restart(); err != nil {
				t.Fatal(err)
			}
			s.send(1101, 2200) // 55 MB
			f.has(2200)
			used, limit := s.q.Memory()
			if st := s.q.Stats(); limit != Share(48<<20) || used == 0 || used > limit || st.Capped == 0 {
				t.Errorf("the stream takes %d bytes of %d, and %d entries were trimmed for them", used, limit, st.Capped)
			}
			if n := info(t, rawClient(t, srv), "evicted_keys"); n != "0" {
				t.Errorf("%s keys were evicted", n)
			}
		})
	}
}

// A sidecar that has just started trims nothing before it knows how much memory there is.
func TestStartTrimsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for i := range 2 {
		q := open(t, srv.URL(), fmt.Sprint("s", i), t.TempDir(), nil)
		for from := 0; from < 500; from += 10 { // 12.5 MB
			var lines [][]byte
			for j := range 10 {
				lines = append(lines, large(from+j))
			}
			if _, err := q.Publish(t.Context(), lines, ""); err != nil {
				t.Fatal(err)
			}
		}
		if n := rawClient(t, srv).XLen(t.Context(), q.stream).Val(); n != int64(i+1)*500 {
			t.Errorf("the stream has %d entries after sidecar %d, want %d", n, i, (i+1)*500)
		}
	}
}

func info(t testing.TB, raw *redis.Client, name string) string {
	t.Helper()
	text, err := raw.Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// Where the user may not ask how much memory there is, the stream takes what Redis has left.
func TestFullRedisMakesRoomForMessages(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw := rawClient(t, srv)
	dir := t.TempDir()
	f := follow(t, open(t, srv.URL(), "a", dir, nil))
	s := &sender{t: t, q: open(t, srv.URL(), "s", dir, func(o *Options) { o.MaxBytes = 1 << 30 }), reader: f, message: large, oldest: 1}
	s.send(1, 200)
	fill := bytes.Repeat([]byte{'x'}, 100_000) // another program takes the rest
	for i := range 1000 {
		if err := raw.Set(t.Context(), fmt.Sprint("other", i), fill, 0).Err(); err != nil {
			if !strings.HasPrefix(err.Error(), "OOM") {
				t.Fatal(err)
			}
			break
		}
	}
	s.send(201, 1000)
	f.has(1000)
	if s.q.Stats().Freed == 0 {
		t.Error("Redis was never full: the test shows nothing")
	}
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.oldest = 1000
	s.send(1001, 1100)
	f.has(1100)
}

// A stream that has nothing to trim does not take what Redis has not.
func TestFullRedisRefusesWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "1")
	q := open(t, srv.URL(), "s", t.TempDir(), nil)
	if _, err := q.Publish(t.Context(), lines("s", 1, 1), ""); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("got %v, want out of memory", err)
	}
}
