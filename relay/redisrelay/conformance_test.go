package redisrelay

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

func TestConformance(t *testing.T) {
	srv := redistest.Start(t)
	dir := t.TempDir()
	relaytest.Run(t, relaytest.Features{CanForget: true, Uncounted: redistest.Before(7, 0)}, func(t *testing.T, agent string) relay.Backend {
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

// The user of docs/redis.md may do all that is needed, and needs nothing else.
func TestConformanceOfTheUserInTheDocs(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.StartRestricted(t, "../../docs/redis.md")
	raw, dir := rawClient(t, srv), t.TempDir()
	var at string // the case that the server is empty for
	relaytest.Run(t, relaytest.Features{CanForget: true, Uncounted: redistest.Before(7, 0)}, func(t *testing.T, agent string) relay.Backend {
		if t.Name() != at {
			at = t.Name()
			if err := raw.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		q, err := New(Options{
			URL: srv.RestrictedURL(), Channel: testChannel, Agent: agent, Dir: filepath.Join(dir, filepath.Base(at)), Block: 20 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return q
	})
	q := open(t, srv.RestrictedURL(), "a", t.TempDir(), nil)
	if holder, err := q.Claim(t.Context(), "k", "a", time.Minute); err != nil || holder != "a" {
		t.Errorf("claimed for %q, %v", holder, err)
	}
	if holder, err := q.Claim(t.Context(), "k", "b", time.Minute); err != nil || holder != "a" {
		t.Errorf("claimed for %q, %v", holder, err)
	}
	if _, err := q.Remove(t.Context(), func([]byte) bool { return true }); err != nil {
		t.Error(err)
	}
	srv.Refused(t)
}
