//go:build unix

package redisrelay

import (
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay/relaytest"
)

// Three Sentinels replace a primary that is killed under load, with writes that its replica never
// got, and make it a replica when it returns with these: nothing is lost, and the order stays.
func TestThreeSentinels(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	ctx := t.Context()
	w := redistest.StartWatched(t, "--appendonly", "yes")
	primary, replica := w.Primary, w.Replica
	tr := startTraffic(t, w.URL(), testChannel)
	tr.more(100)

	must(t, replica.Pause())
	raw := rawClient(t, primary)
	must(t, raw.ClientKillByFilter(ctx, "TYPE", "replica").Err()) // else the kernel takes more for the replica
	tr.more(100)                                                  // accepted and read, and only in the primary
	primary.Kill()
	must(t, replica.Resume())
	began := time.Now()
	relaytest.Eventually(t, "another primary", func() bool { return w.Serving() == replica.Addr() })
	served := time.Now()
	tr.more(20)
	t.Logf("another primary %s after the kill; messages passed %s after that",
		served.Sub(began).Round(time.Millisecond), time.Since(served).Round(time.Millisecond))

	must(t, primary.Restart())
	relaytest.Eventually(t, "the old primary is a replica", func() bool {
		text, err := raw.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")
	})
	tr.more(100)
	tr.finish()
	if tr.sent.forgotten.Load() == 0 {
		t.Error("the new primary lacked nothing: the test shows nothing")
	}
	replica.AwaitReplicas(t, 1)
	for _, srv := range []*redistest.Server{primary, replica} {
		entries, err := rawClient(t, srv).XRange(ctx, testChannel+":log", "-", "+").Result()
		must(t, err)
		there := map[any]bool{}
		for _, e := range entries {
			there[e.Values["payload"]] = true
		}
		for i := 1; i <= tr.sent.accepted; i++ {
			if !there[numberedLine(i)] {
				t.Fatalf("%s lacks message %d of %d", srv.Addr(), i, tr.sent.accepted)
			}
		}
	}
}
