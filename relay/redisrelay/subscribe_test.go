package redisrelay

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// Redis is killed without persistence and comes back empty: the sender is told,
// publishes again, and readers that were there and readers that were away get
// all in order.
func TestKilledWithoutPersistence(t *testing.T) {
	srv := redistest.Start(t)
	sender, dir := open(t, srv.URL(), "sender", t.TempDir(), nil), t.TempDir()
	here := listenTo(t, open(t, srv.URL(), "here", dir, nil), true)
	away := open(t, srv.URL(), "away", dir, nil)
	gone := listenTo(t, away, true)

	receipt := publish(t, sender, "", lines("s", 1, 30)...)
	here.want(lines("s", 1, 30)...)
	gone.want(lines("s", 1, 30)...)
	gone.stop()

	srv.Kill()
	here.until("an error", func(s relayStatus) bool { return !s.Connected && s.Error != "" })
	if _, err := sender.Publish(t.Context(), lines("s", 31, 31), receipt); err == nil || errors.Is(err, relay.ErrForgotten) {
		t.Fatalf("got %v while Redis is down, want an error that is not %v", err, relay.ErrForgotten)
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Publish(t.Context(), lines("s", 31, 31), receipt); !errors.Is(err, relay.ErrForgotten) {
		t.Fatalf("got %v, want %v", err, relay.ErrForgotten)
	}
	publish(t, sender, "", lines("s", 1, 40)...)
	here.skipTo(lines("s", 31, 31)[0]) // behind repeats, as it begins anew
	here.want(lines("s", 32, 40)...)
	back := listenTo(t, away, false)
	for _, d := range back.want(lines("s", 1, 40)...) {
		if d.History {
			t.Fatal("what came anew is no history")
		}
	}
	if got := here.q.Stats().Reconnects; got == 0 {
		t.Error("no reconnect was counted")
	}
}

// Redis comes back with all but its newest entries, as a replica may: what it still has does not come again.
func TestNewestEntriesLost(t *testing.T) {
	srv := redistest.Start(t)
	sender := open(t, srv.URL(), "sender", t.TempDir(), nil)
	receipt := publish(t, sender, "", lines("earlier", 1, 1)...)
	e := listenTo(t, open(t, srv.URL(), "a", t.TempDir(), nil), true)
	e.want(lines("earlier", 1, 1)...)
	var follows atomic.Int64
	follower := open(t, srv.URL(), "", "", nil)
	caughtUp := make(chan struct{})
	go func() {
		_ = follower.Follow(t.Context(), func([]byte) { follows.Add(1) }, func(bool) { close(caughtUp) })
	}()
	<-caughtUp
	one := func(i int) {
		receipt = publish(t, sender, receipt, lines("s", i, i)...)
		e.want(lines("s", i, i)...)
		eventually(t, "followed", func() bool { return follows.Load() == int64(1+i) })
	}
	one(1)
	one(2)
	time.Sleep(relay.PointEvery) // else what follows may be too close to the first line
	for i := range 3 {
		one(3 + i)
	}
	if err := rawClient(t, srv).Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	kept := receipt
	for i := range 3 {
		one(6 + i)
	}
	before := follows.Load()
	srv.Kill()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Publish(t.Context(), lines("s", 9, 9), receipt); !errors.Is(err, relay.ErrForgotten) {
		t.Fatalf("got %v, want %v", err, relay.ErrForgotten)
	}
	publish(t, sender, kept, lines("s", 6, 9)...)
	for i := 3; ; i++ {
		d := e.next()
		if bytes.Equal(d.Line, lines("s", 6, 6)[0]) {
			break
		}
		if d.History || bytes.Equal(d.Line, lines("s", 1, 1)[0]) || bytes.Equal(d.Line, lines("s", 2, 2)[0]) || i > 5 {
			t.Fatalf("%.60s came again, history: %v", d.Line, d.History)
		}
	}
	e.want(lines("s", 7, 9)...)
	eventually(t, "followed", func() bool { return follows.Load() >= before+4 })
	if got := follows.Load() - before; got > 4+3 {
		t.Errorf("%d lines were followed again, want those that were lost, the new one, and at most 3 before", got)
	}
	if s := e.q.Stats(); s.Restarts != 1 || s.Trimmed != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestForeignMessageIsHandedOverAtOnce(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	for _, line := range [][]byte{foreignLine(1), []byte("no json"), {}, foreignLine(2)} {
		if err := raw.Publish(t.Context(), testChannel, line).Err(); err != nil {
			t.Fatal(err)
		}
		if d := e.want(line)[0]; d.History {
			t.Error("it is no history")
		}
	}
	if err := raw.Publish(t.Context(), testChannel, lines("a", 7, 7)[0]).Err(); err != nil { // numbered: awaited by the stream
		t.Fatal(err)
	}
	publish(t, q, "", lines("a", 1, 1)...)
	e.want(lines("a", 1, 1)...)
	if got := q.Stats().Foreign; got != 4 {
		t.Errorf("counted %d, want 4", got)
	}
	e.until("nothing unsettled", func(s relayStatus) bool { return s.Unsettled == 0 })
}

// A handler that stands still must not make foreign messages pile up without end.
func TestForeignFloodIsBounded(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	const sent = maxForeign + 500
	first, last := make(chan struct{}), make(chan struct{})
	hold := make(chan struct{})
	handed := 0
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
			if handed++; handed == 1 {
				close(first)
				<-hold
			}
			d.Settle()
			if string(d.Line) == string(foreignLine(sent)) {
				close(last)
			}
		})
	}()
	eventually(t, "reading", func() bool { return q.Status().Reading })
	if err := raw.Publish(t.Context(), testChannel, foreignLine(0)).Err(); err != nil {
		t.Fatal(err)
	}
	<-first // the handler has it, and stands
	if _, err := raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range sent {
			p.Publish(t.Context(), testChannel, foreignLine(i+1))
		}
		p.Publish(t.Context(), testChannel, strings.Repeat("x", relay.MaxLine)) // longer than any line
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all heard", func() bool { return q.Stats().Foreign == sent+2 })
	// One more may have been on its way to the handler.
	if got, most := q.Stats().ForeignDropped, int64(sent-maxForeign+1); got != most && got != most-1 {
		t.Errorf("dropped %d, want %d or one less", got, most)
	}
	close(hold)
	<-last // the newest was kept
	cancel()
	<-ended
	if handed > maxForeign+2 {
		t.Errorf("handed over %d of %d", handed, sent)
	}
}

func TestTrimmedUnreadIsCounted(t *testing.T) {
	if redistest.Before(7, 0) {
		t.Skip("before 7.0 a stream does not count what was added to it")
	}
	srv := redistest.Start(t)
	small := func(o *Options) { o.MaxLen = 100 }
	sender, q := open(t, srv.URL(), "s", t.TempDir(), small), open(t, srv.URL(), "a", t.TempDir(), small)
	e := listenTo(t, q, true)
	receipt := publish(t, sender, "", lines("s", 1, 10)...)
	e.want(lines("s", 1, 10)...)
	e.stop()
	for i := 11; i <= 1010; i += 100 {
		receipt = publish(t, sender, receipt, lines("s", i, i+99)...)
	}
	left := rawClient(t, srv).XLen(t.Context(), q.stream).Val()
	e = listenTo(t, q, true)
	e.want(lines("s", int(1011-left), 1010)...)
	if got, want := q.Stats().Trimmed, 1000-left; got != want {
		t.Errorf("counted %d trimmed entries, want %d", got, want)
	}
	if got := q.Stats().Restarts; got != 0 {
		t.Errorf("took a trimmed stream for another one, %d times", got)
	}
	e.until("no lag", func(s relayStatus) bool { return s.Lag == 0 })
}

// The stream is replaced without a break of the connection.
func TestStreamReplacedUnderTheReader(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	publish(t, q, "", lines("a", 1, 3)...)
	e.want(lines("a", 1, 3)...)
	if err := raw.Del(t.Context(), q.stream).Err(); err != nil {
		t.Fatal(err)
	}
	// Ids before the cursor, as from a server whose clock is behind.
	for i, line := range lines("b", 1, 3) {
		if err := raw.XAdd(t.Context(), &redis.XAddArgs{
			Stream: q.stream, ID: redislink.EntryID{MS: uint64(i + 1)}.String(), Values: []any{"payload", line},
		}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	e.want(lines("b", 1, 3)...)
	if got := q.Stats().Restarts; got == 0 {
		t.Error("no restart was counted")
	}
}

func TestJunkInTheStreamIsSkipped(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	for _, values := range [][]any{{"other", "x"}, {"payload", strings.Repeat("x", relay.MaxLine)}} {
		if err := raw.XAdd(t.Context(), &redis.XAddArgs{Stream: q.stream, Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, q, "", lines("a", 1, 1)...)
	e.want(lines("a", 1, 1)...)
	if got := q.Stats().Junk; got != 2 {
		t.Errorf("counted %d, want 2", got)
	}
}

// A first start that has to wait for Redis: what is sent meanwhile is news.
func TestFirstStartWhileRedisIsDown(t *testing.T) {
	srv := redistest.Start(t, "--appendonly", "yes")
	sender, dir := open(t, srv.URL(), "s", t.TempDir(), nil), t.TempDir()
	receipt := publish(t, sender, "", lines("s", 1, 5)...)
	srv.Kill()
	q := open(t, "redis://"+netfault.Start(t, srv.Addr()).Addr(), "a", dir, nil) // whose back end is missing
	e := listenTo(t, q, false)
	e.until("an error", func(s relayStatus) bool { return s.Error != "" })
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	publish(t, sender, receipt, lines("s", 6, 10)...)
	for i, d := range e.want(lines("s", 1, 10)...) {
		if got, want := d.History, i < 5; got != want {
			t.Errorf("line %d: history is %v, want %v", i+1, got, want)
		}
	}
}

// The same for one that was restarted before Redis was there.
func TestFirstStartIsRestartedWhileRedisIsDown(t *testing.T) {
	verify.Only(t)
	srv := redistest.Start(t, "--appendonly", "yes")
	sender, dir := open(t, srv.URL(), "s", t.TempDir(), nil), t.TempDir()
	receipt := publish(t, sender, "", lines("s", 1, 5)...)
	srv.Kill()
	// When the waiting began is known as exactly as a call to Redis takes, on Redis' clock.
	time.Sleep(2 * time.Second)
	q := open(t, srv.URL(), "a", dir, nil)
	e := listenTo(t, q, false)
	e.until("an error", func(s relayStatus) bool { return s.Error != "" })
	e.stop()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	publish(t, sender, receipt, lines("s", 6, 10)...)
	e = listenTo(t, q, false)
	for i, d := range e.want(lines("s", 1, 10)...) {
		if got, want := d.History, i < 5; got != want {
			t.Errorf("line %d: history is %v, want %v", i+1, got, want)
		}
	}
	e.stop()
	left, err := filepath.Glob(filepath.Join(dir, "offsets", "*"+waitingFile))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

func TestUnreadableCursorRepeatsRatherThanLoses(t *testing.T) {
	srv := redistest.Start(t)
	dir := t.TempDir()
	q := open(t, srv.URL(), "a", dir, nil)
	e := listenTo(t, q, true)
	publish(t, q, "", lines("a", 1, 3)...)
	e.want(lines("a", 1, 3)...)
	e.stop()
	file := filepath.Join(dir, "offsets", "a.redis-nanobot%3Afeishu%3Aoutbound.json")
	if err := os.WriteFile(file, []byte(`{"id":"torn`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range listenTo(t, q, true).want(lines("a", 1, 3)...) {
		if d.History {
			t.Error("it was taken for a first start")
		}
	}
}

func TestFileNamesStayShortAndApart(t *testing.T) {
	seen := map[string]bool{}
	for _, pair := range [][2]string{
		{"a", "b"}, {strings.Repeat("智", 100), strings.Repeat("能", 66)}, {strings.Repeat("智", 100), strings.Repeat("能", 65)},
		{"../x", "../../y"},
	} {
		name := fileName(pair[0], pair[1])
		if len(name) > maxFileName || strings.Contains(name, "/") || seen[name] {
			t.Errorf("got the name %q", name)
		}
		seen[name] = true
	}
}
