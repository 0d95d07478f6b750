//go:build unix

package redisrelay

import (
	"testing"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// Redis stands still (SIGSTOP): connections are taken by the kernel and
// nobody answers.
func TestStalledRedis(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	sender := open(t, srv.URL(), "s", t.TempDir(), nil)
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	receipt := publish(t, sender, "", lines("s", 1, 5)...)
	e.want(lines("s", 1, 5)...)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	e.until("not connected, and why", func(s relay.Status) bool { return !s.Connected && s.Error != "" })
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	publish(t, sender, receipt, lines("s", 6, 10)...)
	e.want(lines("s", 6, 10)...)
}
