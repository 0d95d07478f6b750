package redisrelay

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// conforms runs the suite on a server that is emptied for each case.
func conforms(t *testing.T, url string, raw *redis.Client) {
	dir := t.TempDir()
	var at string
	relaytest.Run(t, relaytest.Features{CanForget: true}, func(t *testing.T, agent string) relay.Backend {
		if t.Name() != at {
			at = t.Name()
			must(t, raw.FlushAll(t.Context()).Err())
		}
		return open(t, url, agent, filepath.Join(dir, filepath.Base(at)), func(o *Options) { o.Block = 20 * time.Millisecond })
	})
}

func TestConformance(t *testing.T) {
	srv := redistest.Start(t)
	conforms(t, srv.URL(), rawClient(t, srv))
}

// The user of docs/redis.md may do all that is needed, and needs nothing else.
func TestConformanceOfTheUserInTheDocs(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.StartRestricted(t, "../../docs/redis.md")
	conforms(t, srv.RestrictedURL(), rawClient(t, srv))
	q := open(t, srv.RestrictedURL(), "a", t.TempDir(), nil)
	if _, err := q.Remove(t.Context(), func([]byte) bool { return true }); err != nil {
		t.Error(err)
	}
	srv.Refused(t)
}
