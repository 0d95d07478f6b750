package redisrelay

import (
	"testing"

	"feishu-relay/internal/test/redistest"
)

// A stream of its own, beside the channel's own and for the same agent: its key and the lines on it are all there is of it on
// Redis, it hears nothing of the channel, and each of the two has a position.
func TestOtherStream(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	sub := raw.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	key, dir := testChannel+":outcomes", t.TempDir()
	small := func(o *Options) { o.Stream, o.MaxLen = key, 100 }
	q := open(t, srv.URL(), "a", dir, small)
	e := listenTo(t, q, true)
	for i := 1; i <= 1000; i += 50 { // with a seq: elsewhere they go on the channel
		publish(t, q, "", lines("a", i, i+49)...)
		e.Want(lines("a", i, i+49)...)
	}
	if keys := raw.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != key {
		t.Errorf("keys: %q, want %q alone", keys, key)
	}
	left := int(raw.XLen(t.Context(), key).Val())
	if left < 100 || left > 400 {
		t.Errorf("the stream has %d entries, want about 100", left)
	}
	late := listenTo(t, open(t, srv.URL(), "b", dir, small), true)
	late.Want(lines("a", 1001-left, 1000)...)

	other := open(t, srv.URL(), "a", dir, nil)
	m := listenTo(t, other, true)
	must(t, raw.Publish(t.Context(), testChannel, foreignLine(1)).Err())
	if got, err := sub.ReceiveMessage(t.Context()); err != nil || got.Payload != string(foreignLine(1)) {
		t.Errorf("on the channel: %v, %v", got, err)
	}
	m.Want(foreignLine(1))
	publish(t, other, "", lines("m", 1, 3)...)
	m.Want(lines("m", 1, 3)...)
	e.Nothing()
	if n := q.Stats().Foreign; n != 0 {
		t.Errorf("%d messages came by the channel", n)
	}
	m.Stop()
	e.Stop()
	publish(t, q, "", lines("a", 1001, 1003)...)
	publish(t, other, "", lines("m", 4, 4)...)
	e, m = listenTo(t, q, true), listenTo(t, other, true)
	e.Want(lines("a", 1001, 1003)...)
	m.Want(lines("m", 4, 4)...)
	for _, q := range []*Queue{q, other} {
		if s := q.Stats(); s.Restarts != 0 || s.Trimmed != 0 {
			t.Errorf("stats %+v", s)
		}
	}
}
