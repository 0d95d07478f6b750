package redisrelay

import (
	"context"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
)

// followed runs a Follow until the test ends.
func followed(t *testing.T, q *Queue) (got chan string, caught chan bool) {
	t.Helper()
	got, caught = make(chan string, 1<<16), make(chan bool, 10)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := q.Follow(ctx, func(line []byte) { got <- string(line) }, func(whole bool) { caught <- whole }); err != nil {
			t.Errorf("follow: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return got, caught
}

func wantText(t *testing.T, got chan string, want ...[]byte) {
	t.Helper()
	for i, line := range want {
		select {
		case text := <-got:
			if text != string(line) {
				t.Fatalf("line %d is %.80s, want %.80s", i+1, text, line)
			}
		case <-time.After(patience):
			t.Fatalf("line %d did not come", i+1)
		}
	}
}

// A stream of its own: its key and the lines on it are all there is on Redis.
func TestOtherStream(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	sub := raw.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := testChannel + ":outcomes"
	dir := t.TempDir()
	small := func(o *Options) { o.Stream, o.MaxLen = key, 100 }
	q := open(t, srv.URL(), "a", dir, small)
	got, caught := followed(t, q)
	if whole := <-caught; !whole {
		t.Error("an empty stream is whole")
	}
	for i := 1; i <= 1000; i += 50 { // with a seq: elsewhere they go on the channel
		publish(t, q, "", lines("a", i, i+49)...)
		wantText(t, got, lines("a", i, i+49)...)
	}
	if keys := raw.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != key {
		t.Errorf("keys: %q, want %q alone", keys, key)
	}
	if n := raw.XLen(t.Context(), key).Val(); n < 100 || n > 400 {
		t.Errorf("the stream has %d entries, want about 100", n)
	}
	if err := raw.Publish(t.Context(), testChannel, "the end").Err(); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "the end" {
		t.Errorf("on the channel: %v, %v", m, err)
	}
	_, caught = followed(t, open(t, srv.URL(), "b", dir, small))
	if whole := <-caught; whole {
		t.Error("a trimmed stream is not whole")
	}

	must(t, raw.FlushAll(t.Context()).Err()) // what was shared is lost; who follows goes on with what comes
	flushed := raw.Time(t.Context()).Val().UnixMilli()
	eventually(t, "the next millisecond, for entries with other ids", func() bool {
		return raw.Time(t.Context()).Val().UnixMilli() > flushed
	})
	publish(t, q, "", lines("a", 2000, 2002)...)
	wantText(t, got, lines("a", 2000, 2002)...)
}

// Redis ends, and comes back with what it had.
func TestFollowOverARestart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	publish(t, q, "", lines("a", 1, 3)...)
	got, _ := followed(t, q)
	wantText(t, got, lines("a", 1, 3)...)
	srv.Kill()
	early, caught := followed(t, q) // begins while Redis is away
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	wantText(t, early, lines("a", 1, 3)...)
	<-caught
	eventually(t, "publishing", func() bool {
		_, err := q.Publish(context.Background(), lines("a", 4, 4), "")
		return err == nil
	})
	wantText(t, early, lines("a", 4, 4)...)
	wantText(t, got, lines("a", 4, 4)...)
}
