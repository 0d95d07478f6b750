package filebox_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

// What another program wrote from base, and we replaced, goes into what stands
// there now; entries that it only carried along do not.
func TestMerge(t *testing.T) {
	for name, tt := range map[string]struct{ base, theirs, now, want string }{
		"its own beat":                  {`{"x":{"last_heartbeat":1}}`, `{"x":{"last_heartbeat":2}}`, `{"x":{"last_heartbeat":1},"us":{}}`, `{"x":{"last_heartbeat":2},"us":{}}`},
		"a new agent":                   {`{}`, `{"x":{}}`, `{"us":{}}`, `{"us":{},"x":{}}`},
		"an old entry carried along":    {`{"y":{"last_heartbeat":5}}`, `{"y":{"last_heartbeat":4}}`, `{"y":{"last_heartbeat":5}}`, `{"y":{"last_heartbeat":5}}`},
		"an older beat than stands now": {`{"x":{"last_heartbeat":1}}`, `{"x":{"last_heartbeat":2}}`, `{"x":{"last_heartbeat":3}}`, `{"x":{"last_heartbeat":3}}`},
		"an entry it dropped":           {`{"x":{"last_heartbeat":1}}`, `{}`, `{"x":{"last_heartbeat":1}}`, `{"x":{"last_heartbeat":1}}`},
		"no change":                     {`{"x":{}}`, `{"x":{}}`, `{"x":{"last_heartbeat":0}}`, `{"x":{"last_heartbeat":0}}`},
		"a change without a beat":       {`{"x":{"s":1}}`, `{"x":{"s":2}}`, `{"x":{"s":1}}`, `{"x":{"s":2}}`},
		"an entry that became no card":  {`{"x":{"last_heartbeat":1}}`, `{"x":null}`, `{"x":{"last_heartbeat":1}}`, `{"x":{"last_heartbeat":1}}`},
		"a card that was none":          {`{"x":null}`, `{"x":{}}`, `{"x":null}`, `{"x":{}}`},
	} {
		got := filebox.Merge(tt.base, tt.theirs, tt.now)
		want, ok := filebox.Reformat([]byte(tt.want))
		if !ok || got != string(want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

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
