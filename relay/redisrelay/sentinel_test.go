//go:build unix

package redisrelay

import (
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// Three Sentinels replace a primary that is killed under load, with writes that its replica never
// got, and make it a replica when it returns with these: nothing is lost, and the order stays.
func TestThreeSentinels(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	ctx := t.Context()
	w := redistest.StartWatched(t, "--appendonly", "yes")
	primary, replica, url := w.Primary, w.Replica, w.URL()
	f := follow(t, open(t, url, "a", t.TempDir(), nil))
	all := func(o *Options) { o.MaxLen = 1_000_000 } // the stream keeps all that is sent
	l := startLoad(&sender{t: t, q: open(t, url, "s", t.TempDir(), all), reader: f, message: small, oldest: 1})
	f.has(200)

	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	raw := rawClient(t, primary)
	if err := raw.ClientKillByFilter(ctx, "TYPE", "replica").Err(); err != nil { // else the kernel takes more for the replica
		t.Fatal(err)
	}
	f.has(f.upTo.Load() + 200) // accepted and read, and only in the primary
	primary.Kill()
	unreplicated := f.upTo.Load()
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "another primary", func() bool { return w.Serving() == replica.Addr() })
	served := time.Now()
	f.has(unreplicated + 2*ahead)
	t.Logf("another primary %s after the kill; messages passed %s after that",
		served.Sub(began).Round(time.Millisecond), time.Since(served).Round(time.Millisecond))

	if err := primary.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old primary is a replica", func() bool {
		text, err := raw.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")
	})
	f.has(f.upTo.Load() + 200)
	sent := l.finish()
	if l.s.forgotten.Load() == 0 {
		t.Error("the new primary lacked nothing: the test shows nothing")
	}
	replica.AwaitReplicas(t, 1)
	for _, srv := range []*redistest.Server{primary, replica} {
		entries, err := rawClient(t, srv).XRange(ctx, testChannel+":log", "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, e := range entries {
			text, _ := e.Values["payload"].(string)
			there[text] = true
		}
		for i := 1; i <= int(sent); i++ {
			if !there[string(small(i))] {
				t.Fatalf("%s lacks message %d of %d", srv.Addr(), i, sent)
			}
		}
	}
	t.Logf("%d messages, of which %d were read before the failover", sent, unreplicated)
}
