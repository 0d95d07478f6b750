package redisrelay

import (
	"strings"
	"testing"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

func TestStatusSaysHowToMend(t *testing.T) {
	plain, locked := redistest.Start(t), redistest.Start(t, "--requirepass", "hunter2")
	tests := []struct{ name, url, says string }{
		{"no password given", locked.URL(), "give it in REDIS_URL"},
		{"wrong password", "redis://:hunter3@" + locked.Addr(), "refuses"},
		{"no such database", plain.URL() + "/99", "database"},
		{"TLS not spoken", "rediss://" + plain.Addr(), "TLS"},
		{"no cluster", "redis+cluster://" + plain.Addr(), "not a Cluster"},
		{"nobody there", "unix:///nonexistent/redis.sock", "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := open(t, tt.url, "a", t.TempDir(), nil)
			e := listenTo(t, q, false)
			relaytest.Eventually(t, "an error in the status", func() bool { return q.Status().Error != "" })
			e.until("the hint", func(s relay.Status) bool { return strings.Contains(s.Error, tt.says) && !s.Connected && !s.Reading })
			_, err := q.Publish(t.Context(), lines("a", 1, 1), "")
			if err == nil {
				t.Fatal("published")
			}
			for _, text := range []string{err.Error(), q.Status().Error} {
				if strings.Contains(text, "hunter") || strings.Contains(text, "line 1") {
					t.Errorf("quotes a secret or a message: %s", text)
				}
			}
		})
	}
}

func TestNotARedis(t *testing.T) {
	q := open(t, redistest.NotRedis(t), "a", t.TempDir(), nil)
	listenTo(t, q, false).until("the hint", func(s relay.Status) bool { return strings.Contains(s.Error, "not a redis") })
}

func TestKeyOfAnotherTypeIsNamed(t *testing.T) {
	srv := redistest.Start(t)
	must(t, rawClient(t, srv).Set(t.Context(), testChannel+":log", "x", 0).Err())
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	if _, err := q.Publish(t.Context(), lines("a", 1, 1), ""); err == nil || !strings.Contains(err.Error(), "not a stream") {
		t.Errorf("got %v, want it to say that the key is not a stream", err)
	}
	listenTo(t, q, false).until("the hint", func(s relay.Status) bool { return strings.Contains(s.Error, "not a stream") })
}
