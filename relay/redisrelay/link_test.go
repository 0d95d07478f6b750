package redisrelay

import (
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
	e.Want(lines("s", 1, 5)...)
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
	e.Want(lines("s", 6, 15)...)
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
	must(t, q.Close())
	e.Ended() // hangs for an hour if the blocked read is not ended
}
