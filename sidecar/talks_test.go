package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// A message that is said to come from the future is no newer than now: what
// people say after it counts.
func TestTalkFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, err := safefile.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		known, err := openTalks(root, "talks.json", func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		now := relay.MillisOf(time.Now())
		known.note(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_1", At: now * 1000}) // microseconds
		time.Sleep(time.Second)
		known.note(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_2", At: now + 1000})
		if got, _ := known.get("feishu", "oc_1"); got.MessageID != "om_2" {
			t.Errorf("the newest message is %s, want om_2", got.MessageID)
		}
	})
}
