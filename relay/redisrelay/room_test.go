package redisrelay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
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

// Any amount of long messages passes a small Redis, whatever it does when it is full and whatever
// it keeps over a restart: each once and in order to a reader that keeps up.
func TestLongMessagesPassASmallRedis(t *testing.T) {
	t.Parallel()
	policies := []struct {
		policy string
		keeps  []string
	}{
		{"noeviction", []string{"--appendonly", "yes"}},
		{"allkeys-lru", []string{"--save", "1 1"}},
		{"volatile-lru", nil},
		{"allkeys-random", []string{"--appendonly", "yes", "--appendfsync", "no"}},
		{"allkeys-lfu", nil},
		{"volatile-lfu", []string{"--save", "1 1"}},
		{"volatile-random", nil},
		{"volatile-ttl", nil},
	}
	if os.Getenv("FAULT_ROUNDS") == "" {
		policies = policies[:4]
	}
	for _, tt := range policies {
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

// In a Redis that another program filled, old messages make room for new ones.
func TestFullRedisMakesRoomForMessages(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw := rawClient(t, srv)
	var logged bytes.Buffer
	f := follow(t, open(t, srv.URL(), "a", t.TempDir(), nil))
	q := open(t, srv.URL(), "s", t.TempDir(), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	s := &sender{t: t, q: q, reader: f, message: large, oldest: 1}
	for i := 1; i <= 200; i++ {
		old := &redis.XAddArgs{Stream: q.stream, ID: fmt.Sprint(i, "-1"), Values: []any{"payload", large(i)}} // of 1970
		if err := raw.XAdd(t.Context(), old).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f.has(200)
	fill(t, raw)
	s.send(201, 350)
	f.has(350)
	if st := q.Stats(); st.Freed == 0 || raw.XLen(t.Context(), q.stream).Val() < 150 {
		t.Errorf("%d entries were trimmed, more than have been added or none", st.Freed)
	}
	if n := strings.Count(logged.String(), "out of memory"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged.String())
	}
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.oldest = 350
	s.send(351, 400)
	f.has(400)
}

// Messages that a reader may not have read yet make no room: the sender keeps the new one, and publishes it later.
func TestFullRedisKeepsNewMessages(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw := rawClient(t, srv)
	dir := t.TempDir()
	f := follow(t, open(t, srv.URL(), "a", dir, nil))
	s := &sender{t: t, q: open(t, srv.URL(), "s", dir, nil), reader: f, message: large, oldest: 1}
	// One that is old and too small, and one of the future: what follows it has its time, and stays new.
	for _, id := range []string{"1-1", "99999999999999-1"} {
		entry := &redis.XAddArgs{Stream: s.q.stream, ID: id, Values: []any{"payload", "not a message"}}
		if err := raw.XAdd(t.Context(), entry).Err(); err != nil {
			t.Fatal(err)
		}
	}
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
	if n := raw.XLen(t.Context(), s.q.stream).Val(); n != 202 || s.q.Stats().Freed != 0 {
		t.Errorf("%d of 202 entries are left; stats %+v", n, s.q.Stats())
	}
	most("48mb")
	if err := raw.Del(t.Context(), "other0", "other1", "other2").Err(); err != nil {
		t.Fatal(err)
	}
	s.send(201, 250)
	f.has(250)
}

// An INFO that fails once is asked again, and nothing is trimmed for it.
func TestLostAnswerTrimsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	var asked atomic.Int64
	addr := withoutMemory(t, srv, func() bool { return asked.Add(1) == 1 })
	full := open(t, srv.URL(), "old", t.TempDir(), func(o *Options) { o.MaxBytes = unlimitedBytes })
	q := open(t, "redis://"+addr, "s", t.TempDir(), nil)
	q.presence.every = time.Millisecond
	add := func(q *Queue, n int) {
		for range n {
			var lines [][]byte
			for i := range 40 { // 1 MB
				lines = append(lines, large(i))
			}
			publish(t, q, "", lines...)
		}
	}
	add(full, 20)
	add(q, 4)
	if n := raw.XLen(t.Context(), q.stream).Val(); n != 24*40 {
		t.Errorf("the stream has %d entries, want %d", n, 24*40)
	}
	eventually(t, "the limit, which is asked for again", func() bool {
		publish(t, q, "", small(1))
		_, limit := q.Memory()
		return limit == unlimitedBytes && asked.Load() == 2
	})
}

// withoutMemory passes everything on to a server but the questions for its memory that fail.
func withoutMemory(t *testing.T, srv *redistest.Server, fails func() bool) (addr string) {
	t.Helper()
	return listener(t, func(client io.ReadWriteCloser) {
		defer client.Close()
		server, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			return
		}
		defer server.Close()
		var answers sync.WaitGroup
		defer answers.Wait()
		answers.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		defer server.Close()
		for buf := make([]byte, 64<<10); ; {
			n, err := client.Read(buf)
			if err != nil || bytes.Contains(buf[:n], []byte(infoScript.Hash())) && fails() {
				return
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

// Without an answer Redis is not asked again with every message.
func TestUnansweredInfoIsNotAskedWithEachMessage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var asked atomic.Int64
	addr := withoutMemory(t, srv, func() bool { asked.Add(1); return true })
	q := open(t, "redis://"+addr, "s", t.TempDir(), nil)
	q.presence.every = time.Hour
	for i := range 5 {
		publish(t, q, "", small(i))
		eventually(t, "the question", func() bool { return asked.Load() > 0 })
	}
	_ = q.Close() // waits for it
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for 5 messages", n)
	}
}

// Publishing does not wait until Redis has told its memory and that is logged.
func TestPublishDoesNotWaitForInfo(t *testing.T) {
	t.Parallel()
	srv := startNearlyFull(t)
	reached, leave := make(chan struct{}), make(chan struct{})
	q := open(t, srv.URL(), "s", t.TempDir(), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("redis is nearly full")) {
				close(reached)
				<-leave
			}
			return len(p), nil
		}), nil))
	})
	defer close(leave)
	published := make(chan error, 1)
	go func() {
		for i := range 3 {
			if _, err := q.Publish(context.Background(), [][]byte{small(i)}, ""); err != nil {
				published <- err
				return
			}
			<-reached
		}
		published <- nil
	}()
	select {
	case err := <-published:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("publishing waits")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Where Redis refuses to tell how much memory there is, a stream takes little.
func TestRefusedInfo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--rename-command", "INFO", "hidden")
	q := open(t, srv.URL(), "s", t.TempDir(), nil)
	publish(t, q, "", small(1))
	eventually(t, "the limit", func() bool { _, limit := q.Memory(); return limit == unknownBytes })
	for range 24 {
		var lines [][]byte
		for i := range 40 {
			lines = append(lines, large(i))
		}
		publish(t, q, "", lines...)
	}
	if used, limit := q.Memory(); limit != unknownBytes || used > limit || q.Stats().Capped == 0 {
		t.Errorf("the stream takes %d bytes of %d; stats %+v", used, limit, q.Stats())
	}
}

// The newest messages stay, however little a stream may take.
func TestLimitLeavesTheNewest(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	q := open(t, srv.URL(), "s", t.TempDir(), func(o *Options) { o.MaxBytes = 64 })
	for i := range 40 {
		publish(t, q, "", lines("s", i+1, i+1)...)
	}
	if n := rawClient(t, srv).XLen(t.Context(), q.stream).Val(); n < 16 || q.Stats().Capped == 0 {
		t.Errorf("%d entries are left of 40; stats %+v", n, q.Stats())
	}
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

// A Redis that others fill is reported before it is full, whatever the stream takes, also with REDIS_MAX_BYTES
// and by a sidecar that only reads.
func TestNearlyFullRedisIsReported(t *testing.T) {
	t.Parallel()
	srv := startNearlyFull(t)
	for name, use := range map[string]func(*testing.T, *Queue){
		"publishes": func(t *testing.T, q *Queue) { publish(t, q, "", small(1)) },
		"reads":     func(t *testing.T, q *Queue) { listenTo(t, q, true) },
	} {
		for _, limit := range []int64{0, 4 << 20} {
			if limit > 0 && redistest.Before(7, 0) {
				continue // it keeps sidecars from asking
			}
			t.Run(fmt.Sprint(name, " ", limit), func(t *testing.T) {
				var logged syncBuffer
				q := open(t, srv.URL(), "s", t.TempDir(), func(o *Options) {
					o.MaxBytes, o.Logger = limit, slog.New(slog.NewTextHandler(&logged, nil))
				})
				use(t, q)
				eventually(t, "the warning", func() bool { return strings.Contains(logged.String(), `msg="redis is nearly full"`) })
				if used, most := q.RedisMemory(); most != 48<<20 || used < most/10*9 || used > most {
					t.Errorf("%d of %d bytes are used", used, most)
				}
				if _, most := q.Memory(); limit != 0 && most != limit {
					t.Errorf("the stream may take %d bytes, want %d", most, limit)
				}
			})
		}
	}
}

// startNearlyFull starts a Redis of 48 MB that others have filled nearly.
func startNearlyFull(t *testing.T) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw := rawClient(t, srv)
	for i := range 43 {
		if err := raw.Set(t.Context(), fmt.Sprint("other", i), bytes.Repeat([]byte{'x'}, 1_000_000), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A user without the right to INFO leaves nothing in ACL LOG, and the memory is not known.
func TestInfoIsNotAskedWithoutTheRight(t *testing.T) {
	if redistest.Before(7, 0) {
		t.Skip("before 7.0 nothing but the question tells whether it may be asked")
	}
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	if err := raw.ACLSetUser(t.Context(), "joe", "on", ">pw", "~*", "&*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	q := open(t, strings.Replace(srv.URL(), "://", "://joe:pw@", 1), "s", t.TempDir(), nil)
	publish(t, q, "", small(1))
	eventually(t, "the limit", func() bool { _, limit := q.Memory(); return limit == unknownBytes })
	srv.Refused(t)
	if used, _ := q.RedisMemory(); used != 0 {
		t.Errorf("%d bytes are used", used)
	}
}
