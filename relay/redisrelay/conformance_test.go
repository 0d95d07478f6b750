package redisrelay

import (
	"log/slog"
	"testing"
	"time"

	"feishu-relay/internal/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

func TestConformance(t *testing.T) {
	srv := redistest.Start(t)
	dir := t.TempDir()
	relaytest.Run(t, relaytest.Features{CanForget: true}, func(t *testing.T, agent string) relay.Backend {
		q, err := New(Options{
			URL: srv.URL(), Channel: t.Name(), Agent: agent, Dir: dir, Block: 20 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return q
	})
}
