package redisrelay

import (
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// hurried has the key of the name written often.
func hurried(q *Queue) *Queue {
	q.beat = 100 * time.Millisecond
	return q
}

func TestTwoSidecarsOfOneName(t *testing.T) {
	srv := redistest.Start(t)
	first := hurried(open(t, srv.URL(), "same", t.TempDir(), nil))
	e := listenTo(t, first, true)
	other := listenTo(t, hurried(open(t, srv.URL(), "other", t.TempDir(), nil)), true)
	second := hurried(open(t, srv.URL(), "same", t.TempDir(), nil))
	e2 := listenTo(t, second, true)
	for _, e := range []*ear{e, e2} {
		e.until("the other one in the status", func(s relay.Status) bool { return s.Connected && strings.Contains(s.Error, "AGENT_NAME") })
	}
	publish(t, second, "", lines("a", 1, 1)...) // it works nevertheless
	e2.skipTo(lines("a", 1, 1)[0])
	e2.Stop()
	e.until("alone again", func(s relay.Status) bool { return s.Error == "" })
	e.Stop()
	raw, key := rawClient(t, srv), testChannel+":agent:same"
	left := raw.Get(t.Context(), key).Val()
	again := hurried(open(t, srv.URL(), "same", t.TempDir(), nil))
	listenTo(t, again, true)
	relaytest.Eventually(t, "its own text", func() bool { return raw.Get(t.Context(), key).Val() != left })
	for _, q := range []*Queue{again, other.q} {
		if s := q.Status(); s.Error != "" {
			t.Errorf("alone, its status is %+v", s)
		}
	}
}
