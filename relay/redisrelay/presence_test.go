package redisrelay

import (
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
)

// hurried makes the presence key's times short.
func hurried(q *Queue) *Queue {
	q.presence.life, q.presence.every = time.Second, 200*time.Millisecond
	return q
}

func TestRivalIsNoticedAndForgotten(t *testing.T) {
	srv := redistest.Start(t)
	one, two := t.TempDir(), t.TempDir()
	first := hurried(open(t, srv.URL(), "same", one, nil))
	e := listenTo(t, first, true)
	key := testChannel + ":agent:same"
	raw := rawClient(t, srv)
	eventually(t, "the key", func() bool { return raw.Exists(t.Context(), key).Val() == 1 })
	other := listenTo(t, hurried(open(t, srv.URL(), "other", one, nil)), true) // another name: no rival

	for name, dir := range map[string]string{"its own folder": two, "the same folder": one} {
		second := hurried(open(t, srv.URL(), "same", dir, nil))
		e2 := listenTo(t, second, true)
		eventually(t, "a rival, in "+name, second.Rival)
		e2.until("the rival in the status", func(s relayStatus) bool { return s.Connected && strings.Contains(s.Error, "AGENT_NAME") })
		publish(t, second, "", lines("a", 1, 1)...) // it works nevertheless
		e2.skipTo(lines("a", 1, 1)[0])
		e2.stop()
		if second.Rival() {
			t.Error("a rival after its end")
		}
	}
	if first.Rival() || other.q.Rival() {
		t.Error("the holder of the name, or another name, has a rival")
	}
	before := raw.Get(t.Context(), key).Val()
	e.stop()
	again := listenTo(t, hurried(open(t, srv.URL(), "same", one, nil)), true)
	eventually(t, "the key again", func() bool { return raw.PTTL(t.Context(), key).Val() > 0 })
	if got := raw.Get(t.Context(), key).Val(); got != before {
		t.Errorf("after a restart the instance is %q, want %q", got, before)
	}
	again.stop()
}
