package outcome

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redistest"
)

func openRedis(t *testing.T, url string) *Redis {
	t.Helper()
	s, err := OpenRedis(url, testKey, logger(t))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func rawRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	must(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// passes does all that a store does.
func passes(t *testing.T, url string) {
	t.Helper()
	s := openRedis(t, url)
	eventually(t, "appending", func() bool { return s.Append(t.Context(), lines("a", 1, 3)) == nil })
	e := follow(t, s)
	e.want(lines("a", 1, 3))
	e.caughtUp()
	must(t, s.Append(t.Context(), lines("b", 1, 3)))
	e.want(lines("b", 1, 3))
}

func TestKindsOfRedis(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, "--cluster-enabled", "yes")
		must(t, rawRedis(t, srv.URL()).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		passes(t, "redis+cluster://"+srv.Addr())
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		passes(t, "redis+sentinel://"+redistest.StartSentinel(t, srv, "main").Addr()+"/main")
	})
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		passes(t, redistest.StartUnix(t).URL())
	})
	t.Run("password and database", func(t *testing.T) {
		t.Parallel()
		passes(t, "redis://:pw@"+redistest.Start(t, "--requirepass", "pw").Addr()+"/3")
	})
	t.Run("a user of few rights", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		must(t, rawRedis(t, srv.URL()).Do(t.Context(), "ACL", "SETUSER", "nano", "on", ">pw", "+@all", "~test:*").Err())
		passes(t, "redis://nano:pw@"+srv.Addr())
	})
}

func TestFaultsSayHowToMendThem(t *testing.T) {
	t.Parallel()
	locked, plain := redistest.Start(t, "--requirepass", "hunter2"), redistest.Start(t)
	must(t, rawRedis(t, plain.URL()).Set(t.Context(), testKey, "x", 0).Err())
	for url, says := range map[string]string{
		locked.URL():                        "give it in REDIS_URL",
		"redis://:hunter3@" + locked.Addr(): "refuses",
		"redis+cluster://" + plain.Addr():   "no Cluster",
		"unix:///nonexistent/redis.sock":    "no such file",
		plain.URL():                         "the key " + testKey + " is not a stream",
	} {
		err := openRedis(t, url).Append(t.Context(), lines("a", 1, 2))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "agent") {
			t.Errorf("got %v, want it to say %q and no secret", err, says)
		}
	}
}

// The stream keeps about so many entries; a reader says that these are not all.
func TestStreamIsCapped(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, raw := openRedis(t, srv.URL()), rawRedis(t, srv.URL())
	for first := 0; first < 2*maxEntries; first += 1000 {
		must(t, s.Append(t.Context(), lines("a", first, 1000)))
	}
	if n := raw.XLen(t.Context(), testKey).Val(); n < maxEntries || n > maxEntries+1000 {
		t.Errorf("the stream holds %d entries, want about %d", n, maxEntries)
	}
	e := follow(t, s)
	if e.caughtUp() {
		t.Error("what is left was said to be all")
	}
	e.until(lines("a", 2*maxEntries-1, 1)[0])
}

// Redis comes back with an older state, whose entries lie before the place of
// reading.
func TestOlderStateIsReadAnew(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, raw := openRedis(t, srv.URL()), rawRedis(t, srv.URL())
	must(t, s.Append(t.Context(), lines("a", 1, 3)))
	e := follow(t, s)
	e.want(lines("a", 1, 3))
	must(t, raw.Del(t.Context(), testKey).Err())
	must(t, raw.XAdd(t.Context(), &redis.XAddArgs{Stream: testKey, ID: "5-1", Values: []any{field, lines("b", 1, 1)[0]}}).Err())
	e.want(lines("b", 1, 1))
}
