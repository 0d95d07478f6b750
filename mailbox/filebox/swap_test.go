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
	const rounds = 400
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 0)))
	for n := range rounds {
		wait := rand.N(600 * time.Microsecond)
		var both sync.WaitGroup
		both.Go(func() {
			var all map[string]any
			for end := time.Now().Add(wait); time.Now().Before(end); { // a sleep would be too coarse
			}
			data, err := os.ReadFile(registryOf(dir))
			must(t, err)
			must(t, json.Unmarshal(data, &all))
			all["stranger"] = map[string]any{"beat": n, "last_heartbeat": time.Now().Format(time.RFC3339Nano)}
			data, err = json.Marshal(all)
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
