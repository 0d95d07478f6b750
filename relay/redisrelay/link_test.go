package redisrelay

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// A link that swallows everything and stays "up": the reader notices, shows
// it, and has everything once there is a way again. The bare library on the
// same proxy, in the same run, hears nothing any more: that shows that the fault
// bites.
func TestBlackHole(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	hole := netfault.Start(t, srv.Addr())
	sender := open(t, srv.URL(), "s", t.TempDir(), nil)
	q := open(t, "redis://"+hole.Addr(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)

	naive := redis.NewClient(&redis.Options{Addr: hole.Addr()})
	defer naive.Close()
	sub := naive.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := sub.Channel()

	receipt := publish(t, sender, "", lines("s", 1, 5)...)
	e.want(lines("s", 1, 5)...)
	for range 5 {
		<-heard
	}

	hole.Silence(true)
	receipt = publish(t, sender, receipt, lines("s", 6, 10)...)
	e.until("not connected, and why", func(s relay.Status) bool { return !s.Connected && s.Error != "" })
	if q.Status().Reading {
		t.Error("it claims to read")
	}
	hole.Silence(false)
	publish(t, sender, receipt, lines("s", 11, 15)...)
	e.want(lines("s", 6, 15)...)
	e.until("connected, no error", func(s relay.Status) bool { return s.Connected && s.Reading && s.Error == "" })
	select {
	case m := <-heard:
		t.Errorf("the bare library heard %.40q: the fault does not bite", m.Payload)
	default:
	}
}

// Close must not wait for a dead link.
func TestCloseInABlackHole(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	hole := netfault.Start(t, srv.Addr())
	q := open(t, "redis://"+hole.Addr(), "a", t.TempDir(), func(o *Options) { o.Block = time.Hour })
	e := listenTo(t, q, true)
	hole.Silence(true)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	<-e.ended // hangs for an hour if the blocked read is not ended
}

// Two servers take themselves for the primary, and give out the same id: neither the reader nor the sender who were at
// the one take what the other has for what they know.
func TestSplitBrain(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	raw, path := rawClient(t, srv), netfault.Start(t, srv.Addr())
	sender := open(t, srv.URL(), "s", t.TempDir(), nil)
	e := listenTo(t, open(t, "redis://"+path.Addr(), "a", t.TempDir(), nil), true)
	receipt := publish(t, sender, "", lines("s", 1, 5)...)
	e.want(lines("s", 1, 5)...)
	entries, err := raw.XRange(t.Context(), sender.stream, "-", "+").Result()
	must(t, err)
	path.Silence(true)
	e.until("not connected", func(s relay.Status) bool { return !s.Connected })
	_, err = raw.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Del(t.Context(), sender.stream)
		for i, entry := range entries {
			payload := entry.Values["payload"]
			if i == len(entries)-1 {
				payload = lines("other", 1, 1)[0]
			}
			p.XAdd(t.Context(), &redis.XAddArgs{Stream: sender.stream, ID: entry.ID, Values: []any{"payload", payload}})
		}
		for _, line := range lines("other", 2, 9) {
			p.XAdd(t.Context(), &redis.XAddArgs{Stream: sender.stream, Values: []any{"payload", line}})
		}
		return nil
	})
	must(t, err)
	if _, err := sender.Publish(t.Context(), nil, receipt); !errors.Is(err, relay.ErrForgotten) {
		t.Errorf("the sender is told %v, want %v", err, relay.ErrForgotten)
	}
	path.Silence(false)
	e.skipTo(lines("other", 1, 1)[0])
	e.want(lines("other", 2, 9)...)
}
