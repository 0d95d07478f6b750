package redisrelay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
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
	here.Want(lines("s", 1, 30)...)
	gone.Want(lines("s", 1, 30)...)
	gone.Stop()

	srv.Kill()
	here.until("an error", func(s relay.Status) bool { return !s.Connected && s.Error != "" })
	if _, err := sender.Publish(t.Context(), lines("s", 31, 31), receipt); err == nil || errors.Is(err, relay.ErrForgotten) {
		t.Fatalf("got %v while Redis is down, want an error that is not %v", err, relay.ErrForgotten)
	}
	must(t, srv.Restart())
	if _, err := sender.Publish(t.Context(), lines("s", 31, 31), receipt); !errors.Is(err, relay.ErrForgotten) {
		t.Fatalf("got %v, want %v", err, relay.ErrForgotten)
	}
	publish(t, sender, "", lines("s", 1, 40)...)
	here.skipTo(lines("s", 31, 31)[0]) // behind repeats, as it begins anew
	here.Want(lines("s", 32, 40)...)
	back := listenTo(t, away, false)
	for _, d := range back.Want(lines("s", 1, 40)...) {
		if d.History {
			t.Fatal("what came anew is no history")
		}
	}
	if got := here.q.Stats().Reconnects; got == 0 {
		t.Error("no reconnect was counted")
	}
}

// Redis ends, and comes back with what it had: who reads goes on, and who begins meanwhile gets all.
func TestRestartedWithItsData(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	receipt := publish(t, q, "", lines("a", 1, 3)...)
	here := listenTo(t, q, true)
	here.Want(lines("a", 1, 3)...)
	srv.Kill()
	early := listenTo(t, open(t, srv.URL(), "b", t.TempDir(), nil), false) // begins while Redis is away
	early.until("an error", func(s relay.Status) bool { return s.Error != "" })
	must(t, srv.Restart())
	early.Want(lines("a", 1, 3)...)
	relaytest.Eventually(t, "publishing", func() bool {
		_, err := q.Publish(context.Background(), lines("a", 4, 4), receipt)
		return err == nil
	})
	early.Want(lines("a", 4, 4)...)
	here.Want(lines("a", 4, 4)...)
	if got := q.Stats().Restarts; got != 0 {
		t.Errorf("%d restarts of the stream, want none", got)
	}
}

func TestForeignMessageIsHandedOverAtOnce(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	for _, line := range [][]byte{foreignLine(1), []byte("no json"), {}, foreignLine(2)} {
		must(t, raw.Publish(t.Context(), testChannel, line).Err())
		if d := e.Want(line)[0]; d.History {
			t.Error("it is no history")
		}
	}
	if err := raw.Publish(t.Context(), testChannel, lines("a", 7, 7)[0]).Err(); err != nil { // numbered: awaited by the stream
		t.Fatal(err)
	}
	publish(t, q, "", lines("a", 1, 1)...)
	e.Want(lines("a", 1, 1)...)
	if got := q.Stats().Foreign; got != 4 {
		t.Errorf("counted %d, want 4", got)
	}
	e.until("nothing unsettled", func(s relay.Status) bool { return s.Unsettled == 0 })
}

// A handler that stands still must not make foreign messages pile up without end.
func TestForeignFloodIsBounded(t *testing.T) {
	srv := redistest.Start(t)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	const sent = maxForeign + 500
	got, hold := make(chan string, sent), make(chan struct{})
	go func() {
		_ = q.Subscribe(t.Context(), func(_ context.Context, d relay.Delivery) {
			got <- string(d.Line)
			<-hold
			d.Settle()
		})
	}()
	relaytest.Eventually(t, "reading", func() bool { return q.Status().Reading })
	_, err := rawClient(t, srv).Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range sent {
			p.Publish(t.Context(), testChannel, foreignLine(i))
		}
		p.Publish(t.Context(), testChannel, strings.Repeat("x", relay.MaxLine)) // longer than any line
		return nil
	})
	must(t, err)
	relaytest.Eventually(t, "all heard", func() bool { return q.Stats().Foreign == sent+1 })
	// One more may have been on its way to the handler, which has another.
	if got, most := q.Stats().ForeignDropped, int64(sent-maxForeign+1); got < most-2 || got > most {
		t.Errorf("dropped %d, want %d or a little less", got, most)
	}
	close(hold)
	for last := ""; last != string(foreignLine(sent-1)); { // the newest was kept
		select {
		case last = <-got:
		case <-time.After(time.Minute):
			t.Fatal("the newest did not come")
		}
	}
}

func TestTrimmedUnreadIsCounted(t *testing.T) {
	srv := redistest.Start(t)
	small := func(o *Options) { o.MaxLen = 100 }
	sender, q := open(t, srv.URL(), "s", t.TempDir(), small), open(t, srv.URL(), "a", t.TempDir(), small)
	e := listenTo(t, q, true)
	receipt := publish(t, sender, "", lines("s", 1, 10)...)
	e.Want(lines("s", 1, 10)...)
	e.Stop()
	for i := 11; i <= 1010; i += 100 {
		receipt = publish(t, sender, receipt, lines("s", i, i+99)...)
	}
	left := rawClient(t, srv).XLen(t.Context(), q.stream).Val()
	e = listenTo(t, q, true)
	e.Want(lines("s", int(1011-left), 1010)...)
	if got := q.Stats(); got.Trimmed != 1 || got.Restarts != 0 {
		t.Errorf("stats %+v, want that entries were trimmed once", got)
	}
	e.until("no lag", func(s relay.Status) bool { return s.Lag == 0 })
}

func TestJunkInTheStreamIsSkipped(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	for _, values := range [][]any{{"other", "x"}, {"payload", strings.Repeat("x", relay.MaxLine)}} {
		must(t, raw.XAdd(t.Context(), &redis.XAddArgs{Stream: q.stream, Values: values}).Err())
	}
	relaytest.Eventually(t, "both are read", func() bool { return q.Stats().Junk == 2 })
	e.Stop()
	e = listenTo(t, q, true) // which looks at the position
	publish(t, q, "", lines("a", 1, 1)...)
	e.Want(lines("a", 1, 1)...)
	if got := q.Stats(); got.Junk != 2 || got.Restarts != 0 {
		t.Errorf("stats %+v, want 2 of junk", got)
	}
}

// A first start that has to wait for Redis, also over a restart: what is sent meanwhile is news.
func TestFirstStartWhileRedisIsDown(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		srv := redistest.Start(t, "--appendonly", "yes")
		sender := open(t, srv.URL(), "s", t.TempDir(), nil)
		receipt := publish(t, sender, "", lines("s", 1, 5)...)
		srv.Kill()
		q := open(t, srv.URL(), "a", t.TempDir(), nil)
		e := listenTo(t, q, false)
		e.until("an error", func(s relay.Status) bool { return s.Error != "" })
		if restarted {
			e.Stop()
		}
		must(t, srv.Restart())
		publish(t, sender, receipt, lines("s", 6, 10)...)
		if restarted {
			e = listenTo(t, q, false)
		}
		for i, d := range e.Want(lines("s", 1, 10)...) {
			if got, want := d.History, i < 5; got != want {
				t.Errorf("restarted %v, line %d: history is %v, want %v", restarted, i+1, got, want)
			}
		}
	}
}

func TestUnreadableCursorRepeatsRatherThanLoses(t *testing.T) {
	srv := redistest.Start(t)
	dir := t.TempDir()
	q := open(t, srv.URL(), "a", dir, nil)
	e := listenTo(t, q, true)
	publish(t, q, "", lines("a", 1, 3)...)
	e.Want(lines("a", 1, 3)...)
	e.Stop()
	file := filepath.Join(dir, "offsets", "a.redis-nanobot%3Afeishu%3Aoutbound.json")
	must(t, os.WriteFile(file, []byte(`{"id":"torn`), 0o600))
	for _, d := range listenTo(t, q, true).Want(lines("a", 1, 3)...) {
		if d.History {
			t.Error("it was taken for a first start")
		}
	}
}
