package filebox_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"feishu-relay/mailbox/mailboxtest"
)

// A program that locks nothing and rewrites the registry in the very moment of
// ours loses nothing by us.
func TestRewriteInTheSameMoment(t *testing.T) {
	for name, before := range map[string]string{"a registry": "", "a broken registry": `{"us": `} {
		t.Run(name, func(t *testing.T) { rewriteInTheSameMoment(t, before) })
	}
}

// rewriteInTheSameMoment writes before into the registry, unless that is empty, before each round.
func rewriteInTheSameMoment(t *testing.T, before string) {
	const rounds = 200
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 0)))
	for n := range rounds {
		all := map[string]any{}
		if before == "" {
			data, err := os.ReadFile(registryOf(dir))
			must(t, err)
			must(t, json.Unmarshal(data, &all))
		} else {
			rewrite(t, dir, before)
			long := time.Now().Add(-time.Hour) // nobody is writing it any more
			must(t, os.Chtimes(registryOf(dir), long, long))
		}
		wait := rand.N(600 * time.Microsecond)
		var both sync.WaitGroup
		both.Go(func() {
			for end := time.Now().Add(wait); time.Now().Before(end); { // a sleep would be too coarse
			}
			all["stranger"] = map[string]any{"beat": n, "last_heartbeat": time.Now().Format(time.RFC3339Nano)}
			data, err := json.Marshal(all)
			must(t, err)
			rewrite(t, dir, string(data))
		})
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", n)))
		both.Wait()
		if got := beats(t, dir); got["stranger"] != n {
			t.Fatalf("round %d: of the stranger there is %s", n, fmt.Sprint(got))
		}
	}
}
