package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A message that is said to come from the future is no newer than now: what
// people say after it counts.
func TestTalkFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shownSidecar(t, policy.Limits{MaxDepth: 3})
		now := relay.MillisOf(time.Now())
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_1", At: now * 1000}) // microseconds
		time.Sleep(time.Second)
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_2", At: now + 1000})
		if got, _ := s.chats.talk("feishu", "oc_1"); got.MessageID != "om_2" {
			t.Errorf("the newest message is %s, want om_2", got.MessageID)
		}
	})
}
